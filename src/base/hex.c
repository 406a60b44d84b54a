#include "base/hex.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft_hex_print(uint64_t number, char text[WEFT_HEX_BYTES])
{
    snprintf(text, WEFT_HEX_BYTES, "%016" PRIx64, number);
    return text;
}

bool weft_hex_parse(const char *text, uint64_t *number)
{
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *number = strtoull(text, NULL, 16);
    return true;
}
