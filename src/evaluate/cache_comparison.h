/* weft eval cache. */
#ifndef WEFT_EVALUATE_CACHE_COMPARISON_H
#define WEFT_EVALUATE_CACHE_COMPARISON_H

#include "base/json.h"
#include "cli/options/verb.h"

/* Prints the table. Sets *result to a new reference, the result of weft_evaluate_savings. */
weft_status weft_eval_savings(const weft_args *args, json_t **result);

#endif
