#ifndef WEFT_TEXT_TOKENIZER_JSON_H
#define WEFT_TEXT_TOKENIZER_JSON_H

#include "base/status.h"
#include "text/tokenizer.h"

weft_status weft_tokenizer_read_json(weft_tokenizer *t);
weft_status weft_tokenizer_read_clip(weft_tokenizer *t, const char *folder);

#endif
