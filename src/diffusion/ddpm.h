/* Variance-preserving diffusion over discrete times (Ho et al. 2020):
 *
 *   x(t) = alpha(t) data + sigma(t) noise,   alpha^2 + sigma^2 = 1,   t in 0 ... times - 1
 *
 * The model takes t and predicts noise, v = alpha noise - sigma data, or data. */
#ifndef WEFT_DIFFUSION_DDPM_H
#define WEFT_DIFFUSION_DDPM_H

#include "base/config.h"
#include "diffusion/betas.h"

typedef struct weft_noise_process weft_noise_process;

typedef enum weft_ddpm_prediction {
    WEFT_DDPM_NOISE,
    WEFT_DDPM_V,
    WEFT_DDPM_DATA
} weft_ddpm_prediction;

typedef struct weft_ddpm_config {
    int prediction; /* weft_ddpm_prediction */
    int betas;      /* weft_betas */
    double beta_start, beta_end;
    int64_t times;
    bool zero_snr;    /* the last time has no data */
    double snr_shift; /* divisor of the SNR (CogVideoX) */
    double min_snr;   /* gamma of the loss weight (Hang et al. 2023); 0: weight 1 at every time */
} weft_ddpm_config;
extern const weft_section weft_ddpm_section;

weft_betas_config weft_ddpm_betas(const weft_ddpm_config *config);
/* Returns the min-SNR weight of the squared error of the prediction at the SNR `snr`. */
double weft_ddpm_weight(int prediction, double gamma, double snr);

extern const weft_noise_process weft_noise_process_ddpm;

#endif
