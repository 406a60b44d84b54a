/* Breaks text into lines of a terminal. */
#include "base/wrap.h"

#include <string.h>

static int column_of(const weft_buf *out)
{
    int64_t start = out->len;
    while (start > 0 && out->data[start - 1] != '\n')
        start--;
    return (int)(out->len - start);
}

void weft_buf_wrap(weft_buf *out, int indent, const char *text)
{
    int column = column_of(out);
    bool spaced = false; /* a space precedes the next word */
    while (*(text += strspn(text, " \n"))) {
        const int length = (int)strcspn(text, " \n");
        if (spaced && column + 1 + length > WEFT_WRAP_COLUMNS) {
            weft_buf_printf(out, "\n%*s", indent, "");
            column = indent;
        } else if (spaced) {
            weft_buf_append(out, " ", 1);
            column++;
        }
        weft_buf_append(out, text, length);
        column += length;
        text += length;
        spaced = true;
    }
}
