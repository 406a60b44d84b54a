/* The stop of a prefetch: threads that wait end their work at once. Adjacent blocks are fetched
 * together. */
#include "storage/block_cache.h"
#include "storage/block_prefetch.h"
#include "storage/stoppable_wait.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <time.h>

typedef struct fetches {
    atomic_int begun, cancelled;
} fetches;

/* A fetch as one that waits for its next attempt: a minute, longer than any stop takes. */
static void fetch(void *user, const char *name, int64_t at, int64_t blocks)
{
    fetches *f = user;
    (void)name, (void)at, (void)blocks;
    atomic_fetch_add(&f->begun, 1);
    if (weft_stoppable_wait(60000) == WEFT_E_CANCELLED &&
        weft_stoppable_wait(60000) == WEFT_E_CANCELLED)
        atomic_fetch_add(&f->cancelled, 1);
}

Test(block_prefetch, a_stop_wakes_threads_that_wait)
{
    fetches f = {0};
    weft_block_prefetch *prefetch;
    cr_assert_eq(weft_block_prefetch_start(fetch, &f, &prefetch), WEFT_OK);
    for (int i = 0; i < WEFT_PREFETCH_THREADS + 3; i++)
        weft_block_prefetch_add(prefetch, "a", i);
    while (atomic_load(&f.begun) < WEFT_PREFETCH_THREADS)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    weft_block_prefetch_stop(prefetch);
    cr_assert_eq(atomic_load(&f.begun), WEFT_PREFETCH_THREADS, "a fetch began after the stop");
    cr_assert_eq(atomic_load(&f.cancelled), WEFT_PREFETCH_THREADS);
}

Test(block_prefetch, waits_of_other_threads_have_their_length)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    cr_assert_eq(weft_stoppable_wait(70), WEFT_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    cr_assert_geq((end.tv_sec - start.tv_sec) * 1000000000 + end.tv_nsec - start.tv_nsec, 69000000);
    cr_assert_eq(weft_stoppable_wait(0), WEFT_OK);
}

enum { FIRST = WEFT_PREFETCH_THREADS, BLOCKS = 32 };

typedef struct joined {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int begun; /* fetches */
    bool open; /* fetches may end */
    int times[BLOCKS];
    int64_t longest;
} joined;

static void join_blocks(void *user, const char *name, int64_t at, int64_t blocks)
{
    joined *j = user;
    pthread_mutex_lock(&j->lock);
    j->begun++;
    pthread_cond_broadcast(&j->changed);
    while (!j->open)
        pthread_cond_wait(&j->changed, &j->lock);
    for (int64_t i = 0; *name == 'a' && i < blocks; i++)
        j->times[at / WEFT_BLOCK_BYTES + i]++;
    j->longest = blocks > j->longest ? blocks : j->longest;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static bool all_done(const joined *j)
{
    for (int i = 0; i < BLOCKS; i++)
        if (j->times[i] == 0)
            return false;
    return true;
}

/* All threads are busy while the blocks are added, so that the blocks wait together. */
Test(block_prefetch, adjacent_blocks_are_fetched_together)
{
    joined j = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    weft_block_prefetch *prefetch;
    cr_assert_eq(weft_block_prefetch_start(join_blocks, &j, &prefetch), WEFT_OK);
    pthread_mutex_lock(&j.lock);
    for (int i = 0; i < FIRST; i++) {
        weft_block_prefetch_add(prefetch, "b", 2 * i * WEFT_BLOCK_BYTES);
        while (j.begun <= i)
            pthread_cond_wait(&j.changed, &j.lock);
    }
    for (int i = 0; i < BLOCKS; i++) /* not in the file's order */
        weft_block_prefetch_add(prefetch, "a", (int64_t)(i * 7 % BLOCKS) * WEFT_BLOCK_BYTES);
    j.open = true;
    pthread_cond_broadcast(&j.changed);
    while (!all_done(&j))
        pthread_cond_wait(&j.changed, &j.lock);
    pthread_mutex_unlock(&j.lock);
    weft_block_prefetch_stop(prefetch);
    for (int i = 0; i < BLOCKS; i++)
        cr_assert_eq(j.times[i], 1, "block %d was fetched %d times", i, j.times[i]);
    cr_assert_eq(j.longest, BLOCKS / WEFT_PREFETCH_THREADS, "a thread's share");
}
