#ifndef WEFT_DIFFUSION_SCHEDULER_VP_H
#define WEFT_DIFFUSION_SCHEDULER_VP_H

#include "diffusion/scheduler.h"

weft_status weft_check_multistep(const weft_scheduler *s, const char *where);
weft_status weft_check_singlestep(const weft_scheduler *s, const char *where);
weft_status weft_check_pndm(const weft_scheduler *s, const char *where);
weft_status weft_check_discrete(const weft_scheduler *s, const char *where);
weft_status weft_lay_multistep(const weft_scheduler *s, const weft_timestep_request *request,
                               weft_solver_step *step);
weft_status weft_lay_discrete(const weft_scheduler *s, const weft_timestep_request *request,
                              weft_solver_step *step);
weft_status weft_lay_pndm(const weft_scheduler *s, const weft_timestep_request *request,
                          weft_solver_step *step);
weft_status weft_lay_chained(const weft_scheduler *s, const weft_timestep_request *request,
                             weft_solver_step *step);
weft_status weft_lay_lcm(const weft_scheduler *s, const weft_timestep_request *request,
                         weft_solver_step *step);

#endif
