/* CLIP's image preprocessing, which other image encoders have with other numbers. */
#ifndef WEFT_VIDEO_CLIP_PROCESSOR_H
#define WEFT_VIDEO_CLIP_PROCESSOR_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Resizes the shorter side to `side` pixels, then crops the central square of `crop` pixels. With
 * `stretched` both sides are resized to `side` pixels, which is `crop`. Colours in [0, 1] are
 * shifted by `mean` and divided by `deviation`. */
typedef struct weft_clip_processor {
    int64_t side, crop;
    double mean[3], deviation[3];
    bool stretched;
    bool bilinear;  /* the filter; otherwise bicubic */
    bool unrounded; /* resized colours are not rounded to 8 bits: for weft_clip_processor_run_f32 */
} weft_clip_processor;

/* Reads a preprocessor_config.json if the file exists. The defaults are CLIP's, for an encoder of
 * images of `side` pixels. */
weft_status weft_clip_processor_read(const char *path, int64_t side, weft_clip_processor *p);
/* Reads "image_mean" and "image_std" of a preprocessor_config.json. Lists that are absent or null
 * leave the values as they are. */
weft_status weft_clip_processor_colours(const json_t *json, const char *path, double mean[3],
                                        double deviation[3]);
/* Fills to[crop, crop, 3] from an image, u8 [height, width, 3]. */
weft_status weft_clip_processor_run(const weft_clip_processor *p, const uint8_t *rgb, int64_t width,
                                    int64_t height, float *to);
/* Fills to[crop, crop, 3] from colours in [0,1], [height, width, 3]. */
weft_status weft_clip_processor_run_f32(const weft_clip_processor *p, const float *rgb,
                                        int64_t width, int64_t height, float *to);

#endif
