/* Plans the cascades of an iteration that have not started again whenever cascades end.
 *
 *     plan        device 0   [s0.dit      ][s2.dit   ]      s0.dit takes longer than planned.
 *                 device 1   [s1.dit   ][s3.dit ]           s1.dit ends at |:
 *
 *     replanned   device 0   [s0.dit           ][s3.dit ]   the longer s2.dit moves to device 1,
 *                 device 1   [s1.dit   |][s2.dit   ]        which is free first
 *
 * Each search exchanges the devices and the order of cascades that have not started. The value of
 * an order is its mean makespan over scenarios, as in expect.h. A running cascade has the ends of
 * its scenarios that are still possible. Degrees do not change, so no new program is needed.
 * Cascades wait for their devices; dispatch to idle devices (dispatch.h) never waits. Equal inputs
 * give equal decisions. */
#ifndef WEFT_PLAN_REPLAN_H
#define WEFT_PLAN_REPLAN_H

#include "plan/cascade/dispatch.h"

typedef struct weft_replan weft_replan;
/* Borrows the cascades, speeds, transfers and scenarios of `setup` (weft_dispatch_setup.replan). */
weft_status weft_replan_create(const weft_dispatch_setup *setup, weft_replan **out);
void weft_replan_free(weft_replan *replan); /* accepts NULL */
/* Resets to the devices and the order of the plan. order[count]: cascades by planned start. */
void weft_replan_reset(weft_replan *replan, const weft_assigned *item, const int32_t *order);
/* Cascade `index` started on its devices at `now`; all its devices finished. */
void weft_replan_start(weft_replan *replan, int32_t index, double now);
void weft_replan_end(weft_replan *replan, int32_t index);
/* Returns the next cascade that can start at `now`, or -1, and sets device[degree]. Searches first
 * if cascades ended since the last search. `retired`: devices that get no further gradients. */
int32_t weft_replan_next(weft_replan *replan, double now, const bool *retired, int32_t *device);
/* Returns true if weft_replan_next searches first. */
bool weft_replan_searches_next(const weft_replan *replan);
/* Returns the number of searches since weft_replan_reset. */
int64_t weft_replan_searches(const weft_replan *replan);
/* Sets device[devices] to true for devices that retire, as weft_dispatch_retire. They have no
 * cascade with gradients left, and are busy in most scenarios until all such cascades started.
 * Returns the latest time of all scenarios at which all such cascades have started. */
double weft_replan_retire(weft_replan *replan, double now, bool *device);
/* Sets device[devices]: true for devices of cascades with gradients that have not started. */
void weft_replan_needed(const weft_replan *replan, bool *device);

#endif
