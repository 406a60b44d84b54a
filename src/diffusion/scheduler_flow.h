#ifndef WEFT_DIFFUSION_SCHEDULER_FLOW_H
#define WEFT_DIFFUSION_SCHEDULER_FLOW_H

#include "diffusion/scheduler.h"

weft_status weft_check_flow(const weft_scheduler *s, const char *where);
weft_status weft_check_edm(const weft_scheduler *s, const char *where);
weft_status weft_lay_flow(const weft_scheduler *s, const weft_timestep_request *request,
                          weft_solver_step *step);
weft_status weft_lay_edm(const weft_scheduler *s, const weft_timestep_request *request,
                         weft_solver_step *step);
/* HeliosScheduler and HeliosDMDScheduler. */
weft_status weft_check_helios(const weft_scheduler *s, const char *where);
weft_status weft_lay_helios(const weft_scheduler *s, const weft_timestep_request *request,
                            weft_solver_step *step);
/* RFlowScheduler: levels are even from 1 to 1 / steps before the shift. */
weft_status weft_lay_rflow(const weft_scheduler *s, const weft_timestep_request *request,
                           weft_solver_step *step);
/* Fills steps with the levels sigma[steps + 1]; times are proportional to the levels. */
void weft_chain_flow(const weft_scheduler *s, int64_t steps, const double *sigma,
                     weft_solver_step *step);

#endif
