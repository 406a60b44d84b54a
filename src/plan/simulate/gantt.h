/* Gantt charts in the style of Arachne's Fig. 9: devices upward, time to the right. */
#ifndef WEFT_PLAN_GANTT_H
#define WEFT_PLAN_GANTT_H

#include "base/memory.h"

typedef struct weft_gantt_bar {
    int64_t row;
    double start, end;
    int colour;        /* any number: equal numbers have equal colours */
    double shade;      /* 0: full colour .. 1: nearly white */
    const char *label; /* printed if it fits, and as tooltip */
    /* INNER: part of a bar without outline and text; LABEL: text only */
    enum { WEFT_GANTT_BAR, WEFT_GANTT_INNER, WEFT_GANTT_LABEL } part;
} weft_gantt_bar;

/* Returns the colour of a cascade in plans and simulations: by its sample ("s3.vae"), otherwise by
 * `index`. */
int weft_gantt_colour(const char *id, int index);

/* Draws the chart. Rows are numbered, with a line every `rows_per_node` rows (0: no line). Later
 * bars cover earlier bars. */
weft_status weft_gantt_svg(const char *title, const weft_gantt_bar *bar, int64_t count,
                           int64_t rows, double seconds, int64_t rows_per_node, weft_buf *out);

#endif
