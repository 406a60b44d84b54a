/* weft estimate CONFIG. */
#ifndef WEFT_CLI_ESTIMATE_RUN_H
#define WEFT_CLI_ESTIMATE_RUN_H

#include "base/json.h"
#include "cli/options/verb.h"
#include "train/config/train_config.h"

weft_status weft_estimate_run(const weft_args *args, const char *path);
/* Prints the first iterations of a run with cascades, by --ranks, --iterations and --svg. */
weft_status weft_estimate_cascades(const weft_args *args, const weft_run *run, const char *path);
/* Prints JSON on standard output and releases it. NULL is an error. */
weft_status weft_estimate_print_json(json_t *json);

#endif
