/* Self-contained HTML pages: text, tables, drawings, and images and videos embedded as base64. */
#ifndef WEFT_DRAW_HTML_H
#define WEFT_DRAW_HTML_H

#include "base/memory.h"
#include "draw/svg.h"

/* Appends the page's head: title, style for light and dark, and the title as heading. */
void weft_html_begin(weft_buf *page, const char *title);
void weft_html_heading(weft_buf *page, const char *text);
/* Appends a table. cell[rows * columns] in row order; `head` may be NULL. Numeric cells are
 * right-aligned. */
void weft_html_table(weft_buf *page, const char *const *head, const char *const *cell, int rows,
                     int columns);
/* Appends a drawing of weft_plot_write or of another SVG function. */
void weft_html_svg(weft_buf *page, const weft_buf *svg);

/* Figures between begin and end are placed side by side, with line wrap. */
void weft_html_figures_begin(weft_buf *page);
void weft_html_figures_end(weft_buf *page);
/* `width` in pixels; 0: the image's own. `caption` may be NULL. */
void weft_html_png(weft_buf *page, const void *png, int64_t bytes, int64_t width,
                   const char *caption);
/* Appends a video that plays automatically, in a loop, muted. */
void weft_html_mp4(weft_buf *page, const void *mp4, int64_t bytes, int64_t width,
                   const char *caption);
/* Appends a file according to its extension (png, jpg, mp4, webm). */
weft_status weft_html_file(weft_buf *page, const char *path, int64_t width, const char *caption);
/* Appends a file without a figure; a video is muted and waits for the page's script. */
weft_status weft_html_media(weft_buf *page, const char *path);
void weft_html_end(weft_buf *page);

void weft_base64(weft_buf *out, const void *data, int64_t bytes);

#endif
