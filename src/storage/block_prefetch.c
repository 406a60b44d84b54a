#include "storage/block_prefetch.h"

#include "base/memory.h"
#include "storage/block_cache.h"
#include "storage/stoppable_wait.h"

#include <pthread.h>
#include <string.h>

typedef struct wanted {
    char *name; /* owned */
    int64_t at;
} wanted;

struct weft_block_prefetch {
    void (*fetch)(void *user, const char *name, int64_t at, int64_t blocks);
    void *user;
    pthread_t thread[WEFT_PREFETCH_THREADS];
    int threads;
    weft_stop stop;       /* ends the waits of a fetch */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    wanted queue[WEFT_PREFETCH_MOST]; /* a ring */
    int first, count;
    bool stopped;
};

/* Place of a block in the queue; -1: none. */
static int find(const weft_block_prefetch *p, const char *name, int64_t at)
{
    int i = p->count - 1;
    for (; i >= 0; i--) {
        const wanted *w = &p->queue[(p->first + i) % WEFT_PREFETCH_MOST];
        if (w->at == at && !strcmp(w->name, name))
            break;
    }
    return i;
}

static wanted take_at(weft_block_prefetch *p, int i)
{
    const wanted w = p->queue[(p->first + i) % WEFT_PREFETCH_MOST];
    for (; i > 0; i--)
        p->queue[(p->first + i) % WEFT_PREFETCH_MOST] =
            p->queue[(p->first + i - 1) % WEFT_PREFETCH_MOST];
    p->first = (p->first + 1) % WEFT_PREFETCH_MOST;
    p->count--;
    return w;
}

/* Takes the first block and blocks that follow in the file, in the order of the file. A server
 * sends a long range with less work than several short ones. */
static wanted take_adjacent(weft_block_prefetch *p, int64_t *blocks)
{
    const int share = (p->count + p->threads - 1) / p->threads,
              most = share < WEFT_BLOCK_RUN ? share : WEFT_BLOCK_RUN;
    const wanted first = take_at(p, 0);
    *blocks = 1;
    for (int i;
         *blocks < most && (i = find(p, first.name, first.at + *blocks * WEFT_BLOCK_BYTES)) >= 0;
         ++*blocks)
        weft_free(take_at(p, i).name);
    return first;
}

static void *run(void *user)
{
    weft_block_prefetch *p = user;
    weft_stop_bind(&p->stop);
    pthread_mutex_lock(&p->lock);
    while (!p->stopped) {
        if (p->count == 0) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        int64_t blocks;
        const wanted next = take_adjacent(p, &blocks);
        pthread_mutex_unlock(&p->lock);
        p->fetch(p->user, next.name, next.at, blocks);
        weft_free(next.name);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

weft_status weft_block_prefetch_start(void (*fetch)(void *user, const char *name, int64_t at,
                                                    int64_t blocks),
                                      void *user, weft_block_prefetch **prefetch)
{
    weft_block_prefetch *p;
    WEFT_TRY(WEFT_NEW(p, 1, "the prefetch"));
    p->fetch = fetch;
    p->user = user;
    weft_stop_init(&p->stop);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    while (p->threads < WEFT_PREFETCH_THREADS &&
           pthread_create(&p->thread[p->threads], NULL, run, p) == 0)
        p->threads++;
    if (p->threads == 0) {
        weft_block_prefetch_stop(p);
        return weft_no_memory("the prefetch");
    }
    *prefetch = p;
    return WEFT_OK;
}

void weft_block_prefetch_stop(weft_block_prefetch *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    weft_stop_set(&p->stop);
    for (int i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    for (int i = 0; i < p->count; i++)
        weft_free(p->queue[(p->first + i) % WEFT_PREFETCH_MOST].name);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    weft_stop_free(&p->stop);
    weft_free(p);
}

void weft_block_prefetch_add(weft_block_prefetch *p, const char *name, int64_t at)
{
    pthread_mutex_lock(&p->lock);
    if (p->count < WEFT_PREFETCH_MOST && find(p, name, at) < 0) {
        char *copy = weft_strdup(name);
        if (copy) {
            p->queue[(p->first + p->count++) % WEFT_PREFETCH_MOST] = (wanted){copy, at};
            pthread_cond_signal(&p->work);
        }
    }
    pthread_mutex_unlock(&p->lock);
}
