#ifndef WEFT_DRAW_PLOT_H
#define WEFT_DRAW_PLOT_H

#include "base/memory.h"
#include "draw/svg.h"

/* Appends the plot. A line with more points than pixels keeps the lowest and highest of each pixel
 * column, so that all peaks remain. A plot without points shows a message in its middle. */
weft_status weft_plot_write(const weft_plot *plot, weft_buf *out);
/* Computes the running mean of report curves: out[i] = (1 - beta) * sum_j beta^j y[i - j], bias
 * corrected. Skips values that are not finite. */
void weft_smooth(const double *y, int64_t count, double beta, double *out);

#endif
