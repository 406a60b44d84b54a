/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC'11).
 *
 * A value is a function of (key, stream, index): no state, so it does not depend on the order of
 * calls, on threads, or on how a tensor is sharded. weft_rng is a sequence on top, for searches. */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include <stdint.h>

/* Purposes keep streams of one seed apart. Append only: checkpoints store these values. */
typedef enum weft_rng_purpose {
    WEFT_RNG_INIT = 1,     /* parameter initialisation */
    WEFT_RNG_NOISE = 2,    /* diffusion noise */
    WEFT_RNG_TIMESTEP = 3, /* diffusion time */
    WEFT_RNG_VAE = 4,      /* posterior sample */
    WEFT_RNG_DROP = 5,     /* caption dropout */
    WEFT_RNG_SHUFFLE = 6,  /* data order */
    WEFT_RNG_SAMPLER = 7,  /* noise inside a sampler */
    WEFT_RNG_CROP = 8,     /* data augmentation */
    WEFT_RNG_SYNTH = 9,    /* synthetic footage */
    WEFT_RNG_PLAN = 10,    /* planner searches */
    WEFT_RNG_TEST = 11,
    WEFT_RNG_IDENTITY = 12, /* dropout of identity images */
    WEFT_RNG_DECODER = 13,  /* noise inside an autoencoder's decoder */
    WEFT_RNG_SCORE = 14,    /* distillation: noise and level at which two scores are compared */
    WEFT_RNG_FAKE = 15,     /* distillation: noise and level that train the score of the student */
    WEFT_RNG_GIVEN = 16,    /* noise of given frames, and its share */
    WEFT_RNG_ROLLOUT = 17,  /* distillation: noise inside a video that the student generates */
    WEFT_RNG_STAGE = 18,    /* noise added between sizes of latents */
    WEFT_RNG_CONTROL = 19,  /* dropout of control videos */
    WEFT_RNG_FACE = 20,     /* dropout of faces */
    WEFT_RNG_OVERLAP = 21,  /* samples that begin with given frames */
    WEFT_RNG_DECODED = 22,  /* noise in the latents that a decoder with a timestep gets */
    WEFT_RNG_SECTION = 23,  /* section of a clip that is trained */
} weft_rng_purpose;

/* The raw block: 128-bit counter (hi, lo), 64-bit key. */
void weft_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);

/* Element `index` of the stream (seed, purpose). Uniform in (0, 1), never 0 or 1; the normal is
 * Box-Muller of two uniforms of one block: elements 2i and 2i+1 share block i. */
float weft_random_uniform(uint64_t seed, weft_rng_purpose purpose, uint64_t index);
float weft_random_normal(uint64_t seed, weft_rng_purpose purpose, uint64_t index);

/* Mixes two numbers into a seed (splitmix64), e.g. (run seed, sample id). */
uint64_t weft_seed_mix(uint64_t a, uint64_t b);

typedef struct weft_rng {
    uint64_t seed, next;
    weft_rng_purpose purpose;
} weft_rng;
static inline weft_rng weft_rng_make(uint64_t seed, weft_rng_purpose purpose)
{
    return (weft_rng){.seed = seed, .next = 0, .purpose = purpose};
}
uint32_t weft_rng_u32(weft_rng *rng);
uint64_t weft_rng_below(weft_rng *rng, uint64_t n); /* 0 .. n-1, unbiased; n > 0 */
double weft_rng_f64(weft_rng *rng);                 /* [0, 1) with 53 bits */
double weft_rng_normal(weft_rng *rng);

#endif
