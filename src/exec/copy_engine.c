#include "exec/copy_engine.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/scratch_map.h"
#include "comm/measure.h"
#include "kernel/cpu/table.h"
#include "kernel/device.h"
#include "kernel/host.h"

#include <pthread.h>
#include <string.h>

enum {
    PIECE = 1 << 20,   /* bytes of a mapped file in memory at a time */
    MEASURED = 8 << 20 /* bytes of the trial copy */
};

struct weft_copy_engine {
    const weft_device *device;
    weft_device_stream *stream; /* NULL on the host */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    weft_copy_request *first, *last; /* queue; the first is being copied */
    bool leave;
};

/* ---- the host: a thread ---------------------------------------------------------------------- */

static void copy(const weft_copy_request *m)
{
    for (int64_t at = 0; at < m->bytes; at += PIECE) {
        const int64_t bytes = m->bytes - at < PIECE ? m->bytes - at : PIECE;
        memcpy((char *)m->to + at, (const char *)m->from + at, (size_t)bytes);
        if (m->mapped)
            weft_map_forget((const char *)m->mapped + at, bytes);
    }
}

static void *run(void *user)
{
    weft_copy_engine *v = user;
    pthread_mutex_lock(&v->mutex);
    while (!v->leave || v->first) {
        weft_copy_request *m = v->first;
        if (!m) {
            pthread_cond_wait(&v->changed, &v->mutex);
            continue;
        }
        pthread_mutex_unlock(&v->mutex);
        m->started = weft_now();
        copy(m);
        m->finished = weft_now();
        pthread_mutex_lock(&v->mutex);
        v->first = m->next;
        m->done = true;
        pthread_cond_broadcast(&v->changed);
    }
    pthread_mutex_unlock(&v->mutex);
    return NULL;
}

/* ---- host and device ----------------------------------------------------------------------- */

weft_status weft_copy_engine_create(const weft_backend *backend, weft_copy_engine **out)
{
    weft_copy_engine *v;
    WEFT_TRY(WEFT_NEW(v, 1, "a copy engine"));
    v->device = backend->device;
    pthread_mutex_init(&v->mutex, NULL);
    pthread_cond_init(&v->changed, NULL);
    v->threaded = v->device == &weft_device_host;
    const weft_status_code status = !v->threaded ? v->device->open(v->device, backend, &v->stream)
                                    : pthread_create(&v->thread, NULL, run, v)
                                        ? weft_no_memory("the thread that copies")
                                        : WEFT_OK;
    if (status != WEFT_OK) {
        v->threaded = false;
        weft_copy_engine_free(v);
        return status;
    }
    *out = v;
    return WEFT_OK;
}

void weft_copy_engine_free(weft_copy_engine *v)
{
    if (!v)
        return;
    if (v->threaded) {
        pthread_mutex_lock(&v->mutex);
        v->leave = true;
        pthread_cond_broadcast(&v->changed);
        pthread_mutex_unlock(&v->mutex);
        pthread_join(v->thread, NULL);
    }
    if (v->stream)
        v->device->close(v->stream);
    pthread_mutex_destroy(&v->mutex);
    pthread_cond_destroy(&v->changed);
    weft_free(v);
}

/* Starts a copy on the stream of the copies. */
static weft_status start_stream(weft_copy_engine *v, weft_copy_request *m,
                                weft_device_stream *stream)
{
    if (weft_device_is_apart(v->device)) {
        WEFT_TRY(v->device->record(stream, &m->ready));
        v->device->after(v->stream, &m->ready);
    } else {
        WEFT_TRY(v->device->wait(stream));
    }
    WEFT_TRY(v->device->record(v->stream, &m->begun));
    v->device->host_copy(v->stream, m->to, m->from, m->bytes);
    return v->device->record(v->stream, &m->ended);
}

weft_status weft_copy_engine_start(weft_copy_engine *v, weft_copy_request *m,
                                   weft_device_stream *stream)
{
    m->next = NULL;
    m->done = false;
    m->waited = 0;
    if (!v->threaded)
        return start_stream(v, m, stream);
    pthread_mutex_lock(&v->mutex);
    if (v->first)
        v->last->next = m;
    else
        v->first = m;
    v->last = m;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
    return WEFT_OK;
}

static weft_status await_copy(weft_copy_engine *v, weft_copy_request *m)
{
    WEFT_TRY(v->device->await(v->stream, &m->begun));
    WEFT_TRY(v->device->await(v->stream, &m->ended));
    m->started = m->begun.seconds;
    m->finished = m->ended.seconds;
    m->done = true;
    return WEFT_OK;
}

weft_status weft_copy_engine_wait(weft_copy_engine *v, weft_copy_request *m,
                                  weft_device_stream *stream)
{
    const double began = weft_now();
    if (weft_device_is_apart(v->device)) {
        WEFT_TRY(v->device->record(stream, &m->met));
        v->device->after(stream, &m->ended);
        return WEFT_OK;
    }
    if (!v->threaded) {
        WEFT_TRY(await_copy(v, m));
    } else {
        pthread_mutex_lock(&v->mutex);
        while (!m->done)
            pthread_cond_wait(&v->changed, &v->mutex);
        pthread_mutex_unlock(&v->mutex);
    }
    m->waited = weft_now() - began;
    return WEFT_OK;
}

weft_status weft_copy_engine_time(weft_copy_engine *v, weft_copy_request *m,
                                  weft_device_stream *stream)
{
    if (!weft_device_is_apart(v->device))
        return WEFT_OK; /* known since the wait */
    WEFT_TRY(await_copy(v, m));
    WEFT_TRY(v->device->await(stream, &m->met));
    m->waited = m->finished > m->met.seconds ? m->finished - m->met.seconds : 0;
    return WEFT_OK;
}

void weft_copy_request_forget(weft_copy_request *m, const weft_device *device)
{
    weft_event *const all[] = {&m->ready, &m->begun, &m->ended, &m->met};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        device->forget(device, all[i]);
}

void weft_copy_engine_finish(weft_copy_engine *v)
{
    if (!v->threaded) {
        v->device->wait(v->stream);
        return;
    }
    pthread_mutex_lock(&v->mutex);
    while (v->first)
        pthread_cond_wait(&v->changed, &v->mutex);
    pthread_mutex_unlock(&v->mutex);
}

/* ---- rates --------------------------------------------------------------------------------- */

enum { PIECES = MEASURED / PIECE, ROUNDS = 8, REGIONS = 16 };

typedef struct trial {
    char *own, *mapped;
    weft_copy_engine *copies;
    weft_copy_request copy[2 * PIECES]; /* all offloads, then all fetches */
} trial;

static void lay_out(trial *t)
{
    for (int i = 0; i < 2 * PIECES; i++) {
        const int64_t at = (int64_t)(i % PIECES) * PIECE;
        char *const own = t->own + at, *const mapped = t->mapped + at;
        t->copy[i] = (weft_copy_request){.to = i < PIECES ? mapped : own,
                                         .from = i < PIECES ? own : mapped,
                                         .bytes = PIECE,
                                         .mapped = mapped};
    }
}

/* Seconds to copy one piece out and back. Pieces are short, so that some copies run undisturbed
 * even on a busy machine. */
static double copy_seconds(const trial *t)
{
    double took[2][ROUNDS * PIECES];
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2 * PIECES; i++) {
            const double began = weft_now();
            copy(&t->copy[i]);
            took[i / PIECES][round * PIECES + i % PIECES] = weft_now() - began;
        }
    return weft_measure_quick(took[0], ROUNDS * PIECES, 4) +
           weft_measure_quick(took[1], ROUNDS * PIECES, 4);
}

/* Seconds of simulated kernels: all threads do equal work and meet in a barrier. */
static double kernel_seconds(int64_t count)
{
    const double began = weft_now();
    for (int i = 0; i < REGIONS; i++) {
#pragma omp parallel
        weft_measure_work(count / REGIONS);
    }
    return weft_now() - began;
}

/* Slowdown of kernels by concurrent copies of `copying` seconds. weft_measure_slowdown limits the
 * loss to that time, because a larger loss has other causes. */
static double slowdown_of(trial *t, double copying)
{
    double alone[ROUNDS], both[ROUNDS];
    int64_t count = 100000;
    for (int i = 0; i < ROUNDS; i++)
        alone[i] = kernel_seconds(count);
    /* kernels long enough that the copies end within them even with half a core */
    count = (int64_t)((double)count * 3 * copying / weft_measure_quick(alone, ROUNDS, 4)) + REGIONS;
    for (int i = 0; i < ROUNDS; i++) {
        alone[i] = kernel_seconds(count);
        const double began = weft_now();
        weft_status_code started = WEFT_OK; /* always, on the host */
        for (int k = 0; k < 2 * PIECES && started == WEFT_OK; k++)
            started = weft_copy_engine_start(t->copies, &t->copy[k], NULL);
        kernel_seconds(count);
        weft_copy_engine_finish(t->copies);
        both[i] = weft_now() - began;
    }
    return weft_measure_slowdown(alone, both, ROUNDS, copying);
}

weft_status weft_copy_engine_measure(const char *dir, weft_copy_engine_rates *rates)
{
    trial t = {.own = weft_alloc_aligned(MEASURED)};
    void *mapped = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(t.own, "measuring copies"));
    memset(t.own, 1, MEASURED);
    WEFT_GO(weft_scratch_map(dir, MEASURED,
                             "This space measures the speed of copies; offloaded activations need "
                             "more. Set memory.offload to another folder, or to none",
                             &mapped));
    WEFT_GO(weft_copy_engine_create(&weft_backend_cpu, &t.copies));
    t.mapped = mapped;
    lay_out(&t);
    const double piece = copy_seconds(&t);
    *rates = (weft_copy_engine_rates){2.0 * PIECE / piece, slowdown_of(&t, PIECES * piece)};
out:
    weft_copy_engine_free(t.copies);
    weft_scratch_unmap(mapped, MEASURED);
    weft_free(t.own);
    weft_memory_trim(); /* as measure_products.c does */
    return status;
}
