#ifndef WEFT_DIFFUSION_SAMPLER_RES_H
#define WEFT_DIFFUSION_SAMPLER_RES_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_res_2ab, weft_sampler_res_2mid;

#endif
