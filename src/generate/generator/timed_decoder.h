/* A VAE decoder at a timestep. Decoders that are the last denoising step (LTX-Video from 0.9.1 on)
 * are modulated by one, and their latents get the noise of one. */
#ifndef WEFT_GENERATE_GENERATOR_TIMED_DECODER_H
#define WEFT_GENERATE_GENERATOR_TIMED_DECODER_H

#include "latent/vae_chunks.h"

typedef struct weft_decode_time {
    double timestep; /* 0 to 1 */
    double noise;    /* share of noise in the latents */
} weft_decode_time;

/* Zero-initialise; close with weft_timed_decoder_close. */
typedef struct weft_timed_decoder {
    weft_vae *vae;
    weft_store *weights; /* NULL: the VAE has its own */
    char *folder;        /* NULL: none */
} weft_timed_decoder;

/* Opens the decoder of the VAE in `folder` like weft_vae_open_within. At a timestep above 0 the
 * weights are f32 in memory. WEFT_E_ARG: the decoder takes no timestep, and `time` is not zero. */
weft_status weft_timed_decoder_open(const char *folder, const weft_vae_options *options,
                                    int64_t limit, const weft_decode_time *time,
                                    weft_timed_decoder *decoder);
weft_status weft_timed_decoder_bind(weft_timed_decoder *decoder);
void weft_timed_decoder_close(weft_timed_decoder *decoder);
/* Mixes the noise of a video's seed into its latents, not normalised: (1 - noise) x + noise n. */
void weft_decode_time_mix(const weft_decode_time *time, uint64_t seed, int64_t floats, float *x);

#endif
