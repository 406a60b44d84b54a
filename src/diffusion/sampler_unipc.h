#ifndef WEFT_DIFFUSION_SAMPLER_UNIPC_H
#define WEFT_DIFFUSION_SAMPLER_UNIPC_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_unipc;

#endif
