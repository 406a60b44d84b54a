#ifndef WEFT_TRAIN_CASCADE_PLANNING_SEARCH_H
#define WEFT_TRAIN_CASCADE_PLANNING_SEARCH_H

#include "train/cascade/cascade_planner_internal.h"

/* Returns the request of a job to the policies. The list is borrowed. */
weft_policy_request weft_planning_request(const weft_cascade_planner *planner,
                                          const weft_planning_job *job);
/* Runs the rounds of a search and publishes each better plan in job->found, under the lock. The
 * memory of the plans is in `arena`. `hasty`: stops after the first plan. */
weft_status weft_planning_search(weft_cascade_planner *planner, weft_planning_job *job,
                                 weft_arena *arena, bool hasty);

#endif
