/* weft inspect graph CONFIG: what the steps of a training run cost. */
#ifndef WEFT_CLI_INSPECT_RUN_H
#define WEFT_CLI_INSPECT_RUN_H

#include "cli/verb.h"

weft_status weft_inspect_run(const weft_args *args, const char *path);

#endif
