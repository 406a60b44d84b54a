#ifndef WEFT_DIFFUSION_SCHEDULER_VE_H
#define WEFT_DIFFUSION_SCHEDULER_VE_H

#include "diffusion/scheduler.h"

weft_status weft_check_ve(const weft_scheduler *s, const char *where);
weft_status weft_lay_ve(const weft_scheduler *s, const weft_timestep_request *request,
                        weft_solver_step *step);

#endif
