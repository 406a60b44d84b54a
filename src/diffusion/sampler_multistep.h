#ifndef WEFT_DIFFUSION_SAMPLER_MULTISTEP_H
#define WEFT_DIFFUSION_SAMPLER_MULTISTEP_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_dpmpp, weft_sampler_cogvideox_dpm;

#endif
