#include "storage/work_threads.h"

#include "base/memory.h"
#include "storage/stoppable_wait.h"

typedef struct crew {
    weft_status_code (*work)(void *user, int64_t item);
    void *user;
    bool ignores_interrupt;
    weft_stop stop;       /* set by the first error */
    pthread_mutex_t lock; /* of all below */
    int64_t items, next;
    weft_status_code status;
    weft_error_copy *error; /* of `status` */
} crew;

/* -1: no item is left, or one has failed. */
static int64_t take(crew *c)
{
    pthread_mutex_lock(&c->lock);
    const int64_t item = c->status == WEFT_OK && c->next < c->items ? c->next++ : -1;
    pthread_mutex_unlock(&c->lock);
    return item;
}

static void fail(crew *c, weft_status_code status)
{
    pthread_mutex_lock(&c->lock);
    if (c->status == WEFT_OK) {
        c->status = status;
        c->error = weft_error_save();
    }
    pthread_mutex_unlock(&c->lock);
    weft_stop_set(&c->stop);
}

static void *work_main(void *user)
{
    crew *c = user;
    weft_stop_bind(&c->stop);
    weft_stop_ignore_interrupt(c->ignores_interrupt);
    for (int64_t item; (item = take(c)) >= 0;) {
        const weft_status_code status = c->work(c->user, item);
        if (status != WEFT_OK)
            fail(c, status);
    }
    return NULL;
}

weft_status weft_work_run(int64_t items, weft_status_code (*work)(void *user, int64_t item),
                          void *user)
{
    crew c = {.work = work,
              .user = user,
              .items = items,
              .ignores_interrupt = weft_stop_ignores_interrupt()};
    pthread_t thread[WEFT_WORK_THREADS];
    int threads = 0;
    weft_stop_init(&c.stop);
    pthread_mutex_init(&c.lock, NULL);
    while (threads < WEFT_WORK_THREADS && threads < items &&
           pthread_create(&thread[threads], NULL, work_main, &c) == 0)
        threads++;
    if (items > 0 && threads == 0)
        fail(&c, weft_no_memory("the threads of a transfer"));
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&c.lock);
    weft_stop_free(&c.stop);
    const weft_status_code status = c.status == WEFT_OK ? WEFT_OK
                                    : c.error           ? weft_error_restore(c.error)
                                                        : c.status;
    weft_free(c.error);
    return status;
}
