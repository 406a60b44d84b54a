/* Noise levels of the scheduler classes; used by scheduler.c only. scheduler_flow.c has straight
 * and EDM paths, scheduler_vp.c has variance-preserving paths. */
#ifndef WEFT_DIFFUSION_SCHEDULER_LEVELS_H
#define WEFT_DIFFUSION_SCHEDULER_LEVELS_H

#include "diffusion/scheduler.h"

#endif
