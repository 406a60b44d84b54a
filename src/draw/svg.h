/* Drawings as SVG text: shapes and line plots.
 *
 * The text stands alone as a file and can be put into a page as it is: every style is inside,
 * nothing is loaded. Colours follow the page's text colour (currentColor) where they are not a
 * series'. */
#ifndef WEFT_FORMAT_SVG_H
#define WEFT_FORMAT_SVG_H

#include "base/memory.h"

/* ---- shapes: coordinates in pixels, y downwards -------------------------------------------- */

typedef struct weft_svg {
    weft_buf text;
    double width, height;
} weft_svg;

void weft_svg_begin(weft_svg *svg, double width, double height);
/* `colour`: "#rrggbb" or a CSS name; `tip` (may be NULL) is shown under the pointer. */
void weft_svg_rect(weft_svg *svg, double x, double y, double w, double h, const char *colour,
                   double opacity, const char *tip);
void weft_svg_line(weft_svg *svg, double x1, double y1, double x2, double y2, const char *colour,
                   double width, double opacity);
/* anchor 's'tart, 'm'iddle or 'e'nd; angle in degrees clockwise about (x, y). */
void weft_svg_label(weft_svg *svg, double x, double y, double size, char anchor, double angle,
                    const char *text);
/* Ends the text. WEFT_E_MEMORY if an append failed. The text is the caller's: weft_buf_free. */
weft_status weft_svg_end(weft_svg *svg);

/* The i-th of eight colours that differ also for the colour blind (Okabe and Ito). */
const char *weft_svg_colour(int i);
/* Appends `text` with & < > " escaped, for SVG and HTML; bytes that are not UTF-8 become '?'. */
void weft_xml_escape(weft_buf *out, const char *text);

/* ---- line plots ---------------------------------------------------------------------------- */

typedef struct weft_plot_series {
    const char *name;
    int64_t count;
    /* [count], borrowed; points that are not finite, or <= 0 on a log axis, break the line */
    const double *x, *y;
    bool faint; /* thin and pale, as of raw values behind their average */
    bool dots;  /* marks on the points */
} weft_plot_series;

typedef struct weft_plot {
    const char *title, *x_label, *y_label; /* NULL: none */
    const weft_plot_series *series;
    int series_count;
    bool log_x, log_y;
    double width, height; /* pixels; 0: 640 x 360 */
} weft_plot;

/* Appends the drawing. Lines of more points than pixels are thinned to the lowest and highest of
 * each pixel column, so that no peak is lost. A plot without any point says so in its middle. */
weft_status weft_plot_write(const weft_plot *plot, weft_buf *out);

/* The running mean that report curves show: out[i] = (1 - beta) * sum_j beta^j y[i - j], bias
 * corrected; values that are not finite are passed over. */
void weft_smooth(const double *y, int64_t count, double beta, double *out);

#endif
