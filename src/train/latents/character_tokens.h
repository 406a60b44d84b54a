/* Tokens of first frames by a frozen image encoder (control.image_encoder), for the latent
 * cache. */
#ifndef WEFT_TRAIN_LATENTS_CHARACTER_TOKENS_H
#define WEFT_TRAIN_LATENTS_CHARACTER_TOKENS_H

#include "generate/conditioning/image_encoder.h"
#include "train/graph/objective.h"

/* Zero-initialised: no encoder, so all functions do nothing. */
typedef struct weft_character_tokens {
    weft_image_encoder encoder;
    weft_shape made; /* (1,tokens,width); rank 0: no encoder */
    float *tokens;   /* of the last frame; valid until the next one */
} weft_character_tokens;

/* Compiles the encoder of run->data.image_encoder. The folder around it has the preprocessing
 * (image_processor/preprocessor_config.json). Reserves no memory. */
weft_status weft_character_tokens_plan(const weft_run *run, const weft_run_models *models,
                                       const weft_backend *backend, weft_character_tokens *tokens);
/* Bytes that the encoder reserves with its weights. */
int64_t weft_character_tokens_bytes(const weft_character_tokens *tokens);
/* Encodes a frame [height, width, 3] in [-1,1] into tokens->tokens. The first call reads the
 * weights. */
weft_status weft_character_tokens_encode(weft_character_tokens *tokens, const float *frame,
                                         int64_t height, int64_t width);
void weft_character_tokens_free(weft_character_tokens *tokens);

#endif
