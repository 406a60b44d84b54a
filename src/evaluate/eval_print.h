#ifndef WEFT_EVALUATE_EVAL_PRINT_H
#define WEFT_EVALUATE_EVAL_PRINT_H

#include "base/json.h"

/* Prints the result of `weft eval vae` on standard output. */
void weft_eval_print_vae(const json_t *result);
/* Prints the result of `weft eval prompts`: shares of correct prompts next to chance. */
void weft_eval_print_prompts(const json_t *result);
/* Prints the result of `weft eval videos`: the means over videos. */
void weft_eval_print_videos(const json_t *result);

#endif
