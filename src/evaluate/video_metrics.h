/* Scores of one video without another video to compare with, as VBench defines them (Huang et al.
 * 2024). 1 is the best score. Frames are added in order. */
#ifndef WEFT_EVALUATE_VIDEO_METRICS_H
#define WEFT_EVALUATE_VIDEO_METRICS_H

#include "base/status.h"
#include "evaluate/frame_interpolation.h"

#include <stdint.h>

/* Temporal flickering: 1 - the mean absolute difference of consecutive frames / 255. VBench uses
 * this score for prompts of scenes that do not move. */
typedef struct weft_flicker {
    uint8_t *last;  /* the last frame, owned; NULL: none */
    int64_t values; /* of a frame; all frames have the same number */
    double sum;     /* mean absolute differences */
    int64_t pairs;
} weft_flicker;
weft_status weft_flicker_add(weft_flicker *flicker, const uint8_t *rgb, int64_t values);
/* Returns NAN for fewer than two frames. */
double weft_flicker_score(const weft_flicker *flicker);
void weft_flicker_free(weft_flicker *flicker);

/* Consistency: the mean of two cosines, each at least 0: of the features of each frame with the
 * features of the frame before and of the first frame. With features of DINO it is VBench's
 * subject consistency, with features of CLIP its background consistency. */
typedef struct weft_consistency {
    float *first, *last; /* unit vectors, owned; NULL: none */
    int64_t width, frames;
    double sum;
} weft_consistency;
/* `unit` has length 1 (weft_unit_vector). */
weft_status weft_consistency_add(weft_consistency *consistency, const float *unit, int64_t width);
/* Returns NAN for fewer than two frames. */
double weft_consistency_score(const weft_consistency *consistency);
void weft_consistency_free(weft_consistency *consistency);

/* Motion smoothness: 1 - the mean absolute difference / 255 of frames of odd number, counted from
 * 0. Each is compared with the frame that AMT computes from its two neighbours. */
typedef struct weft_smoothness {
    uint8_t *even, *odd, *middle; /* frames, owned; NULL: none */
    int64_t frames;
    double sum;
    int64_t compared;
} weft_smoothness;
/* Frames of less than WEFT_INTERPOLATION_LEAST pixels are not compared. */
weft_status weft_smoothness_add(weft_smoothness *motion, weft_frame_interpolation *network,
                                const uint8_t *rgb, int64_t height, int64_t width);
/* Returns NAN for fewer than three frames, or if none was compared. */
double weft_smoothness_score(const weft_smoothness *motion);
void weft_smoothness_free(weft_smoothness *motion);

double weft_cosine(const float *a, const float *b, int64_t width); /* of unit vectors */
/* Scales a vector to length 1. A vector that is zero or not finite is an error. */
weft_status weft_unit_vector(const float *from, int64_t width, float *to);

#endif
