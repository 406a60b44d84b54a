#include "storage/stoppable_wait.h"

#include "base/interrupt.h"

#include <time.h>

enum { POLL_MS = 50 }; /* Ctrl-C sets a flag and wakes no thread */

static _Thread_local weft_stop *own; /* borrowed; NULL: none */
static _Thread_local bool ignores_interrupt;

void weft_stop_init(weft_stop *stop)
{
    pthread_condattr_t clock;
    stop->set = false;
    pthread_mutex_init(&stop->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&stop->changed, &clock);
    pthread_condattr_destroy(&clock);
}

void weft_stop_free(weft_stop *stop)
{
    pthread_mutex_destroy(&stop->lock);
    pthread_cond_destroy(&stop->changed);
}

void weft_stop_set(weft_stop *stop)
{
    pthread_mutex_lock(&stop->lock);
    stop->set = true;
    pthread_cond_broadcast(&stop->changed);
    pthread_mutex_unlock(&stop->lock);
}

void weft_stop_bind(weft_stop *stop)
{
    own = stop;
}

static bool is_set(void)
{
    if (!own)
        return false;
    pthread_mutex_lock(&own->lock);
    const bool set = own->set;
    pthread_mutex_unlock(&own->lock);
    return set;
}

void weft_stop_ignore_interrupt(bool ignores)
{
    ignores_interrupt = ignores;
}

bool weft_stop_ignores_interrupt(void)
{
    return ignores_interrupt;
}

bool weft_stop_requested(void)
{
    return (weft_interrupted() && !ignores_interrupt) || is_set();
}

weft_status weft_stop_check(void)
{
    if (!ignores_interrupt)
        WEFT_TRY(weft_interrupt_check());
    if (!is_set())
        return WEFT_OK;
    return weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "the work is not needed any more");
}

/* Sleeps, or waits for the stop of this thread. */
static void sleep_ms(int64_t ms)
{
    const struct timespec length = {.tv_nsec = (long)ms * 1000000};
    struct timespec end;
    if (!own) {
        nanosleep(&length, NULL);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += length.tv_nsec;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&own->lock);
    if (!own->set)
        pthread_cond_timedwait(&own->changed, &own->lock, &end);
    pthread_mutex_unlock(&own->lock);
}

weft_status weft_stoppable_wait(int64_t ms)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t left = ms; left > 0;) {
        WEFT_TRY(weft_stop_check());
        sleep_ms(left < POLL_MS ? left : POLL_MS);
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = ms - (now.tv_sec - start.tv_sec) * 1000 - (now.tv_nsec - start.tv_nsec) / 1000000;
    }
    return weft_stop_check();
}
