/* ByT5's tokenizer: a token for each byte of a text, and special tokens. It has no vocabulary file;
 * tokenizer_config.json names its class. */
#ifndef WEFT_TEXT_BYTE_TOKENIZER_H
#define WEFT_TEXT_BYTE_TOKENIZER_H

#include "text/tokenizer_internal.h"

/* Whether the tokenizer_config.json at `path` is of this tokenizer. */
bool weft_tokenizer_is_byt5(const char *path);
/* Reads the special tokens of t->file, a tokenizer_config.json. */
weft_status weft_tokenizer_read_byt5(weft_tokenizer *t);
weft_status weft_byt5_cut(const char *text, int64_t length, weft_ids *out);

#endif
