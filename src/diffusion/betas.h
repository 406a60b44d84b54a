/* Table of the variance-preserving processes: alpha^2 at each discrete time of training. */
#ifndef WEFT_DIFFUSION_BETAS_H
#define WEFT_DIFFUSION_BETAS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum weft_betas {
    WEFT_BETAS_LINEAR,        /* beta is linear from start to end */
    WEFT_BETAS_SCALED_LINEAR, /* sqrt(beta) is linear */
    WEFT_BETAS_COSINE,        /* alpha_bar = cos^2 (Nichol, Dhariwal 2021) */
    WEFT_BETAS_SIGMOID,       /* beta follows a sigmoid from start to end */
    WEFT_BETAS_LAPLACE,       /* log SNR follows the quantiles of a Laplace distribution */
} weft_betas;
extern const char *const weft_betas_names[]; /* names in scheduler_config.json; NULL-terminated */

enum { WEFT_TRAINED_BETAS = 1000 };

typedef struct weft_betas_config {
    int64_t times; /* number of discrete times, usually 1000 */
    double start, end;
    int schedule;     /* weft_betas */
    bool zero_snr;    /* rescales the table so that the last time has no data */
    bool direct;      /* zero_snr as in CogVideoX: on alpha^2 itself, and in f64 */
    double snr_scale; /* CogVideoX: divisor of the SNR; 1: unchanged */
    double floor;     /* alpha^2 of the last time after zero_snr */
    bool listed;      /* betas are `trained`, one per time, in place of a schedule */
    float trained[WEFT_TRAINED_BETAS];
} weft_betas_config;

/* Fills alpha_bar[times] and beta[times] (may be NULL). Values are rounded to f32 wherever the
 * reference computes its table in f32. */
void weft_betas_table(const weft_betas_config *config, double *alpha_bar, double *beta);

#endif
