/* Self-contained HTML pages: text, tables, drawings, and pictures and videos inside as base64. */
#ifndef WEFT_FORMAT_HTML_H
#define WEFT_FORMAT_HTML_H

#include "base/memory.h"
#include "format/svg.h"

/* Appends the page's head: title, style for light and dark, and the title as its heading. */
void weft_html_begin(weft_buf *page, const char *title);
void weft_html_heading(weft_buf *page, const char *text);
/* cell[rows * columns] row by row; `head` may be NULL. Cells that read as numbers are set to the
 * right. */
void weft_html_table(weft_buf *page, const char *const *head, const char *const *cell, int rows,
                     int columns);
/* A drawing of weft_plot_write and the like, as it is. */
void weft_html_svg(weft_buf *page, const weft_buf *svg);

/* Figures stand side by side between begin and end, as many as fit a line. */
void weft_html_figures_begin(weft_buf *page);
void weft_html_figures_end(weft_buf *page);
/* `width` in pixels, 0: the picture's own; `caption` may be NULL. */
void weft_html_png(weft_buf *page, const void *png, int64_t bytes, int64_t width,
                   const char *caption);
/* Plays by itself, over and over, without sound. */
void weft_html_mp4(weft_buf *page, const void *mp4, int64_t bytes, int64_t width,
                   const char *caption);
/* From a file by its extension (png, jpg, mp4, webm). */
weft_status weft_html_file(weft_buf *page, const char *path, int64_t width, const char *caption);
void weft_html_end(weft_buf *page);

void weft_base64(weft_buf *out, const void *data, int64_t bytes);

#endif
