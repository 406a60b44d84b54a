/* Runs a trace over a cluster on a clock. Deterministic; nothing is executed.
 *
 * Compute steps take their seconds. Collectives go as their algorithms do, in rounds of messages
 * that start together: ring (n - 1 or 2 (n - 1) equal rounds), pairwise all-to-all (n - 1 different
 * ones), binomial broadcast (log n). The messages of a round are one flow that advances at one
 * rate: the slowest of them, since the next round waits for it. Rates are max-min fair over the
 * links' bandwidths, a flow counting once per message on a link; the latency of the longest path
 * comes before. A send occupies the stream of the device that sends: what comes to a device does
 * not wait for what leaves it. */
#ifndef WEFT_PLAN_SIMULATOR_H
#define WEFT_PLAN_SIMULATOR_H

#include "graph/trace.h"
#include "plan/cluster/cluster.h"

typedef struct weft_simulation {
    double seconds;
    double *start, *end; /* per step */
    double *busy;        /* per device: compute stream */
    double *exposed; /* per device: the comm or host stream is busy and the compute stream is not */
    double *peak;    /* per device: bytes, from the steps' `memory` */
    double *link_bytes; /* per link of the cluster */
    int64_t devices, links, events;
} weft_simulation;

/* WEFT_E_ARG when the trace names more devices than the cluster has; WEFT_E_FORMAT when steps wait
 * for each other. */
weft_status weft_simulate(const weft_trace *trace, const weft_cluster *cluster,
                          weft_simulation *out);
void weft_simulation_free(weft_simulation *simulation);

#endif
