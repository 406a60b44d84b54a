/* Groups of devices and the samples that each takes: how policies decide, before a plan is laid
 * out (plan/cascade/policy.h). Groups are contiguous on the devices; devices after the last group
 * stay idle. */
#ifndef WEFT_PLAN_GROUPING_H
#define WEFT_PLAN_GROUPING_H

#include "plan/cascade/policy.h"

typedef struct weft_grouping {
    int64_t groups;
    int64_t *width; /* [groups] */
    int32_t *of;    /* [samples] group */
    int32_t *order; /* [samples] in which the groups take them */
    double makespan;
} weft_grouping;

/* Room for `groups` groups. Its makespan is infinite until it is filled. */
weft_status weft_grouping_create(const weft_policy_request *request, int64_t groups,
                                 weft_arena *arena, weft_grouping *out);
/* Seconds of every sample on a group of `width`; INFINITY: the sample does not fit there. */
void weft_grouping_seconds(const weft_policy_request *request, int64_t width, double *seconds);
/* Device-seconds of every sample on its narrowest options, whether they fit or not. */
void weft_grouping_work(const weft_policy_request *request, double *work);
/* Samples by falling key; equal ones keep their order. */
void weft_grouping_sort(const double *key, int64_t count, int32_t *order);
/* The best equal groups on at most all devices, dealt by a rule. `out` stays empty (NULL width)
 * where the rule takes no width. */
weft_status weft_grouping_equal(weft_policy policy, const weft_policy_request *request,
                                weft_arena *arena, weft_grouping *out);
/* FlexSP: plan/cascade/flexsp.c. */
weft_status weft_grouping_flexsp(const weft_policy_request *request, weft_arena *arena,
                                 weft_grouping *out);

#endif
