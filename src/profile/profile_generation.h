#ifndef WEFT_PROFILE_PROFILE_GENERATION_H
#define WEFT_PROFILE_PROFILE_GENERATION_H

#include "cli/options/verb.h"
#include "profile/profile_work.h"

/* Profiles --model: the generation programs in every layout of the ranks, or in the layout of
 * --parallel. Collective. */
weft_status weft_profile_generation(weft_profiling *p, const weft_args *args, double seconds);

#endif
