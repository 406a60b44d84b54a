/* weft eval savings. */
#ifndef WEFT_EVALUATE_SAVINGS_TABLE_H
#define WEFT_EVALUATE_SAVINGS_TABLE_H

#include "base/json.h"
#include "cli/options/verb.h"
#include "evaluate/evaluate.h"

enum { WEFT_EVAL_STEPS = 20 }; /* of models without a number of their own */

/* Prints the table. Sets *result to a new reference, the result of weft_evaluate_savings. */
weft_status weft_eval_savings(const weft_args *args, json_t **result);

/* Reads model, prompts, size and steps of the videos of a comparison. Without
 * --prompts they are `usual_prompts`, which end with NULL (NULL: --prompts is required). */
weft_status weft_eval_read_videos(const weft_args *args, weft_arena *arena,
                                  const char *const *usual_prompts,
                                  weft_saving_eval_options *options);
/* Reads the steps and the guidance scale of a model's videos, which its folder may have, and their
 * size, if the folder has none (weft.json). */
weft_status weft_eval_read_settings(const weft_args *args, const char *model,
                                    weft_generator_options *options);

#endif
