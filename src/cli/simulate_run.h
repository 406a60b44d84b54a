/* weft simulate RUN.yaml: a step of a run's pipeline, by the event simulator and by its ranks. */
#ifndef WEFT_CLI_SIMULATE_RUN_H
#define WEFT_CLI_SIMULATE_RUN_H

#include "cli/verb.h"

weft_status weft_simulate_run(const weft_args *args, const char *path);

#endif
