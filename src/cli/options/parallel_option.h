/* The option --parallel KEY=VALUE of several verbs: keys of a config's section parallel. */
#ifndef WEFT_CLI_PARALLEL_OPTION_H
#define WEFT_CLI_PARALLEL_OPTION_H

#include "cli/verb.h"
#include "pass/parallel.h"

/* `parallel` points into the arena. */
weft_status weft_args_parallel(const weft_args *args, weft_arena *arena, weft_parallel *parallel);
/* The option --slices: off, auto, or keys as time=4,space=4 or heads=4; *slices stays what it was
 * where it is not given. */
weft_status weft_args_slices(const weft_args *args, weft_slices *slices);

#endif
