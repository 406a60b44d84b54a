/* Identity conditioning: tokens of reference images (WeftIdentityEncoder), in addition to the text
 * tokens. The encoder reads latents of the images, or features of CLIP, which is in its folder. */
#ifndef WEFT_GENERATE_CONDITIONING_IDENTITY_H
#define WEFT_GENERATE_CONDITIONING_IDENTITY_H

#include "generate/conditioning/visual_condition.h"

typedef struct weft_identity_inputs {
    const char *const *image; /* [images] reference images, in the order of their tokens */
    int images;               /* 0: none */
    /* folder of the encoder; NULL: "identity" in the model's folder, if it exists */
    const char *module;
    double scale; /* scale of the tokens: 0 as without an image, 1 as trained */
} weft_identity_inputs;

typedef struct weft_identity_condition {
    /* Shape of the denoiser's identity input, the tokens of the most images of the encoder; 0: the
     * denoiser has none */
    int64_t tokens, width;
    float *tokens_data; /* (tokens, width), scaled; zeros after the images; NULL: zeros */
    char *folder;       /* folder of the encoder; NULL: none */
    struct weft_identity_condition_workspace *work;
} weft_identity_condition;

/* Reads the encoder's config, checks that the denoiser takes its tokens, and compiles the programs.
 * Reserves no large memory. `fit` is a weft_fit. */
weft_status weft_identity_condition_open(const weft_identity_inputs *files,
                                         const weft_visual_condition_setup *setup, int fit,
                                         weft_identity_condition *identity);
/* Temporary bytes needed while the images are read. */
int64_t weft_identity_condition_workspace_bytes(const weft_identity_condition *identity);
/* Encodes the images and releases the encoders. */
weft_status weft_identity_condition_read(weft_identity_condition *identity);
void weft_identity_condition_free(weft_identity_condition *identity);

#endif
