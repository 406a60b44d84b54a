#include "kernel/cuda/cuda_peer.h"

#include "kernel/cuda/cuda_gpu.h"
#include "kernel/cuda/cuda_wait.h"

#include <math.h>

enum { ROUNDS = 4 }; /* the first one is not measured */

/* A copy from the GPU of the process to another one. The stream and the events are of the
 * process's GPU. */
typedef struct peer_copy {
    const weft_cuda_gpu *gpu;
    int ordinal; /* of the other GPU */
    cuda_gpu other;
    cuda_context context; /* of the other GPU; NULL: not retained */
    cuda_address from, to;
    cuda_stream stream;
    cuda_event begin, end;
    size_t bytes;
} peer_copy;

static weft_status check(const peer_copy *c, cuda_result result)
{
    return result == CUDA_OK ? WEFT_OK
                             : weft_cuda_gpu_error(c->gpu, result, "copies to another GPU");
}

static weft_status use(const peer_copy *c, cuda_context context)
{
    return check(c, c->gpu->driver->context_set(context));
}

static weft_status prepare(peer_copy *c, weft_cuda_peer *peer)
{
    const weft_cuda_driver *d = c->gpu->driver;
    int direct = 0;
    WEFT_TRY(check(c, d->device_get(&c->other, c->ordinal)));
    WEFT_TRY(check(c, d->peer_can(&direct, c->gpu->gpu, c->other)));
    WEFT_TRY(check(c, d->context_retain(&c->context, c->other)));
    WEFT_TRY(use(c, c->context));
    WEFT_TRY(check(c, d->alloc(&c->to, c->bytes)));
    WEFT_TRY(use(c, c->gpu->context));
    if (direct) {
        const cuda_result result = d->peer_enable(c->context, 0);
        peer->is_direct = result == CUDA_OK || result == CUDA_PEER_ENABLED;
    }
    WEFT_TRY(check(c, d->alloc(&c->from, c->bytes)));
    WEFT_TRY(check(c, d->stream_create(&c->stream, CUDA_STREAM_NON_BLOCKING)));
    WEFT_TRY(check(c, d->event_create(&c->begin, 0)));
    WEFT_TRY(check(c, d->event_create(&c->end, 0)));
    return check(c, d->fill(c->from, 0, c->bytes, c->stream));
}

static weft_status wait(const peer_copy *c)
{
    const cuda_result result = weft_cuda_wait(c->gpu, c->stream, c->end);
    if (result != CUDA_NOT_READY)
        return check(c, result);
    return weft_error(WEFT_MSG_GPU_HANG,
                      WEFT_AT(.value = c->gpu->name, WEFT_NUMBER(weft_cuda_deadline())),
                      "a copy from GPU %d (%s) to GPU %d did not end within %g s. "
                      "WEFT_CUDA_DEADLINE sets the seconds.",
                      c->gpu->ordinal, c->gpu->name, c->ordinal, weft_cuda_deadline());
}

static weft_status copy_once(const peer_copy *c, double *rate)
{
    const weft_cuda_driver *d = c->gpu->driver;
    float milliseconds = 0;
    WEFT_TRY(check(c, d->event_record(c->begin, c->stream)));
    WEFT_TRY(
        check(c, d->peer_copy(c->to, c->context, c->from, c->gpu->context, c->bytes, c->stream)));
    WEFT_TRY(check(c, d->event_record(c->end, c->stream)));
    WEFT_TRY(wait(c));
    WEFT_TRY(check(c, d->event_elapsed(&milliseconds, c->begin, c->end)));
    *rate = milliseconds > 0 ? (double)c->bytes / (1e-3 * (double)milliseconds) : 0;
    return WEFT_OK;
}

/* Leaves the context of the process's GPU current. After a hang all memory stays: the driver would
 * wait for the copy. */
static void finish(const peer_copy *c)
{
    const weft_cuda_driver *d = c->gpu->driver;
    if (weft_cuda_is_stuck()) {
        d->context_set(c->gpu->context);
        return;
    }
    /* after an error, earlier work may still use the memory */
    if (c->end && d->event_record(c->end, c->stream) == CUDA_OK)
        (void)weft_cuda_wait(c->gpu, c->stream, c->end);
    if (c->context && d->context_set(c->context) == CUDA_OK && c->to)
        d->free(c->to);
    d->context_set(c->gpu->context);
    if (c->begin)
        d->event_destroy(c->begin);
    if (c->end)
        d->event_destroy(c->end);
    if (c->stream)
        d->stream_destroy(c->stream);
    if (c->from)
        d->free(c->from);
    if (c->context)
        d->context_release(c->other);
}

weft_status weft_cuda_peer_measure(int ordinal, int64_t bytes, weft_cuda_peer *peer)
{
    peer_copy c = {.ordinal = ordinal, .bytes = (size_t)bytes};
    weft_status_code status = WEFT_OK;
    *peer = (weft_cuda_peer){0};
    WEFT_TRY(weft_cuda_gpu_get(&c.gpu));
    WEFT_GO(prepare(&c, peer));
    for (int i = 0; i < ROUNDS; i++) {
        double rate;
        WEFT_GO(copy_once(&c, &rate));
        peer->rate = i ? fmax(peer->rate, rate) : 0;
    }
out:
    finish(&c);
    return status;
}
