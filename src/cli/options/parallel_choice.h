/* How ranks split generation, for verbs that generate: a config's section parallel (--config), keys
 * of it (--parallel KEY=VALUE), or what costs least (--parallel auto). */
#ifndef WEFT_CLI_PARALLEL_CHOICE_H
#define WEFT_CLI_PARALLEL_CHOICE_H

#include "cli/verb.h"
#include "generate/generator.h"

/* `parallel` points into the arena; with auto it has what is no degree. */
weft_status weft_args_layout(const weft_args *args, weft_arena *arena, weft_parallel *parallel,
                             bool *choose);
/* auto: sets the degrees, and options->stream where weights do not fit otherwise, by the prices of
 * `weft plan generate`; rank 0 says what and why. Collective. */
weft_status weft_args_choose_layout(const weft_args *args, weft_arena *arena, const char *folder,
                                    weft_comm *comm, weft_generator_options *options,
                                    weft_parallel *parallel);
/* Where slices of `parallel` are auto: sets them by the same prices; rank 0 says what and why.
 * Collective. */
weft_status weft_args_choose_slices(const weft_args *args, weft_arena *arena, const char *folder,
                                    weft_comm *comm, weft_generator_options *options,
                                    weft_parallel *parallel);

/* clang-format off */
#define WEFT_LAYOUT_OPTIONS \
    {.name = "--config", .value_name = "RUN.yaml", \
     .help = "a config of weft train whose section parallel says how ranks split the work; keys " \
             "of --parallel go before it"}, \
    {.name = "--cluster", .value_name = "SPEC", .fallback = "local", \
     .help = "what --parallel auto goes by: a profile of weft profile --out (seconds are told by " \
             "it before the first step, too), a preset, a YAML file; local: this machine's " \
             "figures"}
/* clang-format on */

#endif
