/* Flows over the links of a cluster and their rates. The simulator uses them for traces, and
 * simulated ranks for messages (comm/simulated_links.c).
 *
 * Rates are max-min fair over the links' bandwidths; a flow counts once per message on a link. This
 * models networks that do not order messages of different senders: a port serves its senders'
 * queues in turn, packet by packet. The caller must begin the messages of one queue one at a time.
 * Deterministic: the same calls give the same rates. */
#ifndef WEFT_PLAN_SIMULATE_LINK_SHARING_H
#define WEFT_PLAN_SIMULATE_LINK_SHARING_H

#include "plan/cluster/cluster.h"

typedef struct weft_index_list {
    int32_t *item; /* owned */
    int64_t count, capacity;
} weft_index_list;
weft_status weft_index_push(weft_index_list *list, int32_t value);

/* Distinct links that a flow passes, and the number of its messages on each. */
typedef struct weft_route {
    int32_t *link, *count;
    int32_t links;
} weft_route;

typedef struct weft_traffic weft_traffic;
weft_traffic *weft_traffic_create(const weft_cluster *cluster); /* NULL: out of memory */
void weft_traffic_free(weft_traffic *traffic);                  /* accepts NULL */

/* Returns the number of a flow that does not run yet; closed numbers are reused. */
weft_status weft_traffic_open(weft_traffic *traffic, int32_t *flow);
weft_status weft_traffic_close(weft_traffic *traffic, int32_t flow);
/* Starts the flow at `now` (seconds) with `bytes` in each of its messages. `route` is borrowed
 * until the flow ends. */
weft_status weft_traffic_begin(weft_traffic *traffic, int32_t flow, const weft_route *route,
                               double bytes, double now);
weft_status weft_traffic_end(weft_traffic *traffic, int32_t flow);
/* Recomputes the rates after all flows that begin and end at `now`. *changed: the flows with a new
 * rate, valid until the next call. */
weft_status weft_traffic_share(weft_traffic *traffic, double now, const weft_index_list **changed);
/* Returns the time at which the flow ends at its current rate. */
double weft_traffic_ends(const weft_traffic *traffic, int32_t flow);

#endif
