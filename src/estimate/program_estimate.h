/* Predicted time of a compiled program on one rank: its instructions on a simulated clock, with
 * given seconds of kernels and communication, or with seconds by a cluster.
 *
 *     kernels        [ n0 ][ n1 ]    [ n3 ][   n4   ]xx[ n5 ]
 *     communication       a [==========]  b [===]
 *
 * x is a wait for a. Exposed time is waits and the time that kernels lose to overlapped
 * communication.
 *
 * Communication of all axes and channels runs in sequence, because one thread drives all requests.
 * Coalescing, starts and waits are as in the program. */
#ifndef WEFT_ESTIMATE_PROGRAM_ESTIMATE_H
#define WEFT_ESTIMATE_PROGRAM_ESTIMATE_H

#include "comm/coll_schedule.h"
#include "exec/program.h"
#include "graph/mesh.h"
#include "plan/cluster/cluster.h"

typedef struct weft_part_times {
    const double *kernel; /* seconds by node */
    /* Seconds of a collective along a mesh axis; `bytes` as in weft_algorithm_cost. */
    double (*collective)(const void *self, int axis, weft_comm_op op, int64_t bytes);
    const void *self;
    double copy;          /* seconds per copied byte, for states that are not updated in place */
    double slowdown;      /* share of overlapped communication that kernels lose, 0..1 */
    double copy_slowdown; /* share of overlapped offload copies that kernels lose */
} weft_part_times;

typedef struct weft_time_estimate {
    double seconds, kernels, exposed;
    double busy; /* seconds of communication, hidden or exposed */
} weft_time_estimate;

weft_status weft_program_estimate(const weft_program *program, const weft_part_times *times,
                                  weft_time_estimate *out);

/* ---- on a cluster ---------------------------------------------------------------------------- */

/* Placement of the mesh's ranks on the nodes of a cluster. Ranks fill one node after the other,
 * `per_node` on each. per_node 0: the number of devices of a node. Borrowed. */
typedef struct weft_rank_links {
    const weft_cluster *cluster;
    const weft_mesh *mesh;
    int64_t per_node;
} weft_rank_links;

/* Seconds of a collective along an axis: as measured (plan/ops/rates.h), otherwise by the
 * links. */
double weft_comm_estimate(const weft_rank_links *links, const char *op, weft_collective kind,
                          int axis, int64_t bytes);
/* Estimates a program from `kernel`, the seconds of each node of the program's graph. */
weft_status weft_program_estimate_on(const weft_rank_links *links, const weft_program *program,
                                     const double *kernel, weft_time_estimate *out);

/* seconds of one run */
typedef struct weft_program_cost {
    double seconds, exposed, hidden;
    double compute;  /* kernels of forward and backward */
    double backward; /* kernels of the backward alone */
    double update;   /* kernels of the update */
    double exact;    /* kernels measured at these shapes */
} weft_program_cost;
/* Cost of one run by the cluster's device: the measured time of this program if the profile has it,
 * otherwise the sum of its kernels and communication. Without measured rates, uses the device's
 * figures. `updates`: the complete program is the optimizer update. */
weft_status weft_program_cost_of(const weft_rank_links *links, const weft_program *program,
                                 bool updates, weft_program_cost *cost);
void weft_program_cost_add(weft_program_cost *to, const weft_program_cost *cost, double times);

#endif
