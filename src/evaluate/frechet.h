/* Frechet distance of two sets of features. */
#ifndef WEFT_EVALUATE_FRECHET_H
#define WEFT_EVALUATE_FRECHET_H

#include "base/status.h"

#include <stdint.h>

/* Sets *distance to the squared distance of the means of two sets, each [count][width], plus
 * tr(Ca + Cb - 2 (Ca Cb)^1/2) of their covariances (divided by count - 1). It is the Frechet video
 * distance for features of a video network (Unterthiner et al. 2018). Each set has at least two
 * items. */
weft_status weft_frechet_distance(const float *a, int64_t count_a, const float *b, int64_t count_b,
                                  int64_t width, double *distance);

#endif
