/* weft simulate RUN.yaml, which `weft estimate` replaces. */
#ifndef WEFT_CLI_SIMULATE_RUN_H
#define WEFT_CLI_SIMULATE_RUN_H

#include "cli/options/verb.h"

weft_status weft_simulate_run(const weft_args *args, const char *path);

#endif
