/* 64-bit numbers as text of 16 lowercase hexadecimal digits: the form of hashes in files. */
#ifndef WEFT_BASE_HEX_H
#define WEFT_BASE_HEX_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_HEX_BYTES = 17 }; /* with the NUL */

/* Writes all 16 digits and returns `text`. */
const char *weft_hex_print(uint64_t number, char text[WEFT_HEX_BYTES]);
/* False for NULL and for text that weft_hex_print does not write; `number` is unchanged then. */
bool weft_hex_parse(const char *text, uint64_t *number);

#endif
