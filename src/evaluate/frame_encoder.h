/* Features of a video's frames: an image encoder with its preprocessing. */
#ifndef WEFT_EVALUATE_FRAME_ENCODER_H
#define WEFT_EVALUATE_FRAME_ENCODER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_frame_encoder weft_frame_encoder;

/* Preprocessing of a frame. The last two are VBench's. They resize the shorter side to the side of
 * the encoder's images without a filter, and do not round. */
typedef enum weft_frame_form {
    WEFT_FRAME_PROCESSED, /* of the model's preprocessor_config.json; without the file CLIP's */
    WEFT_FRAME_CENTRE,    /* bicubic, then the central square; for CLIP */
    WEFT_FRAME_WHOLE,     /* bilinear, the complete frame; for DINO */
} weft_frame_form;

/* Opens the image encoder of a model folder. Its preprocessor_config.json has mean and deviation of
 * colours; without the file they are CLIP's, or ImageNet's for `whole` frames. */
weft_status weft_frame_encoder_open(const char *folder, bool whole, weft_frame_encoder **encoder);
void weft_frame_encoder_close(weft_frame_encoder *encoder); /* accepts NULL */
/* Encodes a frame, u8 [height, width, 3]. *unit has length 1 and is valid until the next call.
 * WEFT_FRAME_WHOLE needs an encoder opened as `whole`. */
weft_status weft_frame_encoder_run(weft_frame_encoder *encoder, weft_frame_form form,
                                   const uint8_t *rgb, int64_t width, int64_t height,
                                   const float **unit, int64_t *features);

#endif
