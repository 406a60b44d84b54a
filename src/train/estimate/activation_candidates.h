/* Input and result of the activation planner for memory.limit: the saved activations of a step as
 * items of plan/pipeline/activation_planner.h, and its choice as an activation plan for the passes.
 *
 *     graphs of this rank ──> rows, one per node ──> maximum over all ranks
 *                                                      │ equal nodes of all blocks form an item
 *     activation plan <── an item's first nodes are  items ──> planner ─┐
 *                         offloaded, the next recomputed <──── choice ──┘ */
#ifndef WEFT_TRAIN_ESTIMATE_ACTIVATION_CANDIDATES_H
#define WEFT_TRAIN_ESTIMATE_ACTIVATION_CANDIDATES_H

#include "comm/comm.h"
#include "graph/op.h"
#include "plan/cluster/cluster.h"
#include "plan/pipeline/activation_planner.h"
#include "transform/memory/saved_activations.h"

typedef struct weft_activation_row {
    uint64_t key, like;
    int64_t op;            /* weft_op */
    double bytes, seconds; /* recompute seconds; INFINITY: cannot be recomputed */
} weft_activation_row;

/* All pointers are heap memory and owned. Zero-initialise. */
typedef struct weft_activation_candidates {
    weft_activation_row *row; /* rows in the order of the graphs */
    int64_t rows, capacity;
    double run; /* estimated seconds of the longest graph */
    weft_activation_item *item;
    int64_t items;
    int64_t *item_of; /* item index by row */
} weft_activation_candidates;
void weft_activation_candidates_free(weft_activation_candidates *candidates);

/* Adds the saved activations of a graph before memory passes change it. For a node that another
 * bucket's graph already added, the larger bytes and seconds are kept. */
weft_status weft_activation_candidates_add(weft_activation_candidates *candidates,
                                           const weft_graph *graph, const weft_device_type *device);
/* Collective. Merges the rows of all ranks, so that all ranks have the same rows. */
weft_status weft_activation_candidates_share(weft_activation_candidates *candidates,
                                             weft_comm *comm);
/* Groups the rows into items. `allow_recompute`: nodes may be recomputed. `rate`: offload bandwidth
 * in bytes per second, in each direction; 0: offload is off. `rest`: only nodes that cannot be
 * recomputed may be offloaded. */
weft_status weft_activation_candidates_items(weft_activation_candidates *candidates,
                                             bool allow_recompute, double rate, bool rest);
/* Converts the planner's choice into an activation plan for the passes. The caller frees
 * `activations->row`. */
weft_status weft_activation_candidates_plan(const weft_activation_candidates *candidates,
                                            const weft_activation_choice *choice,
                                            weft_activation_plan *activations);
/* Prints the ops with this policy as "gelu 12, rope 24", largest total bytes first. Returns the
 * total bytes. */
int64_t weft_activation_candidates_print(const weft_activation_candidates *candidates,
                                         const weft_activation_plan *activations,
                                         weft_activation_policy policy, weft_buf *out);

#endif
