#ifndef WEFT_PLAN_CASCADE_LIST_SCHEDULER_H
#define WEFT_PLAN_CASCADE_LIST_SCHEDULER_H

#include "plan/cascade/cascade.h"

weft_status weft_list_scheduler_create(const weft_cascade_problem *problem,
                                       weft_list_scheduler **out);
void weft_list_scheduler_free(weft_list_scheduler *scheduler);
/* Schedule the options in schedule->option by critical path: the longest path to the end, times
 * bias[c] (NULL: 1). Both return the makespan. weft_list_plain starts at every moment the cascades
 * that fit, in that order, and never waits on purpose. weft_list_insert places the cascades in
 * sequence, each at the earliest time at which it fits, also in gaps before others. */
double weft_list_plain(weft_list_scheduler *scheduler, const double *bias,
                       weft_cascade_schedule *schedule);
double weft_list_insert(weft_list_scheduler *scheduler, const double *bias,
                        weft_cascade_schedule *schedule);

#endif
