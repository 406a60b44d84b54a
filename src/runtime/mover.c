#include "runtime/mover.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/scratch_map.h"

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

weft_status weft_mover_measure(const char *dir, double *bytes_per_second)
{
    void *mapped;
    char *own = weft_alloc_aligned(MEASURED);
    if (!own)
        return weft_fail(WEFT_E_MEMORY, "no memory to measure copies with");
    weft_status_code status = weft_scratch_map(dir, MEASURED, "Choose another folder", &mapped);
    if (status == WEFT_OK) {
        double best = 0;
        memset(own, 1, MEASURED);
        for (int i = 0; i < 3; i++) {
            const double began = weft_now();
            copy(&(weft_carry){.to = mapped, .from = own, .bytes = MEASURED, .mapped = mapped});
            copy(&(weft_carry){.to = own, .from = mapped, .bytes = MEASURED, .mapped = mapped});
            const double rate = 2.0 * MEASURED / (weft_now() - began);
            best = rate > best ? rate : best;
        }
        *bytes_per_second = best;
        weft_scratch_unmap(mapped, MEASURED);
    }
    weft_free(own);
    return status;
}
