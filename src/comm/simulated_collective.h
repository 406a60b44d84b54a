/* Runs a collective of simulated ranks for all members at once.
 *
 * Segments go through the rounds of their schedules as in a run of one rank (comm_segment.c), so
 * times, messages and bytes are the same. Messages do not pass the transport. The calling thread
 * hands each to its receiver, and no thread sleeps.
 *
 *     member 0   round 0 | waits for 1 |                     round 1 ...
 *     member 1                         | round 0, round 1 | ...            one thread */
#ifndef WEFT_COMM_SIMULATED_COLLECTIVE_H
#define WEFT_COMM_SIMULATED_COLLECTIVE_H

#include "comm/coll_plans.h"
#include "comm/comm.h"

typedef struct weft_simulated_collective weft_simulated_collective;

/* Returns true if the request can run this way: created from the request of an equal rank
 * (weft_comm_request_create_like), on a device with a clock. */
bool weft_simulated_collective_fits(const weft_comm_request *x);
/* Runs x[i], the request of member i, for all `members`. The owners of the requests wait or do not
 * use them, and no earlier request of their queues is in flight. */
weft_status weft_simulated_collective_run(weft_comm_request *const *x, int members,
                                          weft_coll_plans *plans);
/* Posts a message of the running collective; handle.number: member at the other end. */
weft_status weft_simulated_collective_post(weft_simulated_collective *collective,
                                           const weft_comm_request *x, weft_message *m);

#endif
