/* weft eval int8. */
#ifndef WEFT_EVALUATE_INT8_REPORT_H
#define WEFT_EVALUATE_INT8_REPORT_H

#include "base/json.h"
#include "cli/options/verb.h"

/* Prints the choice. Sets *result to a new reference, the result of weft_calibrate_int8. */
weft_status weft_eval_int8(const weft_args *args, json_t **result);

#endif
