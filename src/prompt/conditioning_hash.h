/* Identity of text conditioning, for caches of its outputs and for records of runs. */
#ifndef WEFT_PROMPT_CONDITIONING_HASH_H
#define WEFT_PROMPT_CONDITIONING_HASH_H

#include "prompt/text_conditioning.h"

/* Hash of encoder r's tokenizer, length and template: the settings that determine its outputs,
 * apart from the weights. */
weft_status weft_text_conditioning_hash(const weft_text_conditioning *c, int r, uint64_t *hash);

#endif
