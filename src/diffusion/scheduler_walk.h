/* Inside of weft_scheduler: how the classes lay their levels, one file of them each for straight,
 * variance-preserving and EDM paths. */
#ifndef WEFT_DIFFUSION_SCHEDULER_WALK_H
#define WEFT_DIFFUSION_SCHEDULER_WALK_H

#include "diffusion/scheduler.h"

weft_status weft_check_flow(const weft_scheduler *s, const char *where);
weft_status weft_check_multistep(const weft_scheduler *s, const char *where);
weft_status weft_check_discrete(const weft_scheduler *s, const char *where);
weft_status weft_check_edm(const weft_scheduler *s, const char *where);

weft_status weft_lay_flow(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
weft_status weft_lay_multistep(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
weft_status weft_lay_discrete(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
weft_status weft_lay_chained(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
weft_status weft_lay_lcm(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);
weft_status weft_lay_edm(const weft_scheduler *s, const weft_walk *walk, weft_leg *leg);

/* A level of the scheduler's path at sigma/alpha = ratio; `time` is what the model is told. */
weft_level weft_level_flow(const weft_scheduler *s, double sigma, double time);
weft_level weft_level_vp(const weft_scheduler *s, double alpha, double sigma, double time);
weft_level weft_level_edm(const weft_scheduler *s, double sigma);

/* sigma[count] from `high` down to `low`. */
void weft_space_karras(double high, double low, double rho, int64_t count, double *sigma);
void weft_space_exponential(double high, double low, int64_t count, double *sigma);
void weft_space_beta(double high, double low, int64_t count, double *sigma);
/* By the scheduler's switch among the three; `fallback` where none is on: false. */
bool weft_space(const weft_scheduler *s, double high, double low, int64_t count, double *sigma);

/* Moved and stretched so that the last is s->terminal. */
void weft_stretch_sigmas(const weft_scheduler *s, int64_t count, double *sigma);

#endif
