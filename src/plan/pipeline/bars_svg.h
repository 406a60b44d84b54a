/* Horizontal stacked bars as an SVG document. */
#ifndef WEFT_PLAN_BARS_SVG_H
#define WEFT_PLAN_BARS_SVG_H

#include "base/memory.h"
#include "plan/pipeline/activation_planner.h"
#include "plan/pipeline/degree_search.h"

enum { WEFT_BARS_PARTS = 12 };

typedef struct weft_bar_chart {
    weft_buf *out;
    int parts;                                          /* at most WEFT_BARS_PARTS */
    const char *const *name;                            /* [parts]: the legend */
    const char *const *colour;                          /* [parts]; NULL: the palette's */
    double longest;                                     /* value of a bar of full width */
    const char *(*format)(double value, char text[32]); /* text of a part's tooltip */
    int64_t row;                                        /* rows drawn so far */
} weft_bar_chart;

/* `rows`: number of following calls of weft_bar_chart_row. */
void weft_bar_chart_begin(const weft_bar_chart *bars, int64_t rows, const char *title);
/* value[parts]; `end` is printed after the bar. */
void weft_bar_chart_row(weft_bar_chart *bars, const char *label, const double *value,
                        const char *end);
void weft_bar_chart_end(const weft_bar_chart *bars);

/* Draws a bar per item: kept, recomputed, offloaded. Appends an SVG document. */
void weft_activation_choice_draw(const weft_activation_item *item, int64_t items,
                                 const weft_activation_choice *choice, weft_buf *out);

/* Draws stacked bars of the causes; layouts that do not fit are omitted. Appends an SVG
 * document. */
void weft_degrees_plan_draw(const weft_degrees_plan *plan, int64_t others, weft_buf *out);

#endif
