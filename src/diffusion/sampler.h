/* Samplers: from noise to data over a list of legs, with a model as a callback. A sampler is a row;
 * it knows levels (alpha, sigma) and answers, and neither process nor model, so that every row goes
 * down every process's levels. */
#ifndef WEFT_DIFFUSION_SAMPLER_H
#define WEFT_DIFFUSION_SAMPLER_H

#include "base/status.h"
#include "diffusion/level.h"

#include <stdint.h>

typedef enum weft_clip { WEFT_CLIP_NONE, WEFT_CLIP_RANGE, WEFT_CLIP_QUANTILE } weft_clip;
typedef enum weft_variance { WEFT_VARIANCE_SMALL, WEFT_VARIANCE_LARGE } weft_variance;
typedef enum weft_solver_form {
    WEFT_FORM_MIDPOINT,
    WEFT_FORM_HEUN,
    WEFT_FORM_BH1,
    WEFT_FORM_BH2
} weft_solver_form;

enum { WEFT_SOLVER_ORDER = 6, WEFT_SOLVER_UNCORRECTED = 64 };

/* The switches of the rows; each reads its own. */
typedef struct weft_solver {
    int64_t order;         /* multistep: past answers used, and as many kept */
    int form;              /* weft_solver_form */
    bool of_noise;         /* multistep: extrapolates noise instead of data */
    bool stochastic;       /* fresh noise in every step (SDE) */
    bool lower_at_end;     /* lower_order_final */
    bool euler_at_end;     /* euler_at_final */
    bool ends_at_zero;     /* final_sigmas_type: zero */
    uint64_t uncorrected;  /* UniPC: bit i: no corrector after step i */
    double eta;            /* DDIM: 1 is DDPM's noise, 0 none */
    bool noise_of_clipped; /* DDIM: noise is taken again from clipped data */
    int variance;          /* DDPM: weft_variance */
    int clip;              /* weft_clip, of what is denoised */
    double clip_range;     /* +- */
    /* QUANTILE: cut at this quantile of |data|, from 1 to `most`, and scaled to 1 */
    double quantile, most;
    double time_scale; /* LCM: of the boundary condition */
} weft_solver;
extern const weft_solver weft_solver_defaults;

typedef struct weft_sampler_callbacks {
    /* answer[count] of the model (guidance already applied) at in x and time of `level`, in step
     * `step`. */
    weft_status_code (*answer)(void *user, int64_t step, const float *x, const weft_level *level,
                               float *answer);
    /* Draw number `draw` of standard normal noise, [count]; may be NULL where no row draws. */
    weft_status_code (*noise)(void *user, int64_t draw, float *noise);
    /* After each step, `done` of `steps`; may be NULL. Anything but WEFT_OK ends the sampling. */
    weft_status_code (*progress)(void *user, int64_t done, int64_t steps);
    void *user;
} weft_sampler_callbacks;

/* The step that runs. */
typedef struct weft_sampling {
    const weft_solver *solver;
    const weft_leg *leg; /* [steps] */
    int64_t step, steps;
    float *x;            /* [count] */
    int64_t count, each; /* floats in all, and of one sample */
    float *history;      /* [row.history(solver)][count]: kept from step to step */
    float *scratch;      /* [row.scratch][count] */
    float *sorted;       /* [count] where data is clipped at a quantile */
    int64_t draws;       /* of noise, until now */
    int64_t order;       /* UniPC: of the step before */
    const weft_sampler_callbacks *callbacks;
} weft_sampling;

typedef struct weft_sampler {
    const char *name;
    const char *help;
    int (*history)(const weft_solver *); /* arrays of count floats; NULL: none */
    int scratch;
    weft_status_code (*step)(weft_sampling *s);
} weft_sampler;

extern const weft_sampler weft_sampler_euler, weft_sampler_heun, weft_sampler_ddim,
    weft_sampler_ddpm, weft_sampler_lcm, weft_sampler_dpmpp, weft_sampler_cogvideox_dpm,
    weft_sampler_unipc, weft_sampler_res_2ab, weft_sampler_res_2mid;
extern const weft_sampler *const weft_samplers[];        /* NULL-terminated */
const weft_sampler *weft_sampler_find(const char *name); /* NULL: none */

/* Where a walk stands between two steps. With x and the first weft_sampler_kept() floats of `work`
 * it is all that the next step reads: a walk that goes on from copies of these has the same bits as
 * one that was never left. {0}: at its beginning. */
typedef struct weft_sampler_place {
    int64_t step, draws, order;
} weft_sampler_place;

/* x[count] holds noise and ends as the sample. `work` has weft_sampler_work() floats. A function of
 * its inputs and draws alone: same inputs, same bits. `place`: where it begins, brought up to date
 * before each call of `progress`; NULL: at the beginning. */
weft_status weft_sampler_run(const weft_sampler *sampler, const weft_solver *solver,
                             const weft_leg *leg, int64_t steps, float *x, int64_t count,
                             int64_t each, float *work, weft_sampler_place *place,
                             const weft_sampler_callbacks *callbacks);
int64_t weft_sampler_kept(const weft_sampler *sampler, const weft_solver *solver, int64_t count);
int64_t weft_sampler_work(const weft_sampler *sampler, const weft_solver *solver, int64_t count);

/* ---- for the rows --------------------------------------------------------------------------- */

/* The model's answer at x and the level, and from it what is denoised, clipped as the solver says,
 * into data[count]. whole[count], unless NULL: before it is clipped. */
weft_status_code weft_sampling_denoise(weft_sampling *s, const weft_level *level, float *data,
                                       float *whole);
weft_status_code weft_sampling_draw(weft_sampling *s, float *noise);
/* out = sum of scale[k] from[k], each element in f64; `out` may be one of them. */
void weft_sampling_mix(int64_t count, int terms, const double *scale, const float *const *from,
                       float *out);
/* ln(alpha / sigma); -inf at pure noise, inf at data. */
double weft_level_lambda(const weft_level *level);

#endif
