/* weft estimate --model PATH. */
#ifndef WEFT_CLI_ESTIMATE_MODEL_H
#define WEFT_CLI_ESTIMATE_MODEL_H

#include "cli/options/verb.h"

/* Estimates a generation, if `path` is a complete model folder, else one model. */
weft_status weft_estimate_model(const weft_args *args, const char *path);

#endif
