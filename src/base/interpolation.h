/* Interpolation without a filter, as PyTorch's `interpolate` computes it without `antialias`. */
#ifndef WEFT_BASE_INTERPOLATION_H
#define WEFT_BASE_INTERPOLATION_H

#include <stdint.h>

/* Source elements of one output element along one dim. */
typedef struct weft_neighbours {
    int count; /* 2 or 4 */
    int64_t at[4];
    float weight[4]; /* the sum is 1 */
} weft_neighbours;

/* Output element i is at (i + 1/2) step - 1/2 among `count` source elements. Positions and weights
 * are computed in f32, as the reference does for f32 images. Elements outside repeat the
 * edge. */
weft_neighbours weft_neighbours_linear(float step, int64_t i, int64_t count);
weft_neighbours weft_neighbours_cubic(float step, int64_t i, int64_t count); /* a = -0.75 */

#endif
