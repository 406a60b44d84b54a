#ifndef WEFT_BASE_WRAP_H
#define WEFT_BASE_WRAP_H

#include "base/memory.h"

/* Columns of the lines that weft_buf_wrap writes. */
enum { WEFT_WRAP_COLUMNS = 80 };

/* Appends the words of `text`, breaking lines at spaces before column WEFT_WRAP_COLUMNS. The first
 * line continues the last line of `out`, later lines start with `indent` spaces. A longer word has
 * a line of its own. Appends no newline at the end. */
void weft_buf_wrap(weft_buf *out, int indent, const char *text);

#endif
