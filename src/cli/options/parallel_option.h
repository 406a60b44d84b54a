/* The option --parallel KEY=VALUE of several verbs: keys of the config section parallel. */
#ifndef WEFT_CLI_OPTIONS_PARALLEL_OPTION_H
#define WEFT_CLI_OPTIONS_PARALLEL_OPTION_H

#include "cli/options/verb.h"
#include "transform/sharding/mesh_config.h"
#include "transform/sharding/slices.h"

/* `parallel` points into the arena. */
weft_status weft_args_parallel(const weft_args *args, weft_arena *arena, weft_parallel *parallel);
/* Whether --parallel is auto, which excludes further keys. */
weft_status weft_args_parallel_is_auto(const weft_args *args, bool *is_auto);
/* Reads the option --comm-overlap: off, auto, or keys such as time=4,space=4 or heads=4. *overlap
 * is unchanged if the option is not given. */
weft_status weft_args_comm_overlap(const weft_args *args, weft_comm_overlap *overlap);

#endif
