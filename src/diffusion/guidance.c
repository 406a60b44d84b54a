#include "diffusion/guidance.h"

#include <stddef.h>

static void combine_cfg(float *conditional, const float *unconditional, double scale, int64_t count)
{
    const float s = (float)scale;
    for (int64_t i = 0; i < count; i++)
        conditional[i] = unconditional[i] + s * (conditional[i] - unconditional[i]);
}

const weft_guidance weft_guidance_none = {"none", 1, NULL};
const weft_guidance weft_guidance_cfg = {"cfg", 2, combine_cfg};

const weft_guidance *weft_guidance_of(double scale)
{
    return scale == 1 ? &weft_guidance_none : &weft_guidance_cfg;
}
