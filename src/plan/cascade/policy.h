/* Plans of one iteration by the rules of other systems, with the same costs as weft's own search
 * and in the same form, so that one executor runs them all and one clock compares them.
 *
 *   static      devices in equal groups, samples dealt in the order of the iteration (DP x CP)
 *   flexsp      groups of powers of two, chosen for every iteration; samples longest first, each
 *               to the group that finishes it first (FlexSP). Equal groups where those are shorter
 *   knapformer  equal groups ("bags"); samples by falling work, each to the bag with least of it:
 *               what is balanced is work by tokens, not seconds (KnapFormer)
 *
 * All of them hold a sample on one group: its cascades follow one another there, on as many of the
 * group's devices as their degrees allow, and a group takes its samples one after the other.
 * Without a given degree devices may stay idle, so that more devices never make a plan longer. */
#ifndef WEFT_PLAN_POLICY_H
#define WEFT_PLAN_POLICY_H

#include "plan/cascade/cascade.h"

typedef enum weft_policy {
    WEFT_POLICY_ARACHNE, /* weft's own search: plan/cascade/iteration.h */
    WEFT_POLICY_STATIC,
    WEFT_POLICY_ULYSSES, /* static, where degrees divide the heads */
    WEFT_POLICY_FLEXSP,
    WEFT_POLICY_KNAPFORMER, /* where degrees divide the heads, too */
    WEFT_POLICY_COUNT
} weft_policy;
/* As configs have them, NULL-terminated: "arachne", "static-dp-cp", ... */
extern const char *const weft_policy_names[];

typedef struct weft_policy_request {
    const weft_cascade_list *list; /* a sample's cascades behind those they come after */
    const int32_t *sample;         /* [list->count] whose each is, 0 .. samples - 1 */
    int64_t samples;
    const double *work;     /* [samples] for knapformer; NULL: seconds of its narrowest options */
    int64_t devices, heads; /* heads 0: any degree divides them */
    double memory;          /* bytes per device; 0: no limit */
    int64_t degree;         /* of equal groups; 0: the best for this iteration */
} weft_policy_request;

/* What every plan comes down to: who does what, where and when. In the caller's arena. */
typedef struct weft_placement {
    int64_t count;   /* of cascades, as in the list */
    int32_t *option; /* [count] of the list's cascade */
    double *start, *end;
    int32_t *first, *devices; /* first[c] .. first[c + 1] are c's in devices; the first leads */
    double makespan, idle;    /* idle: share of the devices' seconds until then */
    int64_t degree;           /* of equal groups; 0: they differ */
} weft_placement;
/* Arrays of `count` cascades on `places` devices in all, zero, owned by the arena. */
weft_status weft_placement_create(weft_arena *arena, int64_t count, int64_t places,
                                  weft_placement *out);

/* Not of ARACHNE. WEFT_E_INFEASIBLE: a sample fits on no group, named with the bytes it takes;
 * no degree makes equal groups. */
weft_status weft_policy_place(weft_policy policy, const weft_policy_request *request,
                              weft_arena *arena, weft_placement *out);

/* Two cascades on a device at the same time, one before what it comes after, or more bytes than the
 * memory: WEFT_E_INTERNAL names them. */
weft_status weft_placement_check(const weft_placement *placement, const weft_cascade_list *list,
                                 int64_t devices, double memory);
/* Of a schedule and its devices, as weft_assign gives them. */
weft_status weft_placement_of(const weft_cascade_problem *problem,
                              const weft_cascade_schedule *schedule, int32_t *first,
                              int32_t *devices, weft_arena *arena, weft_placement *out);

#endif
