/* Guidance: combines the predictions with and without a prompt into one. */
#ifndef WEFT_DIFFUSION_GUIDANCE_H
#define WEFT_DIFFUSION_GUIDANCE_H

#include <stdbool.h>
#include <stdint.h>

/* A prediction by a weakened model. Guidance adds weight (conditional - prediction). */
typedef struct weft_guidance_pass {
    const float *prediction; /* [count] of the samples */
    double weight;
} weft_guidance_pass;

enum { WEFT_GUIDANCE_PASSES = 2 };

/* Inputs of the guidance rows; each row reads its own members. */
typedef struct weft_guidance_params {
    double scale;
    /* low_scale replaces scale at times (0..1) below boundary. boundary 0: not used */
    double low_scale, boundary;
    double rescale; /* share that is brought to the deviation of `conditional` */
    int64_t each;   /* floats per sample; 0 (default): count */
    /* cfg_norm: rows, columns and channels of a frame of latents, and rows and columns of a token.
     * size[0] 0: a token is a sample */
    int64_t size[3], token[2];
    double time;                /* position in the trajectory: 1 at noise, 0 at data */
    double timestep;            /* dynamic_cfg: the model's timestep, not divided by its range */
    int64_t steps;              /* dynamic_cfg: steps of the trajectory */
    double eta, most, momentum; /* apg: share of the parallel part; norm limit; EMA momentum */
    float *average;             /* apg: [count], initially 0; NULL: none */
    bool from_conditional; /* apg, zero_star: the update is added to the conditional prediction */
    /* cfg and rescale, of one sample: weakened predictions; an entry without one is skipped */
    weft_guidance_pass pass[WEFT_GUIDANCE_PASSES];
} weft_guidance_params;

typedef struct weft_guidance {
    const char *name;
    const char *help;
    int rows;         /* batch rows per prompt: 1, or 2 with the unconditional branch */
    bool takes_scale; /* the scale is an input of the model (embedded guidance) */
    /* Combines both branches into `conditional`. NULL: `conditional` is unchanged. */
    void (*combine)(const weft_guidance_params *g, float *conditional, const float *unconditional,
                    int64_t count);
} weft_guidance;

extern const weft_guidance *const weft_guidances[];        /* NULL-terminated */
const weft_guidance *weft_guidance_find(const char *name); /* NULL: none */
/* Returns the present name of a method by an earlier name; NULL: `name` has not changed. */
const char *weft_guidance_renamed(const char *name);
/* Returns the guidance for a scale: cfg, or for scale 1 none, which halves the work. */
const weft_guidance *weft_guidance_of(double scale);
/* Returns the scale at the time g->time, which also selects the expert. */
double weft_guidance_scale_at(const weft_guidance_params *g);

#endif
