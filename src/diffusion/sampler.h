/* Samplers: from noise to data over a list of solver steps, with the model as a callback. A sampler
 * is a row. It reads only noise levels (alpha, sigma) and predictions, so every sampler works with
 * every process and model. */
#ifndef WEFT_DIFFUSION_SAMPLER_H
#define WEFT_DIFFUSION_SAMPLER_H

#include "base/status.h"
#include "diffusion/level.h"

#include <stdint.h>

typedef enum weft_sample_clamp {
    WEFT_SAMPLE_CLAMP_NONE,
    WEFT_SAMPLE_CLAMP_RANGE,
    WEFT_SAMPLE_CLAMP_QUANTILE
} weft_sample_clamp;
typedef enum weft_variance { WEFT_VARIANCE_SMALL, WEFT_VARIANCE_LARGE } weft_variance;
typedef enum weft_solver_variant {
    WEFT_SOLVER_MIDPOINT,
    WEFT_SOLVER_HEUN,
    WEFT_SOLVER_BH1,
    WEFT_SOLVER_BH2
} weft_solver_variant;

enum { WEFT_SOLVER_ORDER = 6, WEFT_SOLVER_UNCORRECTED = 64 };

/* Settings of the rows; each row reads its own members. */
typedef struct weft_solver {
    int64_t order;         /* multistep: number of past predictions kept and used */
    int form;              /* weft_solver_variant */
    bool of_noise;         /* multistep: extrapolates noise instead of data */
    bool stochastic;       /* fresh noise in every step (SDE) */
    bool lower_at_end;     /* lower_order_final */
    bool euler_at_end;     /* euler_at_final */
    bool ends_at_zero;     /* final_sigmas_type: zero */
    uint64_t uncorrected;  /* UniPC: bit i: no corrector after step i */
    double eta;            /* DDIM: share of DDPM's noise; 0: deterministic */
    bool noise_of_clipped; /* DDIM: recomputes the noise from clipped data */
    int variance;          /* DDPM: weft_variance */
    int clip;              /* weft_sample_clamp of the denoised sample */
    double clip_range;     /* largest magnitude of clipped data */
    /* QUANTILE: data is clipped at this quantile of |data|, from 1 to `most`, and divided by it */
    double quantile, most;
    double time_scale; /* LCM: scale of timesteps in the boundary condition */
    int64_t lms_order; /* LMS: number of past derivatives kept and used */
    bool skips_prk;    /* PNDM: begins with a repeated step instead of three Runge-Kutta steps */
    /* Euler: noise added in each step of levels churn_min to churn_max, 0 (default): none */
    double churn, churn_min, churn_max, churn_noise;
} weft_solver;
extern const weft_solver weft_solver_defaults;

typedef struct weft_sampler_callbacks {
    /* Writes prediction[count] of the model, with guidance, for the input in x and the time of
     * `level`, in step `step`. */
    weft_status_code (*predict)(void *user, int64_t step, const float *x,
                                const weft_noise_level *level, float *prediction);
    /* Writes draw number `draw` of standard normal noise, [count]. NULL: the sampler does not draw
     * noise. */
    weft_status_code (*noise)(void *user, int64_t draw, float *noise);
    /* Called after each step, with `done` of `steps`. An error stops the sampling. NULL: none. */
    weft_status_code (*progress)(void *user, int64_t done, int64_t steps);
    void *user;
} weft_sampler_callbacks;

/* State of the running step. */
typedef struct weft_sampler_state {
    const weft_solver *solver;
    const weft_solver_step *solver_step; /* [steps] */
    int64_t step, steps;
    float *x;            /* [count] */
    int64_t count, each; /* floats of all samples, and of one sample */
    float *history;      /* [row.history(solver)][count] arrays kept from step to step */
    float *scratch;      /* [row.scratch][count] */
    float *sorted;       /* [count] scratch if data is clipped at a quantile */
    int64_t draws;       /* draws of noise so far */
    int64_t order;       /* UniPC: order of the previous step */
    const weft_sampler_callbacks *callbacks;
} weft_sampler_state;

typedef struct weft_sampler {
    const char *name;
    const char *help;
    int (*history)(const weft_solver *); /* arrays of count floats; NULL: none */
    int scratch;
    weft_status_code (*step)(weft_sampler_state *s);
} weft_sampler;

extern const weft_sampler *const weft_samplers[];        /* NULL-terminated */
const weft_sampler *weft_sampler_find(const char *name); /* NULL: none */

/* Position between two steps. Together with x and the first weft_sampler_history_floats() floats of
 * `work`, this is all that the next step reads. Sampling that resumes from copies of all three is
 * bitwise identical to uninterrupted sampling. {0}: before the first step. */
typedef struct weft_sampler_cursor {
    int64_t step, draws, order;
    int64_t end; /* the sampling returns before this step; 0 (default): after all steps */
} weft_sampler_cursor;

/* Samples: x[count] has the noise and receives the sample. `work` has
 * weft_sampler_workspace_floats() floats. The result depends only on the inputs and draws, bitwise.
 * `cursor` is the position to start from, and is updated before each call of `progress`. NULL:
 * starts at the first step. */
weft_status weft_sampler_run(const weft_sampler *sampler, const weft_solver *solver,
                             const weft_solver_step *step, int64_t steps, float *x, int64_t count,
                             int64_t each, float *work, weft_sampler_cursor *cursor,
                             const weft_sampler_callbacks *callbacks);
int64_t weft_sampler_history_floats(const weft_sampler *sampler, const weft_solver *solver,
                                    int64_t count);
int64_t weft_sampler_workspace_floats(const weft_sampler *sampler, const weft_solver *solver,
                                      int64_t count);

/* ---- for the rows --------------------------------------------------------------------------- */

/* Calls the model at x and the level. Writes the denoised sample to data[count], clipped as the
 * solver requires, and before clipping to whole[count] (may be NULL). */
weft_status_code weft_sampler_state_denoise(weft_sampler_state *s, const weft_noise_level *level,
                                            float *data, float *whole);
weft_status_code weft_sampler_state_draw(weft_sampler_state *s, float *noise);
/* out = sum of scale[k] from[k], each element in f64; `out` may be one of the inputs. */
void weft_sampler_state_mix(int64_t count, int terms, const double *scale, const float *const *from,
                            float *out);
/* Returns ln(alpha / sigma): -inf at pure noise, inf at data. */
double weft_noise_level_lambda(const weft_noise_level *level);

extern const weft_sampler weft_sampler_euler, weft_sampler_heun, weft_sampler_consistency,
    weft_sampler_dmd;

#endif
