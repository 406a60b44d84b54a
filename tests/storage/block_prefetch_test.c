/* The stop of a prefetch: threads that wait end their work at once. */
#include "storage/block_prefetch.h"
#include "storage/stoppable_wait.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <time.h>

typedef struct fetches {
    atomic_int begun, cancelled;
} fetches;

/* A fetch as one that waits for its next attempt: a minute, longer than any stop takes. */
static void fetch(void *user, const char *name, int64_t at)
{
    fetches *f = user;
    (void)name, (void)at;
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
