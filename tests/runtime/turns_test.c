/* Turns on a link that ranks share: who gets it when follows the clocks of the ranks and not the
 * order in which their threads come, which is made the wrong way round here. Times are exact. */
#include "runtime/comm_internal.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

enum { RANKS = 3, LATE = 40 * 1000 /* microseconds that a thread comes after the others */ };

typedef struct job {
    weft_turns *turns;
    weft_exchange *x; /* what ranks hand to one another */
    sem_t *there;     /* it has been, in real time */
    double got;
} job;

static void play(void *(*const body[RANKS])(void *), weft_exchange *x, double got[RANKS])
{
    pthread_t thread[RANKS];
    job j[RANKS];
    sem_t there;
    weft_turns *turns = weft_turns_create(RANKS, 1);
    cr_assert(turns);
    sem_init(&there, 0, 0);
    for (int r = 0; r < RANKS; r++) {
        j[r] = (job){.turns = turns, .x = x, .there = &there};
        pthread_create(&thread[r], NULL, body[r], &j[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        got[r] = j[r].got;
    }
    sem_destroy(&there);
    weft_turns_free(turns);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void *asks_for_five(void *self)
{
    job *j = self;
    j->got = weft_turns_take(j->turns, 0, 0, 5, 1);
    weft_turns_leave(j->turns, 0);
    return NULL;
}

static void *asks_for_four_but_comes_late(void *self)
{
    job *j = self;
    usleep(LATE);
    j->got = weft_turns_take(j->turns, 1, 0, 4, 2);
    cr_assert_eq(weft_turns_begin(j->turns, 1, &j->x[0]), WEFT_OK); /* a message to rank 2 */
    sem_post(j->there);
    weft_turns_leave(j->turns, 1);
    return NULL;
}

static void *asks_when_it_has_heard(void *self)
{
    job *j = self;
    weft_turns_wait(j->turns, 2, &j->x[1]);
    sem_wait(j->there);
    usleep(LATE);
    weft_turns_go_on(j->turns, 2);
    j->got = weft_turns_take(j->turns, 2, 0, 4.5, 1);
    weft_turns_leave(j->turns, 2);
    return NULL;
}

/* By who comes first it would be 5, 6 and 8; the earliest clock would be given 6 only. */
Test(turns, follow_the_clocks_and_not_the_threads)
{
    int everybody[RANKS] = {0, 1, 2};
    weft_group group = {.rank = everybody, .tag = 1 << 8};
    weft_exchange x[2] = {
        {.group = &group, .op = WEFT_COMM_SEND, .argument = 2, .ranks = RANKS},
        {.group = &group, .op = WEFT_COMM_RECV, .argument = 1, .ranks = RANKS},
    };
    void *(*const body[RANKS])(void *) = {asks_for_five, asks_for_four_but_comes_late,
                                          asks_when_it_has_heard};
    for (int again = 0; again < 3; again++) {
        double got[RANKS];
        play(body, x, got);
        cr_expect_eq(got[1], 4, "the earliest clock: %g", got[1]);
        cr_expect_eq(got[2], 6, "behind it, told by it: %g", got[2]);
        cr_expect_eq(got[0], 7, "the latest clock, the first thread: %g", got[0]);
    }
}

/* ---- meeting --------------------------------------------------------------------------------- */

static void *meets_then_asks(void *self)
{
    job *j = self;
    cr_assert_eq(weft_turns_begin(j->turns, 0, j->x), WEFT_OK);
    weft_turns_wait(j->turns, 0, j->x);
    sem_wait(j->there);
    usleep(LATE);
    weft_turns_go_on(j->turns, 0);
    j->got = weft_turns_take(j->turns, 0, 0, 0.75, 0.5);
    weft_turns_leave(j->turns, 0);
    return NULL;
}

static void *asks_then_meets(void *self)
{
    job *j = self;
    usleep(LATE);
    j->got = weft_turns_take(j->turns, 1, 0, 0.5, 1);
    cr_assert_eq(weft_turns_begin(j->turns, 1, j->x), WEFT_OK);
    sem_post(j->there);
    weft_turns_leave(j->turns, 1);
    return NULL;
}

static void *asks_at_once(void *self)
{
    job *j = self;
    j->got = weft_turns_take(j->turns, 2, 0, 1, 1);
    weft_turns_leave(j->turns, 2);
    return NULL;
}

/* Who waits for a collective may ask for less than who asks already, once all are there. */
Test(turns, wait_for_those_that_meet)
{
    int pair[2] = {0, 1};
    weft_group group = {.rank = pair, .tag = 2 << 8};
    weft_exchange x = {.group = &group, .op = WEFT_COMM_ALL_REDUCE, .ranks = 2};
    void *(*const body[RANKS])(void *) = {meets_then_asks, asks_then_meets, asks_at_once};
    double got[RANKS];
    play(body, &x, got);
    cr_expect_eq(got[1], 0.5, "%g", got[1]);
    cr_expect_eq(got[0], 1.5, "%g", got[0]);
    cr_expect_eq(got[2], 2, "%g", got[2]);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void *asks_for_ever(void *self)
{
    job *j = self;
    j->got = weft_turns_take(j->turns, 0, 0, 3, 1);
    sem_post(j->there);
    return NULL;
}

/* Rank 1 neither asks nor leaves, as one that failed. */
Test(turns, nobody_waits_when_they_are_broken, .timeout = 60)
{
    pthread_t thread;
    sem_t there;
    job j = {.turns = weft_turns_create(2, 1), .there = &there, .got = -1};
    cr_assert(j.turns);
    sem_init(&there, 0, 0);
    pthread_create(&thread, NULL, asks_for_ever, &j);
    usleep(LATE);
    cr_expect_eq(sem_trywait(&there), -1, "it did not wait for rank 1");
    weft_turns_break(j.turns);
    pthread_join(thread, NULL);
    sem_destroy(&there);
    weft_turns_free(j.turns);
}
