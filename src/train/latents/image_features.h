/* Features of images by a frozen image encoder, for the latent cache: tokens of the first frames of
 * clips (control.image_encoder), or features of whole images (identity.image_encoder). */
#ifndef WEFT_TRAIN_LATENTS_IMAGE_FEATURES_H
#define WEFT_TRAIN_LATENTS_IMAGE_FEATURES_H

#include "data/dataset.h"
#include "generate/conditioning/image_encoder.h"
#include "train/graph/objective.h"

/* Zero-initialised: no encoder, so all functions do nothing. */
typedef struct weft_image_features {
    weft_image_encoder encoder;
    weft_shape made; /* (1,tokens,width); rank 0: no encoder */
    float *tokens;   /* of the last image; valid until the next one */
    bool whole;      /* the image in its own size; otherwise as cropped for the clip */
    weft_part_bytes bytes;
} weft_image_features;

/* Whether the denoiser's preprocessing of first frames does not round colours to 8 bits. */
bool weft_image_features_unrounded(const weft_run *run, const weft_run_models *models);
/* Compiles the encoder of run->data.image_encoder, with the preprocessing of
 * weft_clip_encoder_processor. Reserves no memory. */
weft_status weft_image_features_plan(const weft_run *run, const weft_run_models *models,
                                     const weft_backend *backend, weft_image_features *features);
/* Bytes that the encoder reserves with its weights. */
int64_t weft_image_features_bytes(const weft_image_features *features);
/* Encodes a sample's image into features->tokens: the file of the sample, or `frame`, of the size
 * [height, width, 3] in [-1,1]. The first call reads the weights. */
weft_status weft_image_features_encode(weft_image_features *features, const weft_dataset *dataset,
                                       const weft_sample *sample, const float *frame,
                                       int64_t height, int64_t width);
void weft_image_features_free(weft_image_features *features);

#endif
