#ifndef WEFT_DIFFUSION_SCHEDULER_SPACE_H
#define WEFT_DIFFUSION_SCHEDULER_SPACE_H

#include "diffusion/level.h"
#include "diffusion/scheduler.h"

/* Returns the level at alpha and sigma on the scheduler's path. Sets the time for EDM only. */
weft_noise_level weft_scheduler_level(const weft_scheduler *s, double alpha, double sigma);
/* Shifts a level of the straight path; for mu see weft_timestep_request. */
double weft_scheduler_shift(const weft_scheduler *s, double mu, double sigma);

/* Returns the level of the scheduler's path at sigma/alpha = ratio; `time`: input of the model. */
weft_noise_level weft_noise_level_flow(const weft_scheduler *s, double sigma, double time);
weft_noise_level weft_noise_level_vp(const weft_scheduler *s, double alpha, double sigma,
                                     double time);
weft_noise_level weft_noise_level_ve(const weft_scheduler *s, double sigma, double time);
weft_noise_level weft_noise_level_edm(const weft_scheduler *s, double sigma);
/* Returns true for the classes of DPM-Solver, whose levels differ slightly from UniPC's. */
bool weft_scheduler_is_dpm(const weft_scheduler *s);
/* Fills sigma[count] from `high` down to `low`. */
void weft_space_karras(double high, double low, double rho, int64_t count, double *sigma);
void weft_space_exponential(double high, double low, int64_t count, double *sigma);
void weft_space_beta(double high, double low, int64_t count, double *sigma);
/* Fills sigma with the spacing (Karras, exponential or beta) that the scheduler's switches select.
 * False: no switch is on. */
bool weft_space(const weft_scheduler *s, double high, double low, int64_t count, double *sigma);
/* Shifts and stretches the levels so that the last one is s->terminal. A last level of 1, as with
 * one step, is an error: no stretch moves it. */
weft_status weft_stretch_sigmas(const weft_scheduler *s, int64_t count, double *sigma);

#endif
