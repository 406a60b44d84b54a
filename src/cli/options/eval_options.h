/* The options of `weft eval` and their groups. */
#ifndef WEFT_CLI_OPTIONS_EVAL_OPTIONS_H
#define WEFT_CLI_OPTIONS_EVAL_OPTIONS_H

#include "cli/options/verb.h"

enum { WEFT_EVAL_OPTIONS = 50 };

extern const weft_option weft_eval_options[];
extern const weft_option_group weft_eval_groups[];
extern const char weft_eval_details[]; /* of the help */

#endif
