#include "runtime/mover.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/scratch_map.h"
#include "runtime/measure.h"

#include <pthread.h>
#include <string.h>

enum {
    PIECE = 1 << 20,   /* bytes of a mapped file that are in this process' memory at a time */
    MEASURED = 8 << 20 /* bytes that are copied to see how long that takes */
};

struct weft_mover {
    const weft_device *device;
    weft_device_stream *stream; /* of another device than the host */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    weft_carry *first, *last; /* the first is being copied */
    bool leave;
};

/* ---- the host: a thread ---------------------------------------------------------------------- */

static void copy(const weft_carry *m)
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
    weft_mover *v = user;
    pthread_mutex_lock(&v->mutex);
    while (!v->leave || v->first) {
        weft_carry *m = v->first;
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

/* ---- both ------------------------------------------------------------------------------------ */

weft_status weft_mover_create(const weft_backend *backend, weft_mover **out)
{
    weft_mover *v = weft_alloc(sizeof *v);
    if (!v)
        return weft_fail(WEFT_E_MEMORY, "no memory for copies beside the kernels");
    v->device = backend->device;
    pthread_mutex_init(&v->mutex, NULL);
    pthread_cond_init(&v->changed, NULL);
    v->threaded = v->device == &weft_device_host;
    const weft_status_code status = !v->threaded ? v->device->open(backend, &v->stream)
                                    : pthread_create(&v->thread, NULL, run, v)
                                        ? weft_fail(WEFT_E_MEMORY, "no thread for copies")
                                        : WEFT_OK;
    if (status != WEFT_OK) {
        v->threaded = false;
        weft_mover_free(v);
        return status;
    }
    *out = v;
    return WEFT_OK;
}

void weft_mover_free(weft_mover *v)
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

void weft_mover_start(weft_mover *v, weft_carry *m)
{
    m->next = NULL;
    m->done = false;
    m->waited = 0;
    if (!v->threaded) {
        v->device->record(v->stream, &m->event[0]);
        v->device->carry(v->stream, m->to, m->from, m->bytes);
        v->device->record(v->stream, &m->event[1]);
        return;
    }
    pthread_mutex_lock(&v->mutex);
    if (v->first)
        v->last->next = m;
    else
        v->first = m;
    v->last = m;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
}

weft_status weft_mover_wait(weft_mover *v, weft_carry *m)
{
    const double began = weft_now();
    if (!v->threaded) {
        WEFT_TRY(v->device->await(v->stream, &m->event[0]));
        WEFT_TRY(v->device->await(v->stream, &m->event[1]));
        m->started = m->event[0].seconds;
        m->finished = m->event[1].seconds;
        m->done = true;
    } else {
        pthread_mutex_lock(&v->mutex);
        while (!m->done)
            pthread_cond_wait(&v->changed, &v->mutex);
        pthread_mutex_unlock(&v->mutex);
    }
    m->waited = weft_now() - began;
    return WEFT_OK;
}

void weft_mover_finish(weft_mover *v)
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

/* ---- how fast -------------------------------------------------------------------------------- */

enum { PIECES = MEASURED / PIECE, ROUNDS = 8, REGIONS = 16 };

typedef struct trial {
    char *own, *mapped;
    weft_mover *mover;
    weft_carry carry[2 * PIECES]; /* out, then back */
} trial;

static void lay_out(trial *t)
{
    for (int i = 0; i < 2 * PIECES; i++) {
        const int64_t at = (int64_t)(i % PIECES) * PIECE;
        char *const own = t->own + at, *const mapped = t->mapped + at;
        t->carry[i] = (weft_carry){.to = i < PIECES ? mapped : own,
                                   .from = i < PIECES ? own : mapped,
                                   .bytes = PIECE,
                                   .mapped = mapped};
    }
}

/* Of a piece out and back. They are short, so that some are not disturbed where others compute. */
static double copy_seconds(const trial *t)
{
    double took[2][ROUNDS * PIECES];
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2 * PIECES; i++) {
            const double began = weft_now();
            copy(&t->carry[i]);
            took[i / PIECES][round * PIECES + i % PIECES] = weft_now() - began;
        }
    return weft_measure_quick(took[0], ROUNDS * PIECES, 4) +
           weft_measure_quick(took[1], ROUNDS * PIECES, 4);
}

/* Seconds of kernels: all threads have the same to do, and wait for one another at the end. */
static double kernel_seconds(int64_t count)
{
    const double began = weft_now();
    for (int i = 0; i < REGIONS; i++) {
#pragma omp parallel
        weft_measure_work(count / REGIONS);
    }
    return weft_now() - began;
}

/* What kernels lose beside all copies, which take `copying` seconds: no more of a core than that;
 * what is above it others took. */
static double drag_of(trial *t, double copying)
{
    double alone[ROUNDS], both[ROUNDS];
    int64_t count = 100000;
    for (int i = 0; i < ROUNDS; i++)
        alone[i] = kernel_seconds(count);
    /* so long that the copies end beside it where they have half a core */
    count = (int64_t)((double)count * 3 * copying / weft_measure_quick(alone, ROUNDS, 4)) + REGIONS;
    for (int i = 0; i < ROUNDS; i++) {
        alone[i] = kernel_seconds(count);
        const double began = weft_now();
        for (int k = 0; k < 2 * PIECES; k++)
            weft_mover_start(t->mover, &t->carry[k]);
        kernel_seconds(count);
        weft_mover_finish(t->mover);
        both[i] = weft_now() - began;
    }
    return weft_measure_drag(alone, both, ROUNDS, copying);
}

weft_status weft_mover_measure(const char *dir, weft_mover_rates *rates)
{
    trial t = {.own = weft_alloc_aligned(MEASURED)};
    void *mapped = NULL;
    weft_status_code status = WEFT_OK;
    if (!t.own)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory to measure copies with"));
    memset(t.own, 1, MEASURED);
    WEFT_GO(weft_scratch_map(dir, MEASURED,
                             "So much is copied to see how fast that is, and what steps move away "
                             "comes on top. Another folder for memory.offload, or none",
                             &mapped));
    WEFT_GO(weft_mover_create(&weft_backend_cpu, &t.mover));
    t.mapped = mapped;
    lay_out(&t);
    const double piece = copy_seconds(&t);
    *rates = (weft_mover_rates){2.0 * PIECE / piece, drag_of(&t, PIECES * piece)};
out:
    weft_mover_free(t.mover);
    weft_scratch_unmap(mapped, MEASURED);
    weft_free(t.own);
    return status;
}
