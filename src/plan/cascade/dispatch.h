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
 * A cascade keeps its planned devices if they are idle and not slow. Otherwise it moves to idle
 * devices: of one node if the degree fits a node, else of the fewest nodes in equal parts. Slow
 * devices are used last, and only if waiting for other devices would take longer. The dispatcher
 * of a run (cascade_late.h) and the planner (plan/cascade/expect.h) share this code, so the
 * planner predicts the decisions of the run. Equal inputs give equal decisions. */
#ifndef WEFT_PLAN_DISPATCH_H
#define WEFT_PLAN_DISPATCH_H

#include "plan/cascade/assign.h"

/* Ends of cascades that differ by at most this share of their predicted seconds count as one.
 * Hand-offs in the executor delay ends by up to 0.04 % (bench/robust, 64 ranks at 1080p). A
 * decision waits for at most twice this share. */
#define WEFT_DISPATCH_TOGETHER 0.001

/* Seconds to transfer the results of producers to a device. */
typedef struct weft_dispatch_hand {
    double inside, between; /* source on the same node; on another node */
} weft_dispatch_hand;

/* Searches of the dispatcher during an iteration (replan.h). A run uses these numbers of orders and
 * scenarios. */
enum { WEFT_REPLAN_EVALUATIONS = 100, WEFT_REPLAN_SCENARIOS = 32 };
typedef struct weft_dispatch_replan {
    int64_t evaluations, scenarios; /* orders tried when cascades end; scenarios of each */
    const double *factor;           /* [scenarios][count] executed / predicted seconds */
    uint64_t seed;
} weft_dispatch_replan;

typedef struct weft_dispatch_setup {
    /* [count] cascades; device NULL: no planned devices. All pointers are borrowed. */
    const weft_assigned *item;
    int64_t count, devices;
    int64_t per_node;                   /* devices of a node; 0: one node */
    const double *slow;                 /* [devices] slowdown factors; NULL: 1 */
    const bool *trains;                 /* [count] adds gradients; NULL: all do */
    const weft_dispatch_hand *transfer; /* [count] of consumers; NULL: no time */
    /* true: simulated late dispatch retires devices like a run (weft_dispatch_retire) */
    bool retire;
    /* Cascades keep the devices and the order of the plan until a search changes them. All cascades
     * have planned devices. NULL: cascades start on idle devices. */
    const weft_dispatch_replan *replan;
} weft_dispatch_setup;

typedef struct weft_dispatch weft_dispatch;
weft_status weft_dispatch_create(const weft_dispatch_setup *setup, weft_dispatch **out);
void weft_dispatch_free(weft_dispatch *dispatch); /* accepts NULL */
/* Resets all decisions. `item` replaces the plan's cascades (NULL: unchanged). The count, the
 * maximum degrees and the successors must not change. */
void weft_dispatch_reset(weft_dispatch *dispatch, const weft_assigned *item);
/* Sets the next cascade to start at `now` and its devices in device[degree]. False: no cascade can
 * start before a device becomes idle, or before weft_dispatch_held. */
bool weft_dispatch_next(weft_dispatch *dispatch, double now, int32_t *index, int32_t *device);
/* Returns the time until which decisions wait because a running cascade is predicted to end about
 * `now`; `now`: they do not wait. Until then only the first cascade in the plan's order may start,
 * on its planned devices. Otherwise a difference of microseconds between two ends would decide
 * which cascade gets the devices, and a run would differ from the simulation. Decisions wait until
 * these cascades have ended, or until the returned time if one is late. */
double weft_dispatch_held(const weft_dispatch *dispatch, double now);
/* Records that a device finished its part of a cascade. All devices of the cascade become idle when
 * the last one finished, as in weft_dispatch_play. Otherwise cascades of few devices would take the
 * first devices, and wide ones, earlier in the plan, would wait. */
void weft_dispatch_release(weft_dispatch *dispatch, int32_t device);
/* Returns the number of cascades that have not started. */
int64_t weft_dispatch_left(const weft_dispatch *dispatch);
/* Returns the number of searches since the last reset; 0 without `replan`. */
int64_t weft_dispatch_searches(const weft_dispatch *dispatch);
/* Call it after cascade `index` was started. Sets device[devices] to true for devices that are idle
 * after all cascades with gradients have started, if cascades need their predicted seconds. So are
 * the devices of an encoder that ends later than this. Such devices get no further cascade with
 * gradients, so their gradient all-reduce can begin. */
void weft_dispatch_retire(weft_dispatch *dispatch, int32_t index, double now, bool *device);

/* Times of an iteration. */
typedef struct weft_dispatch_times {
    double makespan; /* end of the last cascade */
    double summing;  /* start of the last backward, from which the gradient all-reduce overlaps */
} weft_dispatch_times;
/* Simulates one iteration in which cascade c takes factor[c] (NULL: 1) times its seconds. `late`:
 * cascades are dispatched to idle devices. Otherwise they have the planned devices and, per device,
 * the planned order. `start` and `end` [count] receive the executed times. `device` receives the
 * executed devices of cascade c from index first[c], where first is the running sum of degrees;
 * NULL: not set. */
typedef struct weft_dispatch_played {
    double *start, *end;
    int32_t *device;
} weft_dispatch_played;
weft_dispatch_times weft_dispatch_play(weft_dispatch *dispatch, bool late, const double *factor,
                                       const weft_dispatch_played *played);

#endif
