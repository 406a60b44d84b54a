/* One iteration, planned on a cluster: degrees and starts, devices, and the simulator's verdict.
 *
 * Arachne's search treats devices as alike (§IV-B); on more than one node that tears groups over
 * nodes, and exchanges that were priced inside a node then cross the network. So on several nodes
 * four plans are made, placed and simulated, and the one with the shortest simulated iteration is
 * kept: devices as one pool, starts only where nodes have room, and that with two smaller sets of
 * degrees. */
#ifndef WEFT_PLAN_ITERATION_H
#define WEFT_PLAN_ITERATION_H

#include "plan/cascade/assign.h"
#include "plan/simulate/simulator.h"

enum { WEFT_ITERATION_CANDIDATES = 4 };

typedef struct weft_iteration_candidate {
    const char *name; /* of the set of degrees */
    bool tried;
    double planned, simulated,
        idle; /* simulated: INFINITY where the planned time was too long already */
} weft_iteration_candidate;

typedef struct weft_iteration {
    weft_cascade_list list;       /* with every degree */
    weft_cascade_problem problem; /* of the kept set; free with weft_iteration_free */
    weft_cascade_list kept;       /* the list that `problem` is of */
    weft_cascade_result result;   /* bound: for every degree, so it holds for all sets */
    int32_t *first, *devices;
    double simulated, idle, exposed, peak;
    weft_iteration_candidate candidate[WEFT_ITERATION_CANDIDATES];
    int64_t candidates, chosen;
} weft_iteration;

weft_status weft_iteration_plan(const weft_cascade_costs *costs, const weft_workload *samples,
                                const weft_cascade_search *search, weft_assign_options place,
                                weft_arena *arena, weft_iteration *out);
void weft_iteration_free(weft_iteration *iteration);

/* Simulates a placement of a schedule. */
weft_status weft_iteration_simulate(const weft_cascade_costs *costs, const weft_workload *samples,
                                    const weft_cascade_list *list,
                                    const weft_cascade_problem *problem,
                                    const weft_cascade_schedule *schedule, const int32_t *first,
                                    const int32_t *devices, weft_simulation *out);

#endif
