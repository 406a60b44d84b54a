/* Sampling of images and features by flow fields, as PyTorch's grid_sample and interpolate do it.
 * Arrays are (rows, columns, channels) of f32. */
#ifndef WEFT_EVALUATE_FLOW_SAMPLING_H
#define WEFT_EVALUATE_FLOW_SAMPLING_H

#include "base/status.h"

#include <stdint.h>

/* An array, or channels of an array with more channels: `step` values from position to position. */
typedef struct weft_plane {
    float *at; /* borrowed */
    int64_t rows, columns, channels, step;
} weft_plane;

/* Returns `channels` channels of the array from channel `first` on. */
weft_plane weft_plane_of(weft_plane plane, int64_t first, int64_t channels);
/* Sets to = factor * from; both have the same size. */
void weft_plane_copy(weft_plane from, float factor, weft_plane to);
/* Adds factor * from to `to`. */
void weft_plane_add(weft_plane from, float factor, weft_plane to);
/* Scales factor * `from` to the size of `to` (bilinear, corners not aligned). */
void weft_plane_resize(weft_plane from, float factor, weft_plane to);
/* Sets to(p) = from(p + flow(p)); bilinear. Positions outside take the edge. A flow has
 * columns, then rows. */
void weft_plane_warp(weft_plane from, weft_plane flow, weft_plane to);
/* Means of 2 x 2 positions; a last odd row or column is dropped. */
void weft_plane_halve(weft_plane from, weft_plane to);

/* Correlations of each position p of `a` with positions of `b`, which is 2^level times smaller. The
 * centre is (p + flow_factor flow(p)) / 2^level. Offsets are up to `radius`, columns first, the
 * offset of rows changing fastest. A correlation is the scalar product over the channels times
 * `factor`; bilinear, zero outside. */
void weft_plane_correlate(weft_plane a, weft_plane b, weft_plane flow, double flow_factor,
                          int level, int radius, float factor, weft_plane to);

#endif
