/* Frechet distance of two sets of features. */
#ifndef WEFT_EVALUATE_FRECHET_H
#define WEFT_EVALUATE_FRECHET_H

#include "base/status.h"

#include <stdint.h>

/* Compares two sets of at least two items, each [count][width]. *distance is |ma - mb|^2
 * + tr(Ca + Cb - 2 (Ca Cb)^1/2), with the means and the covariances (divided by count - 1). With
 * features of a video network it is the Frechet video distance (Unterthiner et al. 2018). */
weft_status weft_frechet_distance(const float *a, int64_t count_a, const float *b, int64_t count_b,
                                  int64_t width, double *distance);

#endif
