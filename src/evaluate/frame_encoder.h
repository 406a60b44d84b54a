/* Features of a video's frames: an image encoder with its preprocessing. */
#ifndef WEFT_EVALUATE_FRAME_ENCODER_H
#define WEFT_EVALUATE_FRAME_ENCODER_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_frame_encoder weft_frame_encoder;

/* Opens the image encoder of a model folder. Its preprocessor_config.json has sizes and colours;
 * without the file they are CLIP's. */
weft_status weft_frame_encoder_open(const char *folder, weft_frame_encoder **encoder);
void weft_frame_encoder_close(weft_frame_encoder *encoder); /* accepts NULL */
/* Encodes the central square of a frame, u8 [height, width, 3]. *unit has length 1 and is valid
 * until the next call. */
weft_status weft_frame_encoder_run(weft_frame_encoder *encoder, const uint8_t *rgb, int64_t width,
                                   int64_t height, const float **unit, int64_t *features);

#endif
