#ifndef WEFT_TEXT_TOKENIZER_JSON_H
#define WEFT_TEXT_TOKENIZER_JSON_H

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer.h"

weft_status weft_tokenizer_read_json(weft_tokenizer *t);
weft_status weft_tokenizer_read_clip(weft_tokenizer *t, const char *folder);
/* Reads vocab.json and merges.txt of Qwen 2; `config` is tokenizer_config.json of the folder, which
 * has the special tokens. */
weft_status weft_tokenizer_read_qwen(weft_tokenizer *t, const char *folder, const json_t *config);

#endif
