#ifndef WEFT_COMM_COMM_WORLD_H
#define WEFT_COMM_COMM_WORLD_H

#include "comm/comm.h"
#include "comm/group.h"
#include "kernel/kernel.h"

weft_status weft_send_buffer_create(int64_t bytes, weft_send_buffer **held);
void *weft_send_buffer_data(weft_send_buffer *held);   /* aligned to 64 bytes */
void weft_send_buffer_release(weft_send_buffer *held); /* accepts NULL */
/* Returns the largest sum of bytes of all buffers of the process since the last call. */
int64_t weft_send_buffers_peak(void);
/* Sends `bytes` at `data` without a copy. `data` is inside `held`, which must not change until all
 * holders have released it. The message leaves when `stream` reaches it; on a device with a clock
 * it takes simulated time. `stream` NULL: leaves at once.
 * `when`: simulated time of the send, for a thread that sends while the device's user is ahead. It
 * must outlive the send. NULL: the time of the device's user. */
weft_status weft_group_send_held(weft_group *group, weft_channel channel, int peer,
                                 weft_send_buffer *held, const void *data, int64_t bytes,
                                 const weft_device *device, weft_device_stream *stream,
                                 double *when);

weft_status weft_comm_barrier(weft_comm *comm);
weft_status weft_comm_broadcast(weft_comm *comm, void *data, int64_t bytes, int root);
/* Receives a broadcast that may begin after any time. Sleeps, where weft_comm_broadcast polls
 * without a pause, and has no deadline. `idle` is called a hundred times a second. */
weft_status weft_comm_await_broadcast(weft_comm *comm, void *data, int64_t bytes, int root,
                                      void (*idle)(void *user), void *user);
/* out: ranks x bytes, in rank order. */
weft_status weft_comm_all_gather(weft_comm *comm, const void *data, int64_t bytes, void *out);
/* Sums `values` over the ranks; bitwise identical on all ranks. */
weft_status weft_comm_sum(weft_comm *comm, double *values, int64_t count);
/* Returns `status`, or on a rank without an error "another rank cannot <work>" if any rank has one,
 * so that all leave together. Acts as a barrier. */
weft_status weft_comm_agree(weft_comm *comm, weft_status_code status, const char *work);
/* Returns WEFT_E_CANCELLED on every rank if any rank was interrupted (base/interrupt.h), so that
 * all leave together. Acts as a barrier. */
weft_status weft_comm_interrupt_check(weft_comm *comm);
/* The functions of the communicator, among the group's ranks. root and order refer to the group's
 * list. */
weft_status weft_group_barrier(weft_group *group);
weft_status weft_group_broadcast(weft_group *group, void *data, int64_t bytes, int root);
weft_status weft_group_all_gather(weft_group *group, const void *data, int64_t bytes, void *out);
weft_status weft_group_sum(weft_group *group, double *values, int64_t count);
/* Sends to or receives from member `peer`. A send copies its data and returns at once, so two ranks
 * may both send before they receive. Messages between two members of a group arrive in the order of
 * sending. */
weft_status weft_group_send(weft_group *group, weft_channel channel, int peer, const void *data,
                            int64_t bytes);
weft_status weft_group_recv(weft_group *group, weft_channel channel, int peer, void *data,
                            int64_t bytes);

#endif
