/* Plans one iteration on a cluster: degrees, starts, devices, and the simulated time.
 *
 * Arachne's search treats devices as equal (§IV-B). On several nodes this spreads groups over
 * nodes, and exchanges that were estimated inside a node cross the network. On several nodes four
 * plans are therefore made, and the plan with the shortest simulated iteration is used. One plan
 * treats the devices as one pool. One starts cascades only where nodes have enough free devices.
 * Two do the same with smaller sets of degrees. A plan whose planned time exceeds the best
 * simulated time is not simulated. */
#ifndef WEFT_PLAN_ITERATION_H
#define WEFT_PLAN_ITERATION_H

#include "plan/cascade/assign.h"
#include "plan/simulate/simulator.h"

enum { WEFT_ITERATION_CANDIDATES = 4 };

typedef struct weft_iteration_candidate {
    const char *name; /* name of the set of degrees */
    bool tried;
    double planned, simulated,
        idle; /* simulated: INFINITY if the planned time was already too long */
} weft_iteration_candidate;

typedef struct weft_iteration {
    weft_cascade_list list; /* list with every degree */
    /* Plan of the chosen set; freed with weft_iteration_free. Its bound is valid for all sets, as
     * the bound covers every degree. */
    weft_cascade_solution best;
    double simulated, idle, exposed, peak;
    weft_iteration_candidate candidate[WEFT_ITERATION_CANDIDATES];
    int64_t candidates, chosen;
} weft_iteration;

weft_status weft_iteration_plan(const weft_cascade_costs *costs, const weft_workload *samples,
                                const weft_cascade_search *search, weft_assign_options assign,
                                weft_arena *arena, weft_iteration *out);
void weft_iteration_free(weft_iteration *iteration);

/* Simulates a plan with its devices. */
weft_status weft_iteration_simulate(const weft_cascade_costs *costs, const weft_workload *samples,
                                    const weft_cascade_solution *plan, weft_simulation *out);

#endif
