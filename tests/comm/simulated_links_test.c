/* Messages of ranks over shared simulated links. Their times follow the clocks of the ranks, not
 * the order in which threads call; the test reverses that order. Two nodes of two ranks each share
 * a port of one byte per second; times are exact. */
#include "../threads_of.h"
#include "comm/comm_internal.h"
#include "comm/simulated_links.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { RANKS = 4 };

static const char yaml[] =
    "nodes: 2\ndevices: 2\nhost: {}\n"
    "device: {memory: 1GiB, flops: 1e12, memory_bandwidth: 1e12}\n"
    "link: {bandwidth: 8, latency: 0}\nnics:\n  - {switch: spine, bandwidth: 1, latency: 0.25}\n"
    "switches:\n  - {name: spine}\n";
static const double latency = 0.5; /* of both ports */

typedef struct job {
    weft_simulated_links *turns;
    weft_group *group;
    int rank;
    double clock;
    double got;
} job;

static weft_cluster make_cluster(weft_arena *arena)
{
    weft_cluster c;
    cr_assert_eq(
        weft_config_parse(arena, yaml, strlen(yaml), "two", NULL, 0, &weft_cluster_section, &c),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_cluster_resolve(&c, "two"), WEFT_OK, "%s", weft_error_message());
    return c;
}

static void play(void *(*const body[RANKS])(void *), double got[RANKS])
{
    int everybody[RANKS] = {0, 1, 2, 3};
    weft_group group = {.rank = everybody, .tag = 1 << 8};
    weft_arena *arena = weft_arena_create();
    const weft_cluster c = make_cluster(arena);
    pthread_t thread[RANKS];
    job j[RANKS];
    weft_simulated_links *turns = weft_simulated_links_create(RANKS, &c);
    cr_assert(turns);
    for (int r = 0; r < RANKS; r++) {
        j[r] = (job){.turns = turns, .group = &group, .rank = r};
        pthread_create(&thread[r], NULL, body[r], &j[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        got[r] = j[r].got;
    }
    weft_simulated_links_free(turns);
    weft_arena_free(arena);
}

static weft_comm_request single(job *j, weft_comm_op op, int peer, uint32_t number)
{
    return (weft_comm_request){.group = j->group,
                               .spec = {.op = op, .argument = peer, .ranks = RANKS},
                               .simulated = {.clock = {.now = &j->clock}, .number = number}};
}

static weft_comm_request start(job *j, int peer, uint32_t number, double when, int64_t bytes)
{
    weft_comm_request x = single(j, WEFT_COMM_SEND, peer, number);
    x.simulated.asked = j->clock = when;
    x.spec.bytes = bytes;
    cr_assert_eq(weft_simulated_links_begin(j->turns, j->rank, &x, NULL), WEFT_OK);
    return x;
}

static double finish(job *j, weft_comm_request *x)
{
    weft_simulated_links_wait(j->turns, j->rank, x);
    cr_assert_eq(weft_simulated_links_advance(j->turns, j->rank, x), WEFT_OK);
    return x->simulated.end;
}

static void *receive(job *j, int peer)
{
    weft_comm_request x = single(j, WEFT_COMM_RECV, peer, 0);
    cr_assert_eq(weft_simulated_links_begin(j->turns, j->rank, &x, NULL), WEFT_OK);
    j->got = finish(j, &x);
    weft_simulated_links_leave(j->turns, j->rank);
    return NULL;
}

static void *send_once(job *j, int peer, double when, int64_t bytes)
{
    weft_comm_request x = start(j, peer, 0, when, bytes);
    j->got = finish(j, &x);
    weft_simulated_links_leave(j->turns, j->rank);
    return NULL;
}

static void *receives_from_0(void *self)
{
    return receive(self, 0);
}

static void *receives_from_1(void *self)
{
    return receive(self, 1);
}

/* ---- sharing --------------------------------------------------------------------------------- */

static void *sends_at_five(void *self)
{
    return send_once(self, 2, 5, 4);
}

static void *sends_at_four_but_comes_late(void *self)
{
    wait_until_others_sleep();
    return send_once(self, 3, 4, 4);
}

/* Rank 1 is alone until 5 s, then both have half of the port. In the order of calls the times would
 * be 9 and 13, in sequence 8 and 12. */
Test(turns, links_are_shared_by_the_clocks_and_not_by_the_threads)
{
    void *(*const body[RANKS])(void *) = {sends_at_five, sends_at_four_but_comes_late,
                                          receives_from_0, receives_from_1};
    for (int again = 0; again < 3; again++) {
        double got[RANKS];
        play(body, got);
        cr_expect_eq(got[1], 11, "the earlier clock, the later thread: %g", got[1]);
        cr_expect_eq(got[0], 12, "%g", got[0]);
        cr_expect_eq(got[3], 11 + latency, "%g", got[3]);
        cr_expect_eq(got[2], 12 + latency, "%g", got[2]);
    }
}

/* ---- following ------------------------------------------------------------------------------- */

static void *sends_two(void *self)
{
    job *j = self;
    weft_comm_request first = start(j, 2, 0, 0, 2), second = start(j, 2, 1, 0, 2);
    cr_expect_not(weft_simulated_links_passed(j->turns, j->rank, &first, 1));
    cr_expect_eq(finish(j, &first), 2);
    cr_expect_eq(first.simulated.begin, 0);
    cr_expect_not(weft_simulated_links_passed(j->turns, j->rank, &second, 2));
    j->got = finish(j, &second);
    cr_expect_eq(second.simulated.begin, 2, "%g", second.simulated.begin);
    weft_simulated_links_leave(j->turns, j->rank);
    return NULL;
}

static void *leaves(void *self)
{
    const job *j = self;
    weft_simulated_links_leave(j->turns, j->rank);
    return NULL;
}

/* Messages to one rank share its link; two separate links would have ended at 4. */
Test(turns, messages_to_one_rank_follow_one_another)
{
    void *(*const body[RANKS])(void *) = {sends_two, leaves, receives_from_0, leaves};
    double got[RANKS];
    play(body, got);
    cr_expect_eq(got[2], 2 + latency, "%g", got[2]);
    cr_expect_eq(got[0], 4, "%g", got[0]);
}

/* ---- meeting --------------------------------------------------------------------------------- */

/* The two that meet are rank 0 and another one, members 0 and 1 of their group. */
static weft_comm_request meeting_of(const job *j)
{
    return (weft_comm_request){
        .group = j->group, .spec = {.op = WEFT_COMM_ALL_REDUCE, .ranks = 2, .own = j->rank > 0}};
}

static atomic_bool waited, met; /* rank 0 has ended its wait; the other rank has come */

static void *meets_then_sends(void *self)
{
    job *j = self;
    weft_comm_request x = meeting_of(j);
    cr_assert_eq(weft_simulated_links_begin(j->turns, j->rank, &x, NULL), WEFT_OK);
    weft_simulated_links_wait(j->turns, j->rank, &x);
    atomic_store(&waited, true);
    while (!atomic_load(&met)) /* the message arrives, but the rank has not seen it yet */
        sched_yield();
    wait_until_others_sleep();
    cr_assert_eq(weft_simulated_links_advance(j->turns, j->rank, &x), WEFT_OK);
    return send_once(j, 2, 0.5, 2);
}

static void *sends_at_one(void *self)
{
    return send_once(self, 3, 1, 2);
}

static void *meets_late_then_receives(void *self)
{
    job *j = self;
    weft_comm_request x = meeting_of(j);
    while (!atomic_load(&waited) && !others_sleep())
        sched_yield();
    cr_assert_eq(weft_simulated_links_begin(j->turns, j->rank, &x, NULL), WEFT_OK);
    atomic_store(&met, true);
    finish(j, &x);
    return receive(self, 0);
}

/* When all ranks have arrived, a rank that waits for a collective may send earlier than a rank that
 * sends already. */
Test(turns, wait_for_those_that_meet)
{
    void *(*const body[RANKS])(void *) = {meets_then_sends, sends_at_one, meets_late_then_receives,
                                          receives_from_1};
    double got[RANKS];
    play(body, got);
    cr_expect_eq(got[0], 4, "%g", got[0]);
    cr_expect_eq(got[1], 4.5, "%g", got[1]);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void *sends_for_ever(void *self)
{
    job *j = self;
    weft_comm_request x = start(j, 3, 0, 3, 1);
    finish(j, &x);
    j->got = x.simulated.end;
    return NULL;
}

/* Rank 1 neither waits nor exits, like a failed rank. */
Test(turns, nobody_waits_when_they_are_broken)
{
    int everybody[RANKS] = {0, 1, 2, 3};
    weft_group group = {.rank = everybody, .tag = 1 << 8};
    weft_arena *arena = weft_arena_create();
    const weft_cluster c = make_cluster(arena);
    pthread_t thread;
    job j = {.turns = weft_simulated_links_create(RANKS, &c), .group = &group, .got = -1};
    cr_assert(j.turns);
    pthread_create(&thread, NULL, sends_for_ever, &j);
    wait_until_others_sleep();
    weft_simulated_links_break(j.turns);
    pthread_join(thread, NULL);
    cr_expect_eq(j.got, 0, "no time: %g", j.got);
    weft_simulated_links_free(j.turns);
    weft_arena_free(arena);
}
