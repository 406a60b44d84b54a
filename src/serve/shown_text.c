#include "serve/shown_text.h"

#include "base/utf8.h"

#include <string.h>

/* Whether the text ends inside a character. */
static bool is_cut(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    const size_t length = strlen(text);
    size_t rest = 1;
    while (rest < length && (p[rest] & 0xc0) == 0x80)
        rest++;
    return rest == length && p[0] >= 0xc2 && rest < (p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4);
}

void weft_shown_text_copy(char *to, size_t size, const char *from)
{
    size_t used = 0;
    while (*from) {
        const int length = weft_utf8_length(from);
        const size_t bytes = length ? (size_t)length : 1;
        if (used + bytes >= size || (!length && is_cut(from)))
            break;
        memcpy(to + used, length ? from : "?", bytes);
        used += bytes;
        from += bytes;
    }
    to[used] = '\0';
}

/* A byte that can precede a '/' inside a word. */
static bool is_in_word(char byte)
{
    return (unsigned char)byte >= 0x80 || (byte >= '0' && byte <= '9') ||
           (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
           (byte && strchr("_-.%)]}", byte));
}

bool weft_shown_text_has_path(const char *text)
{
    for (const char *at = strchr(text, '/'); at; at = strchr(at + 1, '/')) {
        const char *start = at;
        while (start > text && start[-1] == '.')
            start--;
        if (start > text && is_in_word(start[-1]))
            continue;
        if (start < at || (at[1] && !strchr(" \t\r\n", at[1])))
            return true;
    }
    return false;
}
