/* Facts about a WeftIdentityEncoder. */
#ifndef WEFT_MODEL_ENCODERS_IDENTITY_ENCODER_H
#define WEFT_MODEL_ENCODERS_IDENTITY_ENCODER_H

#include "model/model.h"

enum { WEFT_IDENTITY_MOST_IMAGES = 16 };
/* Folder of the image encoder in the folder of the identity encoder. */
#define WEFT_IDENTITY_IMAGE_ENCODER "image_encoder"

/* Features of an image that the encoder reads. */
typedef enum weft_identity_features {
    WEFT_IDENTITY_LATENTS,   /* the autoencoder's latents */
    WEFT_IDENTITY_PATCHES,   /* an image encoder's second-to-last hidden states (WEFT_PORT_IMAGE) */
    WEFT_IDENTITY_EMBEDDING, /* an image encoder's vector of the image (WEFT_PORT_POOLED) */
} weft_identity_features;

weft_identity_features weft_identity_encoder_features(const weft_model *model);
/* Maximum images of a sample. */
int64_t weft_identity_encoder_images(const weft_model *model);

#endif
