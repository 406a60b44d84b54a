/* From a schedule to devices (Arachne §IV-C), and from a placed plan to a trace. */
#ifndef WEFT_PLAN_ASSIGN_H
#define WEFT_PLAN_ASSIGN_H

#include "graph/trace.h"
#include "plan/cascade/workload.h"

typedef struct weft_assign_options {
    /* Inside a cascade: 1 one node if it has room (the one that is left fullest); 2 else the fewest
     * nodes that take equal parts; 3 the same rails in each; 4 the shortest way from device to NIC.
     * Off: devices in the order in which they became free, as from a pool. */
    bool inner;
    /* Between cascades: the node and devices of the producers first. */
    bool inter;
} weft_assign_options;

/* Like weft_cascade_devices, on a cluster. */
weft_status weft_assign(const weft_cascade_problem *problem, const weft_cascade_schedule *schedule,
                        const weft_cluster *cluster, weft_assign_options options, weft_arena *arena,
                        int32_t **first, int32_t **devices);

/* One cascade of a placed plan, in whatever way it came. */
typedef struct weft_assigned {
    const char *id;
    const int32_t *device;
    int64_t degree;
    double start, seconds;
    const int32_t *after; /* indices */
    int32_t after_count;
} weft_assigned;

/* The steps of every cascade in the order of the starts. With `costs` (of the model) and the
 * samples' buckets the ids "s<i>.text|vae|dit" become the model's layers, exchanges and hand-offs,
 * and the gradient exchange follows; without (NULL) each cascade is one compute step. `folds`:
 * parts into which a pass over the layers is divided (0: by the number of devices). */
weft_status weft_assign_trace(const weft_assigned *item, int64_t count, int64_t devices,
                              const weft_cascade_costs *costs, const weft_workload *samples,
                              int64_t folds, weft_trace *out);

#endif
