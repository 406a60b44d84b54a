/* Drawings as SVG text: shapes and line plots.
 *
 * The text is a complete SVG file and can also be embedded in a page: all styles are inside and
 * nothing is loaded. All colours but a series' follow the page's text colour (currentColor). */
#ifndef WEFT_DRAW_SVG_H
#define WEFT_DRAW_SVG_H

#include "base/memory.h"

/* ---- shapes: coordinates in pixels, y downwards -------------------------------------------- */

typedef struct weft_svg {
    weft_buf text;
    double width, height;
} weft_svg;

void weft_svg_begin(weft_svg *svg, double width, double height);
/* `colour`: "#rrggbb" or a CSS name. `tip`: tooltip, may be NULL. */
void weft_svg_rect(weft_svg *svg, double x, double y, double w, double h, const char *colour,
                   double opacity, const char *tip);
void weft_svg_line(weft_svg *svg, double x1, double y1, double x2, double y2, const char *colour,
                   double width, double opacity);
/* `anchor`: 's'tart, 'm'iddle or 'e'nd. `angle`: degrees clockwise about (x, y). */
void weft_svg_label(weft_svg *svg, double x, double y, double size, char anchor, double angle,
                    const char *text);
/* Ends the text, owned by the caller: weft_buf_free. WEFT_E_MEMORY: an append failed. */
weft_status weft_svg_end(weft_svg *svg);

/* Returns the i-th of eight colours that are safe for colour blindness (Okabe and Ito). */
const char *weft_svg_colour(int i);
/* Appends `text` with & < > " escaped, for SVG and HTML; bytes that are not UTF-8 become '?'. */
void weft_xml_escape(weft_buf *out, const char *text);

/* ---- line plots ---------------------------------------------------------------------------- */

typedef struct weft_plot_series {
    const char *name;
    int64_t count;
    /* [count], borrowed; points that are not finite, or <= 0 on a log axis, break the line */
    const double *x, *y;
    bool faint; /* thin and pale, for raw values with a mean line */
    bool dots;  /* marks at the points */
} weft_plot_series;

typedef struct weft_plot {
    const char *title, *x_label, *y_label; /* NULL: none */
    const weft_plot_series *series;
    int series_count;
    bool log_x, log_y;
    double width, height; /* pixels; 0: 640 x 360 */
} weft_plot;

#endif
