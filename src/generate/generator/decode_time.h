/* The timestep of decoders that are the last denoising step (LTX-Video from 0.9.1 on), and the
 * noise of that step in their latents. */
#ifndef WEFT_GENERATE_GENERATOR_DECODE_TIME_H
#define WEFT_GENERATE_GENERATOR_DECODE_TIME_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_decode_time {
    double timestep; /* 0 to 1 */
    double noise;    /* share of noise in the latents */
} weft_decode_time;

/* WEFT_E_ARG: the decoder of the VAE in `folder` takes no timestep, and `time` is not zero. */
weft_status weft_decode_time_check(const weft_decode_time *time, const char *folder);
/* Mixes the noise of a video's seed into floats `first` to `end` of its latents x, not normalised:
 * (1 - noise) x + noise n. */
void weft_decode_time_mix(const weft_decode_time *time, uint64_t seed, int64_t first, int64_t end,
                          float *x);

#endif
