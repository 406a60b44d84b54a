/* Gantt charts in the manner of Arachne's Fig. 9: devices upward, time to the right. */
#ifndef WEFT_PLAN_GANTT_H
#define WEFT_PLAN_GANTT_H

#include "base/memory.h"

typedef struct weft_gantt_bar {
    int64_t row;
    double start, end;
    int colour;        /* any number: equal numbers look alike */
    double shade;      /* 0: full colour .. 1: nearly white */
    const char *label; /* shown where it fits, and as tooltip */
} weft_gantt_bar;

/* `row_name` may be NULL: rows are numbered. Text is escaped. */
weft_status weft_gantt_svg(const char *title, const weft_gantt_bar *bar, int64_t count, int64_t rows,
                           double seconds, int64_t rows_per_node, weft_buf *out);
void weft_svg_text(weft_buf *out, const char *text); /* escaped */

#endif
