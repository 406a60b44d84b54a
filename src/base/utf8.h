/* UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing over U+10FFFF. */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

#include <stdbool.h>

/* Bytes of the character at `text`, 1 to 4; 0 at the end of the text or where it is not UTF-8. */
int weft_utf8_length(const char *text);
bool weft_utf8_valid(const char *text);
/* A copy whose bytes that are not UTF-8 stand as "%E9"; heap, NULL: out of memory. */
char *weft_utf8_escape(const char *text);

#endif
