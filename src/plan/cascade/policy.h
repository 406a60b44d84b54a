/* Plans one iteration by the rules of other systems. Costs and result have the same form as in
 * weft's own search, so one executor runs all plans and one clock compares them.
 *
 *   static      equal groups; samples are assigned in the order of the iteration (DP x CP)
 *   flexsp      groups of powers of two, chosen for every iteration; the longest sample first, to
 *               the group that finishes it first (FlexSP). Equal groups if they are shorter
 *   knapformer  equal groups ("bags"); samples by falling work, each to the bag with the least work
 *               (KnapFormer). Balances work by tokens, not seconds
 *
 * All policies keep a sample on one group. Its cascades run there in sequence, each on the widest
 * degree that fits the group and the memory. A group runs its samples in sequence. Without a given
 * degree devices may stay idle, so more devices never make a plan longer. With a degree and a
 * number of groups the other devices stay idle. */
#ifndef WEFT_PLAN_POLICY_H
#define WEFT_PLAN_POLICY_H

#include "plan/cascade/cascade.h"

typedef struct weft_grouping weft_grouping;

typedef enum weft_policy {
    WEFT_POLICY_ARACHNE, /* weft's own search: plan/cascade/iteration.h */
    WEFT_POLICY_STATIC,
    WEFT_POLICY_ULYSSES, /* static, with degrees that divide the heads */
    WEFT_POLICY_FLEXSP,
    WEFT_POLICY_KNAPFORMER, /* degrees divide the heads, too */
    WEFT_POLICY_COUNT
} weft_policy;
/* Names in configs, NULL-terminated: "arachne", "static-dp-cp", ... */
extern const char *const weft_policy_names[];

typedef struct weft_policy_request {
    const weft_cascade_list *list; /* cascades after their predecessors */
    const int32_t *sample;         /* [list->count] sample of a cascade, 0 .. samples - 1 */
    int64_t samples;
    /* [samples] for knapformer; NULL: device-seconds of the narrowest options */
    const double *work;
    int64_t devices, heads; /* heads 0: any degree is allowed */
    double memory;          /* bytes per device; 0: no limit */
    int64_t degree;         /* size of equal groups; 0 (default): the best for this iteration */
    /* equal groups with a given degree; 0 (default): as many as cover all devices exactly */
    int64_t groups;
} weft_policy_request;

/* `count` groups of `width` devices. Count 0: as many as cover all devices exactly. */
typedef struct weft_equal_groups {
    int64_t width, count;
} weft_equal_groups;

/* Static layouts: one for all iterations. */
typedef struct weft_static_layout {
    weft_equal_groups groups;
    double seconds; /* sum over iterations; INFINITY: a sample does not fit the memory */
} weft_static_layout;
typedef struct weft_static_layouts {
    weft_policy policy;
    weft_static_layout *item; /* in the arena, by width */
    int64_t count;
} weft_static_layouts;
/* Lists all equal groups that fit on the devices, at most one group per sample, with 0 seconds.
 * Devices may stay idle: the list of fewer devices is a part of the list. `policy`: STATIC or
 * ULYSSES. */
weft_status weft_static_layouts_create(weft_policy policy, const weft_policy_request *request,
                                       weft_arena *arena, weft_static_layouts *out);
/* Adds the seconds of an iteration to every layout. The list's number of samples is the same. */
weft_status weft_static_layouts_add(weft_static_layouts *layouts,
                                    const weft_policy_request *request, weft_arena *arena);
/* Returns the layout with the fewest seconds, of `groups` groups (0: of any number); NULL: none
 * fits the memory in every iteration. */
const weft_static_layout *weft_static_layouts_best(const weft_static_layouts *layouts,
                                                   int64_t groups);

/* Form of every plan: option, devices and times of each cascade. In the caller's arena. */
typedef struct weft_placement {
    int64_t count;   /* cascades of the list */
    int32_t *option; /* [count] option of the cascade in the list */
    double *start, *end;
    /* c's: devices[first[c]] .. devices[first[c + 1] - 1]; the first leads */
    int32_t *first, *devices;
    double makespan, idle; /* idle: share of the device-seconds until the makespan */
    int64_t degree;        /* size of equal groups; 0: sizes differ */
} weft_placement;
/* Creates zeroed arrays in the arena, for `count` cascades on `device_count` devices in all. */
weft_status weft_placement_create(weft_arena *arena, int64_t count, int64_t device_count,
                                  weft_placement *out);

/* Plans by any policy except ARACHNE. WEFT_E_INFEASIBLE: a cascade fits on no group (named, with
 * its bytes), or no degree gives equal groups. */
weft_status weft_policy_place(weft_policy policy, const weft_policy_request *request,
                              weft_arena *arena, weft_placement *out);

/* Returns WEFT_E_INTERNAL, with names, if two cascades overlap on a device, a cascade starts before
 * a predecessor ends, or a cascade exceeds the memory. */
weft_status weft_placement_check(const weft_placement *placement, const weft_cascade_list *list,
                                 int64_t devices, double memory);
/* Converts a schedule and its devices, from weft_assign, to a placement. */
weft_status weft_placement_of(const weft_cascade_problem *problem,
                              const weft_cascade_schedule *schedule, int32_t *first,
                              int32_t *devices, weft_arena *arena, weft_placement *out);

/* Creates an empty grouping for up to `groups` groups. Its makespan is INFINITY. */
weft_status weft_grouping_create(const weft_policy_request *request, int64_t groups,
                                 weft_arena *arena, weft_grouping *out);
/* Sets the seconds of every sample on a group of `width`; INFINITY: the sample does not fit. */
void weft_grouping_seconds(const weft_policy_request *request, int64_t width, double *seconds);
/* Sets the device-seconds of every sample on its narrowest options, fitting or not. */
void weft_grouping_work(const weft_policy_request *request, double *work);
/* Sorts samples by falling key; equal keys keep their order. */
void weft_grouping_sort(const double *key, int64_t count, int32_t *order);
/* Finds the best equal groups on at most all devices, with samples assigned by `policy`. `out`
 * stays empty (NULL width) if the policy allows no width. */
weft_status weft_grouping_equal(weft_policy policy, const weft_policy_request *request,
                                weft_arena *arena, weft_grouping *out);

#endif
