#ifndef WEFT_DIFFUSION_SCHEDULER_TABLE_H
#define WEFT_DIFFUSION_SCHEDULER_TABLE_H

#include "diffusion/level.h"
#include "diffusion/scheduler.h"

/* Allocates the table: alpha^2 at each of the scheduler's discrete times; free with weft_free. */
weft_status weft_noise_table_new(const weft_scheduler *s, double **bar);
/* Returns the i-th of `steps` times out of `times` discrete times, from the highest. The spacing is
 * even between both ends, or in whole steps from the lowest or from the highest time. `more`: the
 * multistep classes divide into one more step and drop the last. */
int64_t weft_noise_table_time(const weft_scheduler *s, int64_t times, int64_t steps, int64_t i,
                              bool more);
/* Returns sigma/alpha of a discrete time, and its logarithm. */
double weft_noise_table_ratio(const double *bar, int64_t time);
double weft_noise_table_log_ratio(const double *bar, int64_t time);
/* Returns the time, between discrete times, with the given sigma/alpha. */
double weft_noise_table_time_of(const double *bar, int64_t times, double ratio);
/* Returns the level in the middle of a and b, in ln(alpha / sigma). */
weft_noise_level weft_noise_table_middle(const weft_scheduler *s, const double *bar,
                                         const weft_noise_level *a, const weft_noise_level *b);
/* WEFT_E_ARG: the request has levels, or more steps than `times`. */
weft_status weft_noise_table_check(const weft_scheduler *s, const weft_timestep_request *request,
                                   int64_t times);
/* Returns the error for a time that the table does not have. */
weft_status weft_noise_table_beyond(const weft_scheduler *s, int64_t time);

#endif
