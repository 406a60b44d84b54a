/* Parallel layout of verbs that generate: a config's section parallel (--config), its keys
 * (--parallel KEY=VALUE), or the layout with the lowest estimate (--parallel auto). */
#ifndef WEFT_CLI_OPTIONS_PARALLEL_CHOICE_H
#define WEFT_CLI_OPTIONS_PARALLEL_CHOICE_H

#include "cli/options/verb.h"
#include "comm/comm.h"
#include "generate/generator/generator.h"

/* Reads the layout; `parallel` points into the arena. With auto, only the keys other than degrees
 * are set. */
weft_status weft_args_layout(const weft_args *args, weft_arena *arena, weft_parallel *parallel,
                             bool *choose);
/* Applies auto by the estimates of `weft plan generate`. Sets the degrees, and options->stream if
 * the weights do not fit otherwise. Rank 0 prints the choice and its reason. Collective. */
weft_status weft_args_choose_layout(const weft_args *args, weft_arena *arena, const char *folder,
                                    weft_comm *comm, weft_generator_options *options,
                                    weft_parallel *parallel);
/* Sets the layer slices of `parallel` that are auto, by the same estimates. Rank 0 prints the
 * choice and its reason. Collective. */
weft_status weft_args_choose_comm_overlap(const weft_args *args, weft_arena *arena,
                                          const char *folder, weft_comm *comm,
                                          weft_generator_options *options, weft_parallel *parallel);

/* Sets options->bf16 for --precision auto, else does nothing. Rank 0 prints the choice and its
 * reason. Collective. */
weft_status weft_args_choose_precision(const weft_args *args, weft_arena *arena, const char *folder,
                                       weft_comm *comm, weft_generator_options *options);

/* clang-format off */
#define WEFT_LAYOUT_OPTIONS \
    {.name = "--config", .value_name = "RUN.yaml", .copied = true, \
     .help = "config of `weft train` whose section `parallel` sets the layout; --parallel has " \
             "priority", \
     .group = "parallelism"}, \
    {.name = "--on", WEFT_ALSO("--cluster"), .value_name = "CLUSTER", .fallback = "local", \
     .help = "machine for the estimates of --parallel auto and --precision auto; a profile of " \
             "`weft profile` (which also predicts the seconds of the run), a preset, or a YAML " \
             "file. local: this machine", \
     .group = "parallelism"}
/* clang-format on */

#endif
