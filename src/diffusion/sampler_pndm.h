#ifndef WEFT_DIFFUSION_SAMPLER_PNDM_H
#define WEFT_DIFFUSION_SAMPLER_PNDM_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_pndm;

#endif
