#include "text/clean.h"

#include "text/normalise.h"

void weft_text_clean_lower(const char *text, int64_t length, weft_buf *out)
{
    int64_t from = length, to = 0;
    for (int64_t at = 0, n; at < length; at += n) {
        const int32_t c = weft_text_next(text + at, length - at, &n);
        if (weft_is_space(c))
            continue;
        from = from < at ? from : at;
        to = at + n;
    }
    if (to > from)
        weft_text_lower(text + from, to - from, out);
}
