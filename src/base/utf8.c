#include "base/utf8.h"

#include "base/memory.h"

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
