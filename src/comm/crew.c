#include "comm/crew.h"

#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* Milliseconds between idle calls of all members, which read notes and check deadlines. */
enum { IDLE_MS = 50 };

struct weft_crew {
    pthread_mutex_t mutex;
    pthread_cond_t call; /* the thread sleeps on it */
    pthread_cond_t left; /* the thread has finished with `driven` */
    pthread_t thread;
    bool running, stop, asleep;
    weft_crew_member *first_called, **last_called, *members, *driven;
};

weft_crew *weft_crew_create(void)
{
    weft_crew *c = weft_alloc(sizeof *c);
    if (!c)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->call, &monotonic);
    pthread_cond_init(&c->left, &monotonic);
    pthread_condattr_destroy(&monotonic);
    c->last_called = &c->first_called;
    return c;
}

void weft_crew_free(weft_crew *c)
{
    if (!c)
        return;
    if (c->running) {
        pthread_mutex_lock(&c->mutex);
        c->stop = true;
        pthread_cond_signal(&c->call);
        pthread_mutex_unlock(&c->mutex);
        pthread_join(c->thread, NULL);
    }
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->call);
    pthread_cond_destroy(&c->left);
    weft_free(c);
}

/* ---- the thread; functions hold the mutex except while calling drive ------------------------- */

static void drive(weft_crew *c, weft_crew_member *m, bool idle)
{
    c->driven = m;
    pthread_mutex_unlock(&c->mutex);
    m->drive(m->user, idle);
    pthread_mutex_lock(&c->mutex);
    c->driven = NULL;
    pthread_cond_broadcast(&c->left);
}

static weft_crew_member *take_called(weft_crew *c)
{
    weft_crew_member *m = c->first_called;
    c->first_called = m->next_called;
    if (!c->first_called)
        c->last_called = &c->first_called;
    m->next_called = NULL;
    m->called = false;
    return m;
}

static bool sleep_on(weft_crew *c)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    c->asleep = true;
    const int error = pthread_cond_timedwait(&c->call, &c->mutex, &until);
    c->asleep = false;
    return error == ETIMEDOUT;
}

/* The driven member can leave only afterwards, so `next` is a member. */
static void drive_all(weft_crew *c)
{
    for (weft_crew_member *m = c->members, *next; m && !c->stop && !c->first_called; m = next) {
        drive(c, m, true);
        next = m->next;
    }
}

static void *work(void *argument)
{
    weft_crew *c = argument;
    pthread_mutex_lock(&c->mutex);
    while (!c->stop) {
        if (c->first_called)
            drive(c, take_called(c), false);
        else if (sleep_on(c))
            drive_all(c);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

/* ---- members --------------------------------------------------------------------------------- */

weft_status weft_crew_join(weft_crew *c, weft_crew_member *m)
{
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&c->mutex);
    if (!c->running) {
        const int error = pthread_create(&c->thread, NULL, work, c);
        c->running = error == 0;
        if (error)
            WEFT_GO(weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE,
                               "cannot start the thread that drives communication: %s",
                               strerror(error)));
    }
    m->crew = c;
    m->next = c->members;
    m->before = NULL;
    if (m->next)
        m->next->before = m;
    c->members = m;
out:
    pthread_mutex_unlock(&c->mutex);
    return status;
}

void weft_crew_call(weft_crew_member *m)
{
    weft_crew *c = m->crew;
    pthread_mutex_lock(&c->mutex);
    if (!m->called) {
        m->called = true;
        m->next_called = NULL;
        *c->last_called = m;
        c->last_called = &m->next_called;
        if (c->asleep)
            pthread_cond_signal(&c->call);
    }
    pthread_mutex_unlock(&c->mutex);
}

static void forget_call(weft_crew *c, weft_crew_member *m)
{
    weft_crew_member **at = &c->first_called;
    while (*at && *at != m)
        at = &(*at)->next_called;
    if (!*at)
        return;
    *at = m->next_called;
    if (c->last_called == &m->next_called)
        c->last_called = at;
    m->called = false;
}

void weft_crew_leave(weft_crew_member *m)
{
    weft_crew *c = m->crew;
    if (!c)
        return;
    pthread_mutex_lock(&c->mutex);
    while (c->driven == m)
        pthread_cond_wait(&c->left, &c->mutex);
    forget_call(c, m);
    *(m->before ? &m->before->next : &c->members) = m->next;
    if (m->next)
        m->next->before = m->before;
    m->crew = NULL;
    pthread_mutex_unlock(&c->mutex);
}
