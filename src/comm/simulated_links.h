#ifndef WEFT_COMM_SIMULATED_LINKS_H
#define WEFT_COMM_SIMULATED_LINKS_H

#include "comm/comm.h"
#include "plan/cluster/cluster.h"

/* Messages over the links of a cluster in simulated time (simulated_links.c). Rank r is device r of
 * the cluster, which is borrowed. Except for `break`, each function is called by the thread of
 * `rank`. */
weft_simulated_links *
weft_simulated_links_create(int ranks, const weft_cluster *cluster); /* NULL: out of memory */
void weft_simulated_links_free(weft_simulated_links *links);         /* accepts NULL */
/* begin: the rank starts the request. wait: the rank is about to wait for the request.
 *
 * `begin` holds a collective until all members have begun it. It then runs for all members
 * (simulated_collective.h), or is put into the queues of their communicators. *held: the caller
 * does not put it there. `held` NULL: only counted. */
weft_status weft_simulated_links_begin(weft_simulated_links *links, int rank, weft_comm_request *x,
                                       bool *held);
/* Puts the held requests of the queue of `x` into the communicator's queue, where the deadline
 * applies. */
void weft_simulated_links_hand_over(weft_simulated_links *links, const weft_comm_request *x);
/* Fails the held requests of a broken communicator. */
void weft_simulated_links_drop(weft_simulated_links *links, const weft_comm *comm);
void weft_simulated_links_wait(weft_simulated_links *links, int rank, const weft_comm_request *x);
/* Called when the request is done in real time: waits until it is done in simulated time, and sets
 * the times of a send or receive. */
weft_status weft_simulated_links_advance(weft_simulated_links *links, int rank,
                                         weft_comm_request *x);
/* Returns true if a send or receive that was not waited for yet is done by `now`. */
bool weft_simulated_links_passed(weft_simulated_links *links, int rank, const weft_comm_request *x,
                                 double now);
void weft_simulated_links_leave(weft_simulated_links *links, int rank);
/* Unblocks all ranks permanently. */
void weft_simulated_links_break(weft_simulated_links *links);

#endif
