#ifndef WEFT_COMM_COMM_SEGMENT_H
#define WEFT_COMM_COMM_SEGMENT_H

#include "comm/comm.h"

/* Returns the messages and bytes that this rank sends in one run, without running it. */
weft_sent weft_comm_request_planned(const weft_comm_request *request);
/* Returns the messages and bytes that this rank has sent in all runs. */
weft_sent weft_comm_request_sent(const weft_comm_request *request);

/* Adds the whole request to its stream, over the connections of its group. Called by the thread
 * that starts it. */
void weft_comm_request_add(weft_comm *comm, weft_comm_request *x);
/* Called by the progress thread (comm_segment.c). */
weft_status weft_comm_request_begin(weft_comm *comm, weft_comm_request *x);
/* Sets *progressed if a message arrived or left, and *finished to whether the request is
 * complete. */
weft_status weft_comm_request_advance(weft_comm *comm, weft_comm_request *x, bool *progressed,
                                      bool *finished);
void weft_comm_request_cancel(weft_comm *comm, weft_comm_request *x);
/* False while the work before a request has not ended on its device. */
bool weft_comm_request_may_begin(const weft_comm_request *x);
/* True if the request continues when its device has ended work, and not by a message. */
bool weft_comm_request_awaits_device(const weft_comm_request *x);
/* Opens the gate of a failed request. */
void weft_comm_request_force(const weft_comm_request *x);
/* Frees the pinned memory of a communicator without requests. */
void weft_comm_pinned_free(weft_comm *comm);
/* Copies the input to the result: a collective of one rank. */
weft_status weft_comm_request_copy(weft_comm_request *x);

#endif
