/* UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing over U+10FFFF. */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

#include "base/memory.h"

#include <stdbool.h>

/* Bytes of the character at `text`, 1 to 4; 0 at the end of the text or where it is not UTF-8. */
int weft_utf8_length(const char *text);
bool weft_utf8_valid(const char *text);
/* Appends the character of a code up to 0x10ffff. */
void weft_utf8_append(weft_buf *to, uint32_t code);
/* Reads the number of a character reference of XML and HTML, "#65" or "#x41", at the text after
 * '&'. Returns its bytes without ';'; 0: another text. A code above 0x10ffff is 0x110000. */
int64_t weft_character_reference(const char *text, int64_t bytes, uint32_t *code);
/* A copy whose bytes that are not UTF-8 stand as "%E9"; heap, NULL: out of memory. */
char *weft_utf8_escape(const char *text);

#endif
