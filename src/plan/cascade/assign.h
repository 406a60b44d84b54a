/* Assigns devices to the cascades of a schedule (Arachne §IV-C). */
#ifndef WEFT_PLAN_ASSIGN_H
#define WEFT_PLAN_ASSIGN_H

#include "graph/trace.h"
#include "plan/cascade/workload.h"

typedef struct weft_assign_options {
    /* Placement inside a cascade, by priority. 1: the fullest node with enough free devices. 2:
     * else the fewest nodes with equal parts. 3: the same rails in each node. 4: the shortest path
     * from device to NIC. False: devices in the order in which they became free, as from a pool. */
    bool inner;
    /* Placement between cascades: prefers the node and the devices of the producers. */
    bool inter;
} weft_assign_options;

/* Assigns devices as weft_cascade_devices does, with the topology of `cluster`. The arrays are in
 * `arena`. */
weft_status weft_assign(const weft_cascade_problem *problem, const weft_cascade_schedule *schedule,
                        const weft_cluster *cluster, weft_assign_options options, weft_arena *arena,
                        int32_t **first, int32_t **devices);

/* One cascade of a placed plan, from any planner. */
typedef struct weft_assigned {
    const char *id;
    const int32_t *device;
    int64_t degree;
    double start, seconds;
    const int32_t *after; /* indices of the predecessors */
    int32_t after_count;
} weft_assigned;

#endif
