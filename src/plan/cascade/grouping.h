/* Groups of devices and their samples: the decision of a policy, before it becomes a placement
 * (plan/cascade/policy.h). Groups are contiguous on the devices. Devices after the last group stay
 * idle. */
#ifndef WEFT_PLAN_GROUPING_H
#define WEFT_PLAN_GROUPING_H

#include "plan/cascade/policy.h"

typedef struct weft_grouping {
    int64_t groups;
    int64_t *width; /* [groups] */
    int32_t *of;    /* [samples] group of a sample */
    int32_t *order; /* [samples] order in which groups run samples */
    double makespan;
} weft_grouping;

#endif
