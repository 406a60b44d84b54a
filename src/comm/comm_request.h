#ifndef WEFT_COMM_COMM_REQUEST_H
#define WEFT_COMM_COMM_REQUEST_H

#include "comm/comm.h"
#include "comm/group.h"
#include "graph/op.h"
#include "kernel/kernel.h"

/* Creates a collective of `ranks` ranks, of which this rank is number `own`: `op` with `attr`
 * (except its axis) and local shapes. `dtype` is the storage dtype. The request can be used for
 * planning, and runs once it is attached to a group. */
weft_status weft_comm_request_create(int ranks, int own, weft_op op, const weft_attr_comm *attr,
                                     const weft_shape *in, const weft_shape *out, weft_dtype dtype,
                                     const char *what, weft_comm_request **request);
/* Creates one all_reduce of `pieces` tensors of count[i] elements. */
weft_status weft_comm_request_create_bundle(int ranks, int own, weft_dtype dtype,
                                            const int64_t *count, int pieces, const char *what,
                                            weft_comm_request **request);
/* Creates a send to or a receive from member `peer` of `count` elements. Sends to one peer run one
 * at a time, and so do receives from one peer. No other request waits. */
weft_status weft_comm_request_create_send(int ranks, int own, int peer, int64_t count,
                                          weft_dtype dtype, const char *what,
                                          weft_comm_request **request);
weft_status weft_comm_request_create_recv(int ranks, int own, int peer, int64_t count,
                                          weft_dtype dtype, const char *what,
                                          weft_comm_request **request);
/* Creates a broadcast from member `root` to all; `in` equals `out`. */
weft_status weft_comm_request_create_broadcast(int ranks, int own, int root, int64_t count,
                                               weft_dtype dtype, const char *what,
                                               weft_comm_request **request);
/* Creates the request of member `own` from the request of an equal rank, whose parts are as large.
 * For devices without memory. `like` is borrowed. The request is planned when it runs. */
weft_status weft_comm_request_create_like(const weft_comm_request *like, int own,
                                          weft_comm_request **request);
/* Replaces WEFT_COMM_SEGMENT and WEFT_COMM_SCRATCH by `bytes`. Call it on all ranks, before the
 * request is bound. */
weft_status weft_comm_request_cut(weft_comm_request *request, int64_t bytes);
/* Attaches the request to the group that runs it, with the same number of ranks and this rank as
 * member `own`. May be called again with another group while the request is not in flight. Sends
 * nothing. */
weft_status weft_comm_request_attach(weft_comm_request *request, weft_group *group,
                                     weft_channel channel);
/* Bytes of scratch memory. Sufficient for every algorithm, so equal for all groups. */
int64_t weft_comm_request_scratch(const weft_comm_request *request);
/* Bytes of pinned memory for its messages, on a device that is apart. Sufficient for every
 * algorithm. */
int64_t weft_comm_request_pinned(const weft_comm_request *request);
/* Bytes of the request itself, without its buffers. */
int64_t weft_comm_request_own_bytes(const weft_comm_request *request);
/* Bytes that this rank sends in one run. */
int64_t weft_comm_request_wire_bytes(const weft_comm_request *request);
/* Predicts the seconds of one run on the attached group, by the algorithm that runs. */
weft_status weft_comm_request_predict(const weft_comm_request *request,
                                      const weft_link_costs *costs, double *seconds);
/* Chooses the algorithm for members on `span` by the default costs. Not while attached. */
weft_status weft_comm_request_plan_on(weft_comm_request *request, const weft_span *span);
/* Sets the device of the buffers and the stream for copies and additions. Default: the host. Only
 * requests of the same communicator may use the stream while the request is in flight. Messages
 * leave when the stream reaches them. On a meta device messages have sizes, for link models and
 * counts, and no content. */
void weft_comm_request_set_device(weft_comm_request *request, const weft_device *device,
                                  weft_device_stream *stream);
/* Sets the buffers before the first start; they do not change later. `in` may equal `out` for
 * all_reduce. */
void weft_comm_request_bind(weft_comm_request *request, const void *in, void *out, void *scratch);
/* Sets the pinned memory of the messages (NULL: the communicator's is used), and the gate at which
 * streams wait (kernel.h). Requests of one queue may share the memory. */
void weft_comm_request_set_pinned(weft_comm_request *request, char *wire, uint32_t *gate);
/* Binds a coalesced all-reduce: the scratch memory, then each piece. */
void weft_comm_request_bind_bundle(weft_comm_request *request, void *scratch);
void weft_comm_request_bind_piece(weft_comm_request *request, int piece, const void *in, void *out);

/* Work that is added to `stream` later begins after the started request; the host does not wait.
 * Needs a gate. weft_comm_request_wait then returns the result, and must be called after the
 * stream's work and before the next start. A failed request does not stop the stream. */
weft_status weft_comm_request_hold(weft_comm_request *request, weft_device_stream *stream);

/* Returns true if the last start has failed. The communicator has then failed, too. */
bool weft_comm_request_failed(const weft_comm_request *request);

/* ---- for the files of the communicator ------------------------------------------------------- */

typedef struct weft_coll_plan weft_coll_plan;
typedef struct weft_comm_segment weft_comm_segment;

/* Returns the block of collective chunk `chunk`; without a block, one of 0 rows. */
weft_block weft_comm_request_in(const weft_comm_request *x, int chunk);
weft_block weft_comm_request_out(const weft_comm_request *x, int chunk);
/* Plans the request unless it has a plan. */
weft_status weft_comm_request_plan(weft_comm_request *x);
/* Lays out the scratch memory of the chosen algorithm. *plan borrows the steps of `schedule`. */
void weft_coll_plan_lay_out(const weft_comm_request *x, const weft_coll_schedule *schedule,
                            weft_coll_plan *plan);
/* Returns the number of segments in flight. */
int weft_coll_plan_segments(const weft_coll_plan *plan);
/* Allocates the messages of the segments in `arena`. False: out of memory. */
bool weft_comm_segments_make(const weft_comm_request *x, const weft_coll_plan *plan,
                             weft_arena *arena, weft_comm_segment *segment);
/* Frees a request that is not in flight. */
void weft_comm_request_drop(weft_comm_request *x);

/* Adds the time that a stream waited for the finished request. */
weft_status weft_comm_request_end_hold(weft_comm_request *x);

const char *weft_comm_request_describe(const weft_comm_request *request);

#endif
