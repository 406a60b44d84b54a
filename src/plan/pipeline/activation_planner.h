/* Which activations to keep, recompute or offload (Aquarius §5.2).
 *
 * An item is something that one layer keeps from forward to backward; `count` layers have the same.
 * Recomputing costs its forward time again; offloading costs transfer time, which hides behind
 * compute as long as the sum of all transfers fits into a window, but for what compute loses to
 * them: nothing where an engine copies, all of it where every core computes. To be minimised is
 *     sum of recompute seconds + max(drag x transfers, transfers - window)
 * with transfers the sum of offload seconds, and the kept bytes within a limit. */
#ifndef WEFT_PLAN_KEEP_H
#define WEFT_PLAN_KEEP_H

#include "base/memory.h"

typedef struct weft_keep_item {
    const char *name; /* borrowed */
    double bytes;     /* kept, per layer */
    double recompute; /* seconds per layer; INFINITY: impossible */
    double offload;   /* seconds of transfer out and back, per layer; INFINITY: impossible */
    int64_t count;    /* layers */
} weft_keep_item;

typedef struct weft_keep_copies {
    double window; /* seconds of compute that transfers hide behind */
    double drag;   /* of a transfer's seconds, the share that compute beside it takes longer */
} weft_keep_copies;

typedef struct weft_keep_choice {
    int64_t *recomputed, *offloaded; /* [items]: how many of `count`; owned */
    double kept;                     /* bytes, <= limit */
    double seconds;                  /* extra time */
    double lower_bound;              /* no choice is faster (exact search only) */
    bool proved;                     /* seconds is the optimum (exact search only) */
    int64_t nodes;                   /* searched */
} weft_keep_choice;
void weft_keep_choice_free(weft_keep_choice *choice);

/* Greedy by memory-latency ratio: the item that frees most bytes per added second goes first,
 * offload before recompute while the window lasts; at the end, choices that turn out to be
 * unnecessary are taken back, dearest first. WEFT_E_INFEASIBLE says how much is needed at least. */
weft_status weft_keep_greedy(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                             double limit, weft_keep_choice *out);
/* Exact: branch and bound over the items with a Lagrangian bound; node_limit 0: 2 million, then
 * `proved` is false, the best found stands and the lower bound gives its gap. */
weft_status weft_keep_exact(const weft_keep_item *item, int64_t items, weft_keep_copies copies,
                            double limit, int64_t node_limit, weft_keep_choice *out);

/* Finite, not negative, counts in range; a message that names the item. */
weft_status weft_keep_items_check(const weft_keep_item *item, int64_t items,
                                  weft_keep_copies copies);

#endif
