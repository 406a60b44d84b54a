/* The VAE decoder of a generator, and the one of its previews (generator_preview.h). */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_DECODER_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_DECODER_H

#include "generate/generator/generator.h"
#include "latent/vae_chunks.h"

/* Lives as long as the generator. Zero-initialise; close with weft_generator_decoder_close. */
typedef struct weft_generator_decoder {
    weft_vae *vae;                    /* NULL: none */
    struct weft_sound_decoder *sound; /* NULL: the model has no sound */
    bool tile_set;                    /* options.tile was set */
    weft_vae *preview; /* decodes one latent frame for previews, on rank 0 only; NULL: none */
    float *seen;       /* (batch, frame) latents for the preview, and one work frame */
} weft_generator_decoder;

/* Chooses decoder tiles that fit with the rest of the memory, so that a lack of memory is found
 * before the first step. `without_vae`: bytes of everything else, with the text encoders on every
 * rank, so that all ranks decode in the same tiles. */
weft_status weft_generator_decoder_open(weft_generator *p, int64_t without_vae);
/* After decoding ran out of memory: whether smaller tiles may be tried, and replacing the VAE with
 * one in smaller tiles. */
bool weft_generator_decoder_may_shrink(const weft_generator *p);
weft_status weft_generator_decoder_shrink(weft_generator *p);
void weft_generator_decoder_close(weft_generator_decoder *decoder);

#endif
