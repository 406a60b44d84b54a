#include "base/utf8.h"

#include "base/hex.h"

int weft_utf8_length(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80)
        return p[0] != 0;
    int n = 0;
    if (p[0] >= 0xc2 && p[0] < 0xe0)
        n = 2;
    else if (p[0] >= 0xe0 && p[0] < 0xf0)
        n = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        n = 4;
    for (int i = 1; i < n; i++) { /* stops at a NUL too */
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    const bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    const bool surrogate = p[0] == 0xed && p[1] >= 0xa0, beyond = p[0] == 0xf4 && p[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : n;
}

bool weft_utf8_valid(const char *text)
{
    while (*text) {
        const int n = weft_utf8_length(text);
        if (n == 0)
            return false;
        text += n;
    }
    return true;
}

char *weft_utf8_escape(const char *text)
{
    weft_buf copy = {0};
    weft_buf_append(&copy, "", 0);
    while (*text) {
        const int n = weft_utf8_length(text);
        if (n > 0)
            weft_buf_append(&copy, text, n);
        else
            weft_buf_printf(&copy, "%%%02X", (unsigned char)*text);
        text += n > 0 ? n : 1;
    }
    if (copy.failed)
        weft_buf_free(&copy);
    return copy.data;
}

void weft_utf8_append(weft_buf *to, uint32_t code)
{
    const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    char bytes[4] = {(char)code};
    for (int i = n - 1; i > 0; i--, code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    if (n > 1)
        bytes[0] = (char)((0xf00 >> n & 0xff) | code);
    weft_buf_append(to, bytes, n);
}

int64_t weft_character_reference(const char *text, int64_t bytes, uint32_t *code)
{
    enum { ABOVE_ALL = 0x110000 };
    if (bytes < 2 || text[0] != '#')
        return 0;
    const bool hexadecimal = text[1] == 'x' || text[1] == 'X';
    const int64_t first = hexadecimal ? 2 : 1;
    const uint32_t base = hexadecimal ? 16 : 10;
    uint32_t value = 0;
    int64_t n = first;
    for (; n < bytes; n++) {
        const int digit = weft_hex_digit(text[n]);
        if (digit < 0 || (uint32_t)digit >= base)
            break;
        value = value * base + (uint32_t)digit;
        value = value < ABOVE_ALL ? value : ABOVE_ALL;
    }
    if (n == first)
        return 0;
    *code = value;
    return n;
}
