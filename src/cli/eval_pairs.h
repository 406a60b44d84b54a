/* `weft eval pairs`. */
#ifndef WEFT_CLI_EVAL_PAIRS_H
#define WEFT_CLI_EVAL_PAIRS_H

#include "cli/options/args.h"

weft_status weft_eval_pairs(const weft_args *args);

#endif
