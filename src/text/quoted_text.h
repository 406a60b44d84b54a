/* Parts of a prompt in quotation marks: the text that a video shall show. */
#ifndef WEFT_TEXT_QUOTED_TEXT_H
#define WEFT_TEXT_QUOTED_TEXT_H

#include "base/memory.h"

#include <stdbool.h>

/* Appends 'Text "A". Text "B". ' for the parts A and B of `text` in straight or curly quotation
 * marks, each part once. Returns false if there is none. */
bool weft_text_quoted(const char *text, weft_buf *out);

#endif
