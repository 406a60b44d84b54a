#include "text/quoted_text.h"

#include <stdint.h>
#include <string.h>

static const char *const opens[] = {"\"", "\xe2\x80\x9c"}, *const closes[] = {"\"", "\xe2\x80\x9d"};

/* The quotation that begins at `at`, within a line: its part and the end after the closing mark.
 * NULL: none begins there. */
static const char *quotation(const char *at, const char **part, int64_t *length)
{
    for (int k = 0; k < 2; k++) {
        const size_t mark = strlen(opens[k]), line = strcspn(at, "\n");
        if (strncmp(at, opens[k], mark) != 0)
            continue;
        const char *end = strstr(at + mark, closes[k]);
        if (!end || end >= at + line)
            continue;
        *part = at + mark;
        *length = end - *part;
        return end + strlen(closes[k]);
    }
    return NULL;
}

/* Whether a quotation before `end` has the same part. */
static bool was_before(const char *text, const char *end, const char *part, int64_t length)
{
    const char *other, *next;
    int64_t bytes;
    for (const char *at = text; at < end; at = next ? next : at + 1) {
        next = quotation(at, &other, &bytes);
        if (next && bytes == length && !memcmp(other, part, (size_t)length))
            return true;
    }
    return false;
}

bool weft_text_quoted(const char *text, weft_buf *out)
{
    const char *part, *next;
    int64_t length;
    bool found = false;
    for (const char *at = text; *at; at = next ? next : at + 1) {
        next = quotation(at, &part, &length);
        if (!next || was_before(text, at, part, length))
            continue;
        weft_buf_printf(out, "Text \"%.*s\". ", (int)length, part);
        found = true;
    }
    return found;
}
