/* Cleaning of prompts, as the models that were trained on cleaned captions expect it. */
#ifndef WEFT_TEXT_CLEAN_H
#define WEFT_TEXT_CLEAN_H

#include "base/memory.h"

/* Small letters, and no white space at the ends. */
void weft_text_clean_lower(const char *text, int64_t length, weft_buf *out);

#endif
