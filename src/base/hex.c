#include "base/hex.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char all_digits[] = "0123456789abcdef";

const char *weft_hex_print(uint64_t number, char text[WEFT_HEX_BYTES])
{
    snprintf(text, WEFT_HEX_BYTES, "%016" PRIx64, number);
    return text;
}

bool weft_hex_parse(const char *text, uint64_t *number)
{
    if (!text || !weft_hex_starts(text, 16) || text[16] != '\0')
        return false;
    *number = strtoull(text, NULL, 16);
    return true;
}

void weft_hex_write(const void *bytes, int64_t count, char *text)
{
    const uint8_t *byte = bytes;
    for (int64_t i = 0; i < count; i++) {
        text[2 * i] = all_digits[byte[i] >> 4];
        text[2 * i + 1] = all_digits[byte[i] & 15];
    }
    text[2 * count] = '\0';
}

int weft_hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    const char letter = (char)(digit | 32);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

bool weft_hex_read(const char *text, int64_t count, void *bytes)
{
    uint8_t *byte = bytes;
    if (!weft_hex_starts(text, 2 * count))
        return false;
    for (int64_t i = 0; i < count; i++)
        byte[i] = (uint8_t)(16 * weft_hex_digit(text[2 * i]) + weft_hex_digit(text[2 * i + 1]));
    return true;
}

bool weft_hex_starts(const char *text, int64_t digits)
{
    return (int64_t)strspn(text, all_digits) == digits;
}
