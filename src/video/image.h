/* Still images: PNG files, contact sheets, resizing, float conversion. */
#ifndef WEFT_VIDEO_IMAGE_H
#define WEFT_VIDEO_IMAGE_H

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* 8-bit RGB PNG from packed u8 [height, width, 3], written atomically. */
weft_status weft_png_write(const char *path, const uint8_t *rgb, int64_t width, int64_t height);
/* Encodes a PNG into memory; *png is heap, free with weft_free. */
weft_status weft_png_encode(const uint8_t *rgb, int64_t width, int64_t height, uint8_t **png,
                            int64_t *bytes);

/* Writes a PNG with texts as iTXt chunks. `tags` is an object of strings; NULL: none. */
weft_status weft_png_write_tagged(const char *path, const uint8_t *rgb, int64_t width,
                                  int64_t height, json_t *tags);
/* Value of an iTXt text; heap. NULL: no such text, or not a PNG. */
char *weft_png_tag(const char *path, const char *key);

/* A contact sheet: one row per video, `columns` frames spread evenly from first to last. */
typedef struct weft_sheet {
    const uint8_t *const *rgb; /* [videos] u8 [frames[i], height, width, 3], borrowed */
    const int64_t *frames;     /* [videos], borrowed */
    int64_t videos, width, height, columns;
    /* a cell has zoom * width x zoom * height pixels; 0: zoom 2 up to 128 columns, else 1 */
    int64_t zoom;
    int64_t gap; /* pixels between cells */
} weft_sheet;
/* *rgb is heap u8 [*height, *width, 3], free with weft_free. */
weft_status weft_sheet_make(const weft_sheet *sheet, uint8_t **rgb, int64_t *width,
                            int64_t *height);
weft_status weft_sheet_write(const weft_sheet *sheet, const char *path);

/* Area average when shrinking, bilinear when growing; u8 [h, w, channels]. */
void weft_image_resize(const uint8_t *from, int64_t from_w, int64_t from_h, int64_t channels,
                       uint8_t *to, int64_t to_w, int64_t to_h);

/* v in [-1, 1] -> round((v + 1) * 127.5), clamped, NaN gives 0; and back: u / 127.5 - 1. */
uint8_t weft_float_to_u8(float v);
/* u8 [T, H, W, 3] from floats [T, H, W, 3], or [3, T, H, W] when channels_first. */
void weft_clip_to_u8(const float *clip, int64_t frames, int64_t height, int64_t width,
                     bool channels_first, uint8_t *rgb);

#endif
