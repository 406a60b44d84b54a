/* weft eval cache. */
#ifndef WEFT_CLI_EVAL_SAVINGS_H
#define WEFT_CLI_EVAL_SAVINGS_H

#include "base/json.h"
#include "cli/verb.h"

/* Prints the table; *result: a new reference, as weft_evaluate_savings gives it. */
weft_status weft_eval_savings(const weft_args *args, json_t **result);

#endif
