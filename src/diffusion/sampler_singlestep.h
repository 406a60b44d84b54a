#ifndef WEFT_DIFFUSION_SAMPLER_SINGLESTEP_H
#define WEFT_DIFFUSION_SAMPLER_SINGLESTEP_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_dpm_singlestep;

#endif
