/* EDM (Karras et al. 2022): noise of deviation sigma is added, and the model sees its input scaled
 * to deviation 1.
 *
 *   x(sigma) = data + sigma noise,       S = sigma^2 + sigma_data^2
 *   denoised = sigma_data^2/S x + sigma sigma_data/sqrt(S) model(x/sqrt(S), ln(sigma)/4)
 *
 * With the paper's loss weight, S / (sigma sigma_data)^2, the model's answer is held against
 * (sigma/sigma_data data - sigma_data noise) / sqrt(S), each element with weight 1. */
#ifndef WEFT_DIFFUSION_EDM_H
#define WEFT_DIFFUSION_EDM_H

#include "base/config.h"

typedef struct weft_edm_config {
    double p_mean, p_std;        /* ln(sigma) in training is normal */
    double sigma_data;           /* deviation that the latents are brought to */
    double sigma_min, sigma_max; /* noise levels of sampling */
    double rho;                  /* 1: evenly spaced; more: closer where they are small */
} weft_edm_config;
extern const weft_section weft_edm_section;

#endif
