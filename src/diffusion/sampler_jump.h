#ifndef WEFT_DIFFUSION_SAMPLER_JUMP_H
#define WEFT_DIFFUSION_SAMPLER_JUMP_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_ddim, weft_sampler_ddpm, weft_sampler_lcm,
    weft_sampler_euler_ancestral;

#endif
