/* Chooses which activations to keep, recompute or offload (Aquarius §5.2).
 *
 * An item is a saved activation of one layer; `count` layers have the same item. Recompute costs
 * its forward time. Offload costs transfer time, which is hidden behind compute while the sum of
 * all transfers fits a window. Transfers also slow compute down by the share `slowdown`: 0 with a
 * copy engine, 1 if every core computes. The planner minimises
 *     sum of recompute seconds + max(slowdown x transfers, transfers - window)
 * where transfers is the sum of offload seconds, and the kept bytes stay within a limit. */
#ifndef WEFT_PLAN_PIPELINE_ACTIVATION_PLANNER_H
#define WEFT_PLAN_PIPELINE_ACTIVATION_PLANNER_H

#include "base/memory.h"

typedef struct weft_activation_item {
    const char *name; /* borrowed */
    double bytes;     /* bytes per layer if kept */
    double recompute; /* seconds per layer; INFINITY: impossible */
    double offload;   /* seconds per layer to the host and back; INFINITY: impossible */
    int64_t count;    /* layers */
} weft_activation_item;

typedef struct weft_offload_rates {
    double window;   /* seconds of compute that can hide transfers */
    double slowdown; /* slowdown of compute during a transfer, as a share of its seconds */
} weft_offload_rates;

typedef struct weft_activation_choice {
    int64_t *recomputed, *offloaded; /* [items]: number of layers of `count`; owned */
    double saved;                    /* kept bytes, <= limit */
    double seconds;                  /* extra seconds */
    double lower_bound;              /* no choice takes fewer seconds (exact search only) */
    bool proved;                     /* seconds is the optimum (exact search only) */
    int64_t nodes;                   /* searched nodes */
} weft_activation_choice;
void weft_activation_choice_free(weft_activation_choice *choice);

/* Greedy by memory-latency ratio: always drops the item with the highest bytes freed per added
 * second. Offload precedes recompute while the window lasts. At the end, unnecessary choices are
 * undone, most expensive first. WEFT_E_INFEASIBLE reports the minimum bytes. */
weft_status weft_activations_choose_greedy(const weft_activation_item *item, int64_t items,
                                           weft_offload_rates copies, double limit,
                                           weft_activation_choice *out);
/* Exact: branch and bound over the items with a Lagrangian bound. node_limit 0: 2 million. At the
 * limit, `proved` is false, the result is the best choice found, and lower_bound gives its gap. */
weft_status weft_activations_choose_exact(const weft_activation_item *item, int64_t items,
                                          weft_offload_rates copies, double limit,
                                          int64_t node_limit, weft_activation_choice *out);

/* Checks that values are finite and not negative, and that counts are in range. An error names the
 * item. */
weft_status weft_activation_items_check(const weft_activation_item *item, int64_t items,
                                        weft_offload_rates copies);

#endif
