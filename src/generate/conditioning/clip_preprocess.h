/* Pictures as CLIP's processor makes them, for what encodes them alone or beside a text. */
#ifndef WEFT_GENERATE_CLIP_PICTURE_H
#define WEFT_GENERATE_CLIP_PICTURE_H

#include "generate/pictures.h"

/* A picture's shorter side becomes `side`, and the middle is cut out, a square of `crop`. */
typedef struct weft_clip_processor {
    int64_t side, crop;
    double mean[3], deviation[3];
} weft_clip_processor;

/* From image_processor/preprocessor_config.json in a model's folder, if it is there; for an encoder
 * that takes pictures of side `side`. */
weft_status weft_clip_processor_read(const char *folder, int64_t side, weft_clip_processor *p);
/* Into to[crop, crop, 3]: the picture in a file, a frame of a canvas in [-1,1], as it would be read
 * from a picture of it, and a black one. */
weft_status weft_clip_picture_file(const weft_clip_processor *p, const char *path, float *to);
weft_status weft_clip_picture_frame(const weft_clip_processor *p, const weft_canvas *size,
                                    const float *frame, float *to);
void weft_clip_picture_black(const weft_clip_processor *p, float *to);
/* That reading a file takes beside it. */
int64_t weft_clip_picture_bytes(const weft_clip_processor *p);

#endif
