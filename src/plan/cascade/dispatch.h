/* Starts cascades of a plan on devices that are idle, in the order of the plan.
 *
 *     plan        device 0   [s0.dit      ][s2.dit   ]      s0.dit takes longer than planned:
 *                 device 1   [s1.dit  ][s3.dit ]
 *
 *     planned     device 0   [s0.dit            ][s2.dit   ]
 *                 device 1   [s1.dit  ][s3.dit ]
 *     late        device 0   [s0.dit            ][s3.dit ]
 *                 device 1   [s1.dit  ][s2.dit   ]
 *
 * A cascade keeps its planned devices where they are idle, else it moves to idle devices: of one
 * node where the degree fits a node, else of the fewest nodes in equal parts. Devices known to be
 * slow are used last, and only where waiting for others would take longer. The rank that
 * dispatches a run (train/cascade_late.h) and the planner (plan/cascade/expect.h) use this code, so
 * the planner predicts the decisions of the run. Equal inputs give equal decisions. */
#ifndef WEFT_PLAN_DISPATCH_H
#define WEFT_PLAN_DISPATCH_H

#include "plan/cascade/assign.h"

/* Seconds until the results of producers arrive on a device. */
typedef struct weft_dispatch_hand {
    double inside, between; /* from a device of the same node, and of another node */
} weft_dispatch_hand;

typedef struct weft_dispatch_setup {
    /* [count]; device NULL: no planned devices; borrowed like the rest */
    const weft_assigned *item;
    int64_t count, devices;
    int64_t per_node;               /* devices of a node; 0: one node */
    const double *slow;             /* [devices] factor on seconds; NULL: 1 */
    const bool *trains;             /* [count] adds gradients; NULL: all do */
    const weft_dispatch_hand *hand; /* [count] of consumers; NULL: hand-offs take no time */
} weft_dispatch_setup;

typedef struct weft_dispatch weft_dispatch;
weft_status weft_dispatch_create(const weft_dispatch_setup *setup, weft_dispatch **out);
void weft_dispatch_free(weft_dispatch *dispatch); /* accepts NULL */
/* Forgets all decisions. `item` (NULL: as before) replaces the plan's cascades; the count, degrees'
 * limits and successors stay. */
void weft_dispatch_reset(weft_dispatch *dispatch, const weft_assigned *item);
/* The next cascade to start at `now`, and its devices in device[degree]. False: none can start
 * before a device becomes idle. */
bool weft_dispatch_next(weft_dispatch *dispatch, double now, int32_t *index, int32_t *device);
/* The device has finished its part of the cascade that it was given. */
void weft_dispatch_release(weft_dispatch *dispatch, int32_t device);
/* Cascades that were not started yet. */
int64_t weft_dispatch_left(const weft_dispatch *dispatch);
/* Sets device[devices] to true for devices that become idle once all cascades with gradients have
 * started, if cascades take their predicted seconds. Such devices get no further cascade with
 * gradients, so their sums of gradients can begin. */
void weft_dispatch_retire(weft_dispatch *dispatch, double now, bool *device);

/* Times of an iteration. */
typedef struct weft_dispatch_times {
    double makespan; /* end of the last cascade */
    double summing;  /* start of the last backward: sums of gradients run beside it */
} weft_dispatch_times;
/* One iteration in which cascade c takes factor[c] (NULL: 1) times its seconds. `start` and `end`
 * [count] and `device` (NULL: not asked for; device[first[c] ..] with first the running sum of
 * degrees) receive what was executed. */
typedef struct weft_dispatch_played {
    double *start, *end;
    int32_t *device;
} weft_dispatch_played;
weft_dispatch_times weft_dispatch_play(weft_dispatch *dispatch, const double *factor,
                                       const weft_dispatch_played *played);
/* The same with planned devices and, on each device, the planned order. */
weft_dispatch_times weft_dispatch_play_planned(weft_dispatch *dispatch, const double *factor,
                                               const weft_dispatch_played *played);

#endif
