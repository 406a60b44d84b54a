#ifndef WEFT_TEXT_WORDPIECE_H
#define WEFT_TEXT_WORDPIECE_H

#include "text/tokenizer.h"
#include "text/vocabulary.h"

weft_status weft_tokenizer_read_words(weft_tokenizer *t, const char *folder);
/* A text as weft_text_words leaves it. */
weft_status weft_wordpiece_cut(const weft_tokenizer *t, const char *text, int64_t length,
                               weft_ids *out);

#endif
