/* The variance-preserving processes' table: alpha^2 at each of the discrete times of training. */
#ifndef WEFT_DIFFUSION_BETAS_H
#define WEFT_DIFFUSION_BETAS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_betas {
    WEFT_BETAS_LINEAR,        /* beta from start to end */
    WEFT_BETAS_SCALED_LINEAR, /* its root does */
    WEFT_BETAS_COSINE,        /* alpha_bar = cos^2 (Nichol, Dhariwal 2021) */
    WEFT_BETAS_SIGMOID,       /* a sigmoid's flank from start to end */
    WEFT_BETAS_LAPLACE,       /* log SNR as a Laplace distribution's quantiles */
} weft_betas;
extern const char *const weft_betas_names[]; /* as in scheduler_config.json; NULL-terminated */

typedef struct weft_betas_config {
    int64_t times; /* 1000 */
    double start, end;
    int schedule;     /* weft_betas */
    bool zero_snr;    /* moved and stretched so that nothing of the data is left at the last time */
    bool direct;      /* the way CogVideoX does that: on alpha^2 itself, and in f64 */
    double snr_scale; /* CogVideoX: SNR divided by this; 1: as it is */
    double floor;     /* alpha^2 of the last time after zero_snr */
} weft_betas_config;

/* alpha_bar[times]. Rounded to f32 where the reference's table is; so is what comes of it. beta may
 * be NULL. */
void weft_betas_table(const weft_betas_config *config, double *alpha_bar, double *beta);

#endif
