/* Small collectives of complete groups that are created, run and freed at once. */
#include "comm/comm_world.h"

#include "comm/comm_internal.h"

#include "base/interrupt.h"
#include "comm/comm_request.h"
#include "graph/graph.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static const weft_shape number = {.rank = 1, .dim = {1}};

/* Takes ownership of `x`. */
static weft_status run_now(weft_group *group, weft_channel channel, weft_comm_request *x,
                           const void *in, void *out)
{
    void *scratch = weft_alloc_aligned(weft_comm_request_scratch(x) + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(scratch ? weft_comm_request_attach(x, group, channel)
                    : weft_no_memory("%s", weft_comm_request_describe(x)));
    weft_comm_request_bind(x, in, out, scratch);
    weft_comm_request_start(x);
    WEFT_GO(weft_comm_request_wait(x));
out:
    weft_comm_request_free(x);
    weft_free(scratch);
    return status;
}

weft_status weft_group_barrier(weft_group *group)
{
    const int32_t one = 1;
    int32_t sum;
    weft_comm_request *x;
    WEFT_TRY(weft_comm_request_create(group->count, group->own, WEFT_OP_ALL_REDUCE,
                                      &(weft_attr_comm){0}, &number, &number, WEFT_I32, "a barrier",
                                      &x));
    return run_now(group, WEFT_CHANNEL_CONTROL, x, &one, &sum);
}

weft_status weft_group_broadcast(weft_group *group, void *data, int64_t bytes, int root)
{
    weft_comm_request *x;
    WEFT_TRY(weft_comm_request_create_broadcast(group->count, group->own, root, bytes, WEFT_U8,
                                                "some bytes", &x));
    return run_now(group, WEFT_CHANNEL_CONTROL, x, data, data);
}

weft_status weft_group_all_gather(weft_group *group, const void *data, int64_t bytes, void *out)
{
    const weft_shape in = WEFT_SHAPE(1, bytes), all = WEFT_SHAPE(group->count, bytes);
    weft_comm_request *x;
    WEFT_TRY(weft_comm_request_create(group->count, group->own, WEFT_OP_ALL_GATHER,
                                      &(weft_attr_comm){.dim = 0}, &in, &all, WEFT_U8, "some bytes",
                                      &x));
    return run_now(group, WEFT_CHANNEL_CONTROL, x, data, out);
}

weft_status weft_group_sum(weft_group *group, double *values, int64_t count)
{
    const weft_shape shape = WEFT_SHAPE(count);
    weft_comm_request *x;
    WEFT_TRY(weft_comm_request_create(group->count, group->own, WEFT_OP_ALL_REDUCE,
                                      &(weft_attr_comm){0}, &shape, &shape, WEFT_F64,
                                      "some numbers", &x));
    return run_now(group, WEFT_CHANNEL_CONTROL, x, values, values);
}

struct weft_send_buffer {
    atomic_int holders;
    int64_t bytes;
    _Alignas(64) char data[];
};

/* Bytes of all buffers of the process: now, and the largest sum. */
static atomic_llong buffers_now, buffers_peak;

static void count_buffer(int64_t bytes)
{
    const long long now = atomic_fetch_add(&buffers_now, bytes) + bytes;
    long long peak = atomic_load(&buffers_peak);
    while (now > peak && !atomic_compare_exchange_weak(&buffers_peak, &peak, now))
        ;
}

weft_status weft_send_buffer_create(int64_t bytes, weft_send_buffer **held)
{
    weft_send_buffer *h = weft_alloc_aligned((int64_t)sizeof *h + bytes);
    WEFT_TRY(WEFT_ALLOCATED(h, "a message of %" PRId64 " bytes", bytes));
    atomic_init(&h->holders, 1);
    h->bytes = bytes;
    count_buffer(bytes);
    *held = h;
    return WEFT_OK;
}

void *weft_send_buffer_data(weft_send_buffer *held)
{
    return held->data;
}

void weft_send_buffer_release(weft_send_buffer *held)
{
    if (!held || atomic_fetch_sub(&held->holders, 1) != 1)
        return;
    count_buffer(-held->bytes);
    weft_free(held);
}

int64_t weft_send_buffers_peak(void)
{
    return atomic_exchange(&buffers_peak, atomic_load(&buffers_now));
}

weft_status weft_group_send_held(weft_group *group, weft_channel channel, int peer,
                                 weft_send_buffer *held, const void *data, int64_t bytes,
                                 const weft_device *device, weft_device_stream *stream,
                                 double *when)
{
    weft_comm_request *x;
    WEFT_TRY(weft_comm_request_create_send(group->count, group->own, peer, bytes, WEFT_U8,
                                           "some bytes", &x));
    atomic_fetch_add(&held->holders, 1);
    x->run.held = held;
    const weft_status_code status = weft_comm_request_attach(x, group, channel);
    if (status != WEFT_OK) {
        weft_comm_request_free(x);
        return status;
    }
    if (stream)
        weft_comm_request_set_device(x, device, stream);
    if (when && x->simulated.clock.now)
        x->simulated.clock.now = when;
    weft_comm_request_bind(x, data, weft_send_buffer_data(held), NULL);
    return weft_comm_request_start_detached(x);
}

weft_status weft_group_send(weft_group *group, weft_channel channel, int peer, const void *data,
                            int64_t bytes)
{
    weft_send_buffer *copy;
    WEFT_TRY(weft_send_buffer_create(bytes, &copy));
    memcpy(weft_send_buffer_data(copy), data, (size_t)bytes);
    const weft_status_code status =
        weft_group_send_held(group, channel, peer, copy, copy->data, bytes, NULL, NULL, NULL);
    weft_send_buffer_release(copy);
    return status;
}

weft_status weft_group_recv(weft_group *group, weft_channel channel, int peer, void *data,
                            int64_t bytes)
{
    weft_comm_request *x;
    WEFT_TRY(weft_comm_request_create_recv(group->count, group->own, peer, bytes, WEFT_U8,
                                           "some bytes", &x));
    return run_now(group, channel, x, data, data);
}

/* ---- collectives of all ranks ---------------------------------------------------------------- */

weft_status weft_comm_barrier(weft_comm *comm)
{
    weft_group *world;
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    WEFT_TRY(weft_comm_world(comm, &world));
    return weft_group_barrier(world);
}

weft_status weft_comm_broadcast(weft_comm *comm, void *data, int64_t bytes, int root)
{
    weft_group *world;
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    WEFT_TRY(weft_comm_world(comm, &world));
    return weft_group_broadcast(world, data, bytes, root);
}

weft_status weft_comm_await_broadcast(weft_comm *comm, void *data, int64_t bytes, int root,
                                      void (*idle)(void *user), void *user)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    weft_group *world;
    weft_comm_request *x;
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_TRY(weft_comm_request_create_broadcast(world->count, world->own, root, bytes, WEFT_U8,
                                                "an order", &x));
    void *scratch = weft_alloc_aligned(weft_comm_request_scratch(x) + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(scratch, "an order"));
    WEFT_GO(weft_comm_request_attach(x, world, WEFT_CHANNEL_CONTROL));
    weft_comm_request_bind(x, data, data, scratch);
    weft_comm_request_start(x);
    while (!weft_comm_request_done(x) && !weft_comm_request_failed(x)) {
        nanosleep(&pause, NULL);
        idle(user);
    }
    WEFT_GO(weft_comm_request_wait(x));
out:
    weft_comm_request_free(x);
    weft_free(scratch);
    return status;
}

weft_status weft_comm_all_gather(weft_comm *comm, const void *data, int64_t bytes, void *out)
{
    weft_group *world;
    if (weft_comm_ranks(comm) == 1) {
        memcpy(out, data, (size_t)bytes);
        return WEFT_OK;
    }
    WEFT_TRY(weft_comm_world(comm, &world));
    return weft_group_all_gather(world, data, bytes, out);
}

weft_status weft_comm_sum(weft_comm *comm, double *values, int64_t count)
{
    weft_group *world;
    if (weft_comm_ranks(comm) == 1)
        return WEFT_OK;
    WEFT_TRY(weft_comm_world(comm, &world));
    return weft_group_sum(world, values, count);
}

weft_status weft_comm_agree(weft_comm *comm, weft_status_code status, const char *work)
{
    double failed = status != WEFT_OK;
    if (weft_comm_ranks(comm) == 1)
        return status;
    weft_error_copy *own = status != WEFT_OK ? weft_error_save() : NULL;
    const weft_status_code asked = weft_comm_sum(comm, &failed, 1);
    if (asked == WEFT_OK && status != WEFT_OK)
        weft_error_restore(own);
    weft_free(own);
    WEFT_TRY(asked);
    WEFT_TRY(status);
    return failed > 0
               ? weft_error(WEFT_MSG_RANK_FAILED, WEFT_NOWHERE, "another rank cannot %s", work)
               : WEFT_OK;
}

weft_status weft_comm_interrupt_check(weft_comm *comm)
{
    double interrupted = weft_interrupted();
    WEFT_TRY(weft_comm_sum(comm, &interrupted, 1));
    return interrupted > 0 ? weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "stopped by the user")
                           : WEFT_OK;
}
