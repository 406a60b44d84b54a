/* An encoder of images or texts that returns one vector, on weft's engine: CLIP's two encoders, and
 * a vision transformer such as DINO. */
#ifndef WEFT_PROMPT_POOLED_ENCODER_H
#define WEFT_PROMPT_POOLED_ENCODER_H

#include "model/model.h"

typedef struct weft_pooled_encoder weft_pooled_encoder;
/* Opens the encoder of this role (image or text) in a model folder. The folder of a CLIPModel has
 * both. A text encoder needs its tokenizer in the folder. */
weft_status weft_pooled_encoder_open(const char *folder, weft_role role,
                                     weft_pooled_encoder **encoder);
void weft_pooled_encoder_close(weft_pooled_encoder *encoder);         /* accepts NULL */
int64_t weft_pooled_encoder_side(const weft_pooled_encoder *encoder); /* pixels; of the config */
/* Sets the size of the next images, in pixels; the first is side x side. Only vision transformers
 * have other sizes. */
weft_status weft_pooled_encoder_resize(weft_pooled_encoder *encoder, int64_t height, int64_t width);
/* Encodes `image` [height, width, 3], preprocessed. *vector, `*width` floats, is valid until the
 * next call. */
weft_status weft_pooled_encoder_image(weft_pooled_encoder *encoder, const float *image,
                                      const float **vector, int64_t *width);
/* Encodes a text. *cut is the number of tokens beyond the encoder's length, which are dropped. */
weft_status weft_pooled_encoder_text(weft_pooled_encoder *encoder, const char *text,
                                     const float **vector, int64_t *width, int64_t *cut);

#endif
