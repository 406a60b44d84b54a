/* Flows over the links of a cluster and the rates at which they advance: what the simulator runs
 * traces by, and modelled ranks their messages (runtime/turns.c).
 *
 * Rates are max-min fair over the links' bandwidths, a flow counting once per message on a link.
 * So do networks that order nothing between senders: a port serves the queues of those that send
 * over it in turn, packet by packet. What follows one another (the messages of one queue) is the
 * caller's to begin one after the other. Deterministic: the same calls give the same rates. */
#ifndef WEFT_PLAN_TRAFFIC_H
#define WEFT_PLAN_TRAFFIC_H

#include "plan/cluster/cluster.h"

typedef struct weft_index_list {
    int32_t *item; /* owned */
    int64_t count, room;
} weft_index_list;
weft_status weft_index_push(weft_index_list *list, int32_t value);

/* The distinct links that a flow passes, and how many of its messages are on each. */
typedef struct weft_way {
    int32_t *link, *count;
    int32_t links;
} weft_way;

typedef struct weft_traffic weft_traffic;
weft_traffic *weft_traffic_create(const weft_cluster *cluster); /* NULL: no memory */
void weft_traffic_free(weft_traffic *traffic);                  /* accepts NULL */

/* The number of a flow that does not run yet: the next one, or that of one that was closed. */
weft_status weft_traffic_open(weft_traffic *traffic, int32_t *flow);
weft_status weft_traffic_close(weft_traffic *traffic, int32_t flow);
/* It runs from `now` (seconds) on, with so many bytes in each of its messages; `way` is borrowed
 * until it ends. */
weft_status weft_traffic_begin(weft_traffic *traffic, int32_t flow, const weft_way *way,
                               double bytes, double now);
weft_status weft_traffic_end(weft_traffic *traffic, int32_t flow);
/* Behind all that begins and ends at `now`: rates anew. *changed: the flows that go on at another
 * rate; good until the next call. */
weft_status weft_traffic_share(weft_traffic *traffic, double now, const weft_index_list **changed);
/* When it will have passed, at the rate that it has. */
double weft_traffic_ends(const weft_traffic *traffic, int32_t flow);

#endif
