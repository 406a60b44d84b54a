#ifndef WEFT_DIFFUSION_SAMPLER_LMS_H
#define WEFT_DIFFUSION_SAMPLER_LMS_H

#include "diffusion/sampler.h"

extern const weft_sampler weft_sampler_lms;

#endif
