/* EDM (Karras et al. 2022): adds noise of standard deviation sigma and scales the model's input to
 * deviation 1.
 *
 *   x(sigma) = data + sigma noise,       S = sigma^2 + sigma_data^2
 *   denoised = sigma_data^2/S x + sigma sigma_data/sqrt(S) model(x/sqrt(S), ln(sigma)/4)
 *
 * With the paper's loss weight, S / (sigma sigma_data)^2, the target of the model's output is
 * (sigma/sigma_data data - sigma_data noise) / sqrt(S), with weight 1 for each element. */
#ifndef WEFT_DIFFUSION_EDM_H
#define WEFT_DIFFUSION_EDM_H

#include "base/config.h"

typedef struct weft_noise_process weft_noise_process;

typedef struct weft_edm_config {
    double p_mean, p_std;        /* mean and deviation of the normal ln(sigma) in training */
    double sigma_data;           /* deviation to which the latents are scaled */
    double sigma_min, sigma_max; /* noise levels of sampling */
    double rho;                  /* 1: even spacing; larger: denser at small sigma */
} weft_edm_config;
extern const weft_section weft_edm_section;

extern const weft_noise_process weft_noise_process_edm;

#endif
