/* Hexadecimal digits: lowercase ones, except for weft_hex_digit. 64-bit numbers have 16: the form
 * of hashes in files. */
#ifndef WEFT_BASE_HEX_H
#define WEFT_BASE_HEX_H

#include <stdbool.h>
#include <stdint.h>

enum { WEFT_HEX_BYTES = 17 }; /* with the NUL */

/* Writes all 16 digits and returns `text`. */
const char *weft_hex_print(uint64_t number, char text[WEFT_HEX_BYTES]);
/* False for NULL and for text that weft_hex_print does not write; `number` is unchanged then. */
bool weft_hex_parse(const char *text, uint64_t *number);

/* Writes two digits for each byte, and a NUL. */
void weft_hex_write(const void *bytes, int64_t count, char *text);
/* Reads two digits for each of `count` bytes. False if `text` starts with fewer digits, or has a
 * digit after them; `bytes` is unchanged then. */
bool weft_hex_read(const char *text, int64_t count, void *bytes);
/* Value of a digit of either case; -1 for another character. */
int weft_hex_digit(char digit);
/* Whether `text` starts with `digits` digits, and the next character is not one. */
bool weft_hex_starts(const char *text, int64_t digits);

#endif
