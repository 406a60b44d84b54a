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
    /* INNER: part of a bar, neither outline nor text; LABEL: only the text */
    enum { WEFT_GANTT_BAR, WEFT_GANTT_INNER, WEFT_GANTT_LABEL } part;
} weft_gantt_bar;

/* Of a cascade, for plans and simulations alike: that of its sample ("s3.vae"), else of `index`. */
int weft_gantt_colour(const char *id, int index);

/* Rows are numbered; a line every `rows_per_node` (0: none). Later bars cover earlier ones. */
weft_status weft_gantt_svg(const char *title, const weft_gantt_bar *bar, int64_t count,
                           int64_t rows, double seconds, int64_t rows_per_node, weft_buf *out);

#endif
