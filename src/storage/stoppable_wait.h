/* Waits that end early: by Ctrl-C, or because the work of the thread is not needed any more. */
#ifndef WEFT_STORAGE_STOPPABLE_WAIT_H
#define WEFT_STORAGE_STOPPABLE_WAIT_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A request that the bound threads end their work. */
typedef struct weft_stop {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool set;
} weft_stop;

void weft_stop_init(weft_stop *stop);
void weft_stop_free(weft_stop *stop);
/* Wakes the bound threads that wait, and ends their later waits at once. */
void weft_stop_set(weft_stop *stop);
/* Binds the calling thread. A thread without a stop ends its waits at Ctrl-C only. */
void weft_stop_bind(weft_stop *stop);
/* Whether the calling thread ignores Ctrl-C: it sends results, which must not be lost. Threads that
 * it starts for its work do the same with weft_stop_ignores_interrupt(). */
void weft_stop_ignore_interrupt(bool ignores);
bool weft_stop_ignores_interrupt(void);
/* Whether Ctrl-C was pressed or the stop of this thread is set. */
bool weft_stop_requested(void);
/* WEFT_E_CANCELLED if so. */
weft_status weft_stop_check(void);
/* Sleeps. WEFT_E_CANCELLED: the wait ended early. */
weft_status weft_stoppable_wait(int64_t ms);

#endif
