#ifndef WEFT_CLI_PLAN_OUTPUT_H
#define WEFT_CLI_PLAN_OUTPUT_H

#include "base/json.h"
#include "cli/options/verb.h"

/* Sets *ranks to --devices. Without the option: `all`, at most `most`. */
weft_status weft_plan_ranks(const weft_args *args, int64_t all, int most, int *ranks);
/* Ends a command: writes --svg and --out atomically, prints `text` or --json. NULL `json`: out of
 * memory; NULL `svg`: no drawing. Frees all three. */
weft_status weft_plan_finish(const weft_args *args, json_t *json, weft_buf *text, weft_buf *svg);
/* Prints JSON indented on standard output. NULL is an error. */
weft_status weft_plan_print_json(const json_t *json);

#endif
