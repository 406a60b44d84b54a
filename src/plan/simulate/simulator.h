/* Runs a trace over a cluster on a clock. Deterministic; nothing is executed.
 *
 * Compute steps take their seconds. Collectives follow their algorithms, in rounds of messages that
 * start together: ring (n - 1 or 2 (n - 1) equal rounds), pairwise all-to-all (n - 1 different
 * rounds), binomial broadcast (log n rounds).
 *
 * The messages of a round are one flow at the rate of the slowest message, because the next round
 * waits for all messages. Rates are max-min fair over the links' bandwidths; a flow counts once per
 * message on a link. The latency of the longest path comes first. A send occupies a stream of the
 * sender only, so messages to a device do not wait for its own sends. */
#ifndef WEFT_PLAN_SIMULATOR_H
#define WEFT_PLAN_SIMULATOR_H

#include "graph/trace.h"
#include "plan/cluster/cluster.h"

typedef struct weft_simulation {
    double seconds;
    double *start, *end; /* per step */
    double *busy;        /* per device: compute stream */
    double *exposed;     /* per device: seconds of comm or host stream while compute is idle */
    double *peak;        /* per device: bytes, from the steps' `memory` */
    double *link_bytes;  /* per link of the cluster */
    int64_t devices, links, events;
} weft_simulation;

/* WEFT_E_ARG: the trace has more devices than the cluster. WEFT_E_FORMAT: steps wait for each
 * other. */
weft_status weft_simulate(const weft_trace *trace, const weft_cluster *cluster,
                          weft_simulation *out);
void weft_simulation_free(weft_simulation *simulation);

#endif
