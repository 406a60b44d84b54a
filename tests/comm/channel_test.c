/* Groups and channels with running collectives: a stalled collective blocks no other one, large
 * messages cross, many requests on overlapping groups complete in random order. Also ranks with
 * different collectives, busy ranks, votes and slow links. */
#include "comm/comm.h"

#include "base/log.h"
#include "comm/comm_check.h"
#include "comm/comm_fake.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "comm/link_model.h"
#include "exec/store/tensor_shard.h"
#include "graph/graph.h"
#include "kernel/virtual/virtual.h"
#include "stepped_clock.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST = 16 };

typedef struct member {
    weft_comm *comm;
    int rank, ranks;
    const void *task;
    weft_status (*body)(struct member *);
    weft_status_code status;
    char error[1400];
    weft_message_class kind; /* of the error */
    int concerned;           /* the rank that it names */
    double seconds;
} member;

static void *run_member(void *argument)
{
    member *m = argument;
    stepped_clock_exclude();
    m->status = m->body(m);
    if (m->status != WEFT_OK) {
        snprintf(m->error, sizeof m->error, "rank %d: %s", m->rank, weft_error_message());
        m->kind = weft_error_class();
        m->concerned = weft_error_fields()->has_rank ? weft_error_fields()->rank : -1;
        weft_comm_abort(m->comm);
    }
    return NULL;
}

/* Runs `body` on every rank, each in its thread. */
static void run_ranks(int ranks, const weft_link_model *link, double deadline,
                      weft_status (*body)(member *), const void *task, member *m)
{
    weft_comm *comm[MOST];
    pthread_t thread[MOST];
    cr_assert_eq(link ? weft_comm_open_threads_linked(ranks, link, comm)
                      : weft_comm_open_threads(ranks, comm),
                 WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        m[r] = (member){.comm = comm[r], .rank = r, .ranks = ranks, .task = task, .body = body};
        weft_comm_set_deadline(comm[r], deadline);
        pthread_create(&thread[r], NULL, run_member, &m[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++)
        weft_comm_free(comm[r]);
}

static void expect_all_well(int ranks, const member *m)
{
    for (int r = 0; r < ranks; r++)
        cr_expect_eq(m[r].status, WEFT_OK, "%s", m[r].error);
}

/* ---- channels ------------------------------------------------------------------------------ */

/* An all-reduce of floats that is created, bound and attached, with its memory. */
typedef struct sum {
    weft_comm_request *x;
    float *data;
    void *scratch;
    int64_t count;
} sum;

static weft_status make_sum(sum *s, weft_group *group, weft_channel channel, int64_t count)
{
    const weft_shape shape = WEFT_SHAPE(count);
    s->count = count;
    s->x = NULL;
    s->scratch = NULL;
    s->data = weft_alloc_aligned(4 * count + 64);
    WEFT_TRY(weft_comm_request_create(weft_group_count(group), weft_group_index(group),
                                      WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0}, &shape, &shape,
                                      WEFT_F32, "a test", &s->x));
    s->scratch = weft_alloc_aligned(weft_comm_request_scratch(s->x) + 64);
    WEFT_TRY(weft_comm_request_attach(s->x, group, channel));
    weft_comm_request_bind(s->x, s->data, s->data, s->scratch);
    return WEFT_OK;
}

static void free_sum(sum *s)
{
    weft_comm_request_free(s->x);
    weft_free(s->scratch);
    weft_free(s->data);
}

/* Rank 1 starts the collective on the channel of layers only after those on the channels of
 * gradients and pipeline stages, which rank 0 starts later. */
static weft_status stall(member *m)
{
    weft_group *world;
    sum s[3] = {0};
    weft_status_code status = WEFT_OK;
    const weft_channel channel[] = {WEFT_CHANNEL_LAYERS, WEFT_CHANNEL_GRADIENTS,
                                    WEFT_CHANNEL_STAGES};
    WEFT_TRY(weft_comm_world(m->comm, &world));
    for (int i = 0; i < 3; i++) {
        WEFT_GO(make_sum(&s[i], world, channel[i], 200000));
        for (int64_t k = 0; k < s[i].count; k++)
            s[i].data[k] = (float)(k % 100 + i);
    }
    if (m->rank == 0)
        weft_comm_request_start(s[0].x);
    for (int i = 1; i < 3; i++) {
        weft_comm_request_start(s[i].x);
        WEFT_GO(weft_comm_request_wait(s[i].x));
    }
    if (m->rank == 1)
        weft_comm_request_start(s[0].x);
    WEFT_GO(weft_comm_request_wait(s[0].x));
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < s[i].count && status == WEFT_OK; k++)
            if (s[i].data[k] != 2 * (float)(k % 100 + i))
                status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                    "exchange %d, element %d: %g", i, (int)k, (double)s[i].data[k]);
out:
    for (int i = 0; i < 3; i++)
        free_sum(&s[i]);
    return status;
}

Test(channel, a_stalled_exchange_holds_up_nobody)
{
    member m[2];
    run_ranks(2, NULL, 20, stall, NULL, m);
    expect_all_well(2, m);
}

static weft_status cross(member *m)
{
    const int64_t bytes = 6 << 20;
    weft_group *world;
    char *out = weft_alloc(bytes), *in = weft_alloc(bytes);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_world(m->comm, &world));
    for (int i = 0; i < 2; i++) {
        memset(out, 'a' + 2 * i + m->rank, (size_t)bytes);
        WEFT_GO(weft_group_send(world, WEFT_CHANNEL_HANDOFF, !m->rank, out, bytes));
    }
    memset(out, 0, (size_t)bytes); /* the sender may overwrite its buffer after sending */
    for (int i = 0; i < 2; i++) {
        WEFT_GO(weft_group_recv(world, WEFT_CHANNEL_HANDOFF, !m->rank, in, bytes));
        for (int64_t k = 0; k < bytes && status == WEFT_OK; k++)
            if (in[k] != 'a' + 2 * i + !m->rank)
                status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                    "message %d, byte %d: %d", i, (int)k, in[k]);
    }
out:
    weft_free(in);
    weft_free(out);
    return status;
}

Test(channel, two_that_send_before_they_receive)
{
    member m[2];
    run_ranks(2, NULL, 20, cross, NULL, m);
    expect_all_well(2, m);
}

/* ---- random schedules ---------------------------------------------------------------------- */

enum { SCHEDULES = 200, EXCHANGES = 12 };

typedef struct entry {
    int members[MOST], count;
    weft_channel channel;
    int64_t length;
} entry;

static uint64_t draw(uint64_t *state)
{
    *state = weft_seed_mix(*state, 0x9e3779b97f4a7c15u);
    return *state >> 20;
}

static void make_schedule(uint64_t seed, int ranks, entry *list)
{
    static const int64_t lengths[] = {1, 2, 7, 100, 5000, 40001, 0};
    uint64_t state = seed;
    for (int i = 0; i < EXCHANGES; i++) {
        int order[MOST];
        for (int r = 0; r < ranks; r++)
            order[r] = r;
        for (int r = ranks - 1; r > 0; r--) {
            const int other = (int)(draw(&state) % (uint64_t)(r + 1)), kept = order[r];
            order[r] = order[other];
            order[other] = kept;
        }
        list[i].count = 2 + (int)(draw(&state) % (uint64_t)(ranks - 1));
        memcpy(list[i].members, order, sizeof order);
        list[i].channel = (weft_channel)(draw(&state) % WEFT_CHANNEL_CONTROL);
        list[i].length = lengths[draw(&state) % 7];
    }
}

static float value_of(int schedule, int exchange, int rank, int64_t at)
{
    return (float)((schedule * 31 + exchange * 7 + rank * 101 + at) % 257);
}

static weft_status check_sum(const entry *e, const sum *s, int schedule, int index)
{
    for (int64_t k = 0; k < e->length; k++) {
        float wanted = 0; /* integers: exact in any order */
        for (int j = 0; j < e->count; j++)
            wanted += value_of(schedule, index, e->members[j], k);
        if (s->data[k] != wanted)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "schedule %d, exchange %d: %g instead of %g", schedule, index,
                              (double)s->data[k], (double)wanted);
    }
    return WEFT_OK;
}

/* Starts in the order of the list and waits in another order. The rank is killed when it has
 * started `lives` requests (negative: never). */
static weft_status play(member *m, int schedule, const entry *list, int lives)
{
    sum s[EXCHANGES] = {0};
    int mine[EXCHANGES], count = 0;
    uint64_t state = weft_seed_mix((uint64_t)schedule, (uint64_t)m->rank);
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < EXCHANGES; i++) {
        bool member_of = false;
        weft_group *group;
        for (int j = 0; j < list[i].count; j++)
            member_of = member_of || list[i].members[j] == m->rank;
        if (!member_of)
            continue;
        WEFT_GO(weft_comm_group(m->comm, list[i].members, list[i].count, &group));
        WEFT_GO(make_sum(&s[i], group, list[i].channel, list[i].length));
        for (int64_t k = 0; k < list[i].length; k++)
            s[i].data[k] = value_of(schedule, i, m->rank, k);
        weft_comm_request_start(s[i].x);
        mine[count++] = i;
        if (count == lives) {
            weft_comm_fake_kill(m->comm);
            WEFT_GO(weft_error(WEFT_MSG_COMM_FAILED, WEFT_NOWHERE, "killed"));
        }
    }
    while (count > 0) {
        const int at = (int)(draw(&state) % (uint64_t)count), i = mine[at];
        mine[at] = mine[--count];
        WEFT_GO(weft_comm_request_wait(s[i].x));
        WEFT_GO(check_sum(&list[i], &s[i], schedule, i));
    }
out:
    if (status != WEFT_OK)
        weft_comm_abort(m->comm);
    for (int i = 0; i < EXCHANGES; i++)
        free_sum(&s[i]);
    return status;
}

static weft_status play_all(member *m)
{
    entry list[EXCHANGES];
    for (int schedule = 0; schedule < SCHEDULES; schedule++) {
        make_schedule(77 + (uint64_t)schedule, m->ranks, list);
        WEFT_TRY(play(m, schedule, list, -1));
    }
    return WEFT_OK;
}

Test(channel, random_schedules_on_overlapping_groups)
{
    member m[MOST];
    run_ranks(8, NULL, 60, play_all, NULL, m);
    expect_all_well(8, m);
}

typedef struct murder {
    int victim, schedule, lives;
} murder;

static weft_status play_until_killed(member *m)
{
    const murder *what = m->task;
    entry list[EXCHANGES];
    for (int schedule = 0; schedule < SCHEDULES; schedule++) {
        make_schedule(1000 * (uint64_t)what->schedule + (uint64_t)schedule, m->ranks, list);
        const bool now = m->rank == what->victim && schedule >= what->schedule;
        WEFT_TRY(play(m, schedule, list, now ? what->lives : -1));
    }
    return WEFT_OK;
}

static void kill_one(int ranks, const murder *what)
{
    member m[MOST];
    char dead[32];
    snprintf(dead, sizeof dead, "rank %d exited", what->victim);
    run_ranks(ranks, NULL, 60, play_until_killed, what, m);
    for (int r = 0; r < ranks; r++) {
        cr_expect_eq(m[r].status, WEFT_E_COMM, "rank %d of %d ended well", r, ranks);
        if (r == what->victim)
            continue;
        cr_expect_eq(m[r].kind, WEFT_MSG_RANK_FAILED, "%s", m[r].error);
        /* the rank detected the failure, or another rank reported it */
        cr_expect(strstr(m[r].error, dead), "%s: %s", dead, m[r].error);
    }
}

/* Long before the timeout. A rank that learns of the failure from another rank reports the same. */
Test(channel, a_rank_that_dies_between_random_exchanges_is_named_by_all)
{
    for (int ranks = 2; ranks <= 8; ranks++)
        kill_one(ranks, &(murder){.victim = ranks * 5 % 3 % ranks,
                                  .schedule = ranks % 4,
                                  .lives = 1 + ranks % 3});
}

static void *other_job(void *argument)
{
    run_ranks(MOST, NULL, 120, play_all, NULL, argument);
    return NULL;
}

/* A job of 16 ranks continues while another job loses a rank. */
Test(channel, two_jobs_at_once_do_not_meet)
{
    member m[MOST];
    pthread_t thread;
    pthread_create(&thread, NULL, other_job, m);
    kill_one(5, &(murder){.victim = 2, .schedule = 3, .lives = 2});
    pthread_join(thread, NULL);
    expect_all_well(MOST, m);
}

/* ---- ranks with different collectives ------------------------------------------------------ */

/* Rank 2 has the second and third collective in the other order, or none after the second. */
static weft_status differ(member *m)
{
    static const int64_t usual[] = {10, 20, 30, 40}, other[] = {10, 30, 20, 40};
    const int mode = *(const int *)m->task;
    const int64_t *length = m->rank == 2 && mode == 1 ? other : usual;
    const int count = m->rank == 2 && mode == 2 ? 2 : 4;
    sum s[4] = {0};
    weft_comm_request *list[4];
    weft_group *world;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_world(m->comm, &world));
    for (int i = 0; i < count; i++) {
        WEFT_GO(make_sum(&s[i], world, WEFT_CHANNEL_LAYERS, length[i]));
        list[i] = s[i].x;
    }
    status = weft_comm_requests_check(list, count, NULL, 0);
out:
    for (int i = 0; i < 4; i++)
        free_sum(&s[i]);
    return status;
}

Test(channel, different_exchanges_are_told_with_both_lists)
{
    member m[4];
    int mode = 0;
    run_ranks(4, NULL, 30, differ, &mode, m);
    expect_all_well(4, m);
    mode = 1;
    run_ranks(4, NULL, 30, differ, &mode, m);
    for (int r = 0; r < 4; r++) {
        cr_expect_eq(m[r].status, WEFT_E_COMM);
        cr_expect(m[r].kind == WEFT_MSG_RANKS_DISAGREE || m[r].kind == WEFT_MSG_RANK_FAILED, "%s",
                  m[r].error);
        if (m[r].kind == WEFT_MSG_RANKS_DISAGREE)
            cr_expect(m[r].concerned == 2 && strstr(m[r].error, "exchange 2 "), "%s", m[r].error);
    }
    const bool heard = m[0].kind == WEFT_MSG_RANK_FAILED; /* another rank found it before */
    cr_expect(heard || strstr(m[0].error, "rank 0: 1: all_reduce f32 on layers, 40 bytes"), "%s",
              m[0].error);
    cr_expect(heard || strstr(m[0].error, "-> 2: all_reduce f32 on layers, 120 bytes"), "%s",
              m[0].error);
    mode = 2;
    run_ranks(4, NULL, 30, differ, &mode, m);
    int told = 0;
    for (int r = 0; r < 4; r++) {
        cr_expect_eq(m[r].status, WEFT_E_COMM);
        told += strstr(m[r].error, "-> 3: nothing more") != NULL;
    }
    cr_expect_geq(told, 1);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static pthread_barrier_t all_ready;

/* Rank 3 is late by four timeouts and reports that it is busy. */
static weft_status be_late(member *m)
{
    if (m->rank == 3)
        weft_comm_set_busy(m->comm, "writing the checkpoint of step 40");
    pthread_barrier_wait(&all_ready);
    if (m->rank == 3) {
        stepped_clock_run(4);
        weft_comm_set_busy(m->comm, NULL);
    }
    return weft_comm_barrier(m->comm);
}

Test(channel, a_busy_rank_is_waited_for)
{
    member m[5];
    stepped_clock_begin(5);
    pthread_barrier_init(&all_ready, NULL, 5);
    run_ranks(5, NULL, 1, be_late, NULL, m);
    expect_all_well(5, m);
}

/* Freeing a running request ends the communicator, which no longer accesses the request's memory.
 * */
static weft_status leave_early(member *m)
{
    weft_group *world;
    sum s;
    WEFT_TRY(weft_comm_world(m->comm, &world));
    WEFT_TRY(make_sum(&s, world, WEFT_CHANNEL_LAYERS, 100000));
    if (m->rank == 0) {
        weft_comm_request_start(s.x);
        free_sum(&s);
        return weft_comm_barrier(m->comm) == WEFT_E_COMM
                   ? WEFT_OK
                   : weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                "resumes an exchange that has ended");
    }
    free_sum(&s);
    return WEFT_OK;
}

Test(channel, what_is_freed_while_under_way_is_cancelled)
{
    member m[2];
    run_ranks(2, NULL, 20, leave_early, NULL, m);
    expect_all_well(2, m);
}

/* ---- links --------------------------------------------------------------------------------- */

/* 5 MB from rank 0 to the last rank, alone on the link. The message has the time at which rank 0
 * sent it, because the receiver may get a core later. */
static weft_status send_one(member *m)
{
    const int64_t bytes = 5000000;
    weft_group *world;
    char *data = weft_alloc(bytes);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_world(m->comm, &world));
    WEFT_GO(weft_comm_barrier(m->comm));
    double begin = weft_now();
    memcpy(data, &begin, sizeof begin);
    if (m->rank == 0)
        WEFT_GO(weft_group_send(world, WEFT_CHANNEL_STAGES, m->ranks - 1, data, bytes));
    else if (m->rank == m->ranks - 1)
        WEFT_GO(weft_group_recv(world, WEFT_CHANNEL_STAGES, 0, data, bytes));
    memcpy(&begin, data, sizeof begin);
    m->seconds = weft_now() - begin;
    WEFT_GO(weft_comm_barrier(m->comm));
out:
    weft_free(data);
    return status;
}

/* 1 Gbit/s: 40 ms for 5 MB, and 640 ms at a sixteenth of the speed. A message is never earlier
 * than simulated. virtual_test.c tests on a simulated clock that it is not later either. */
Test(channel, a_simulated_link_needs_its_time)
{
    weft_link_model model;
    member m[2];
    cr_assert_eq(weft_link_model_parse("1 Gbit/s, 50 us", &model), WEFT_OK);
    cr_expect_eq(model.between.bytes_per_second, 125e6);
    cr_expect_eq(model.per_node, 1);
    for (int slower = 1; slower <= 16; slower *= 16) {
        model.between.bytes_per_second = 125e6 / slower;
        run_ranks(2, &model, 60, send_one, NULL, m);
        expect_all_well(2, m);
        const double simulated = 5e6 / model.between.bytes_per_second + model.between.latency;
        cr_expect_geq(m[1].seconds, 0.99 * simulated, "%g s, simulated %g s", m[1].seconds,
                      simulated);
    }
}

/* Inside nodes 5 ms, between nodes 0.4 s, between nodes 0 and 2 0.8 s: none is faster than that. */
Test(channel, links_differ_inside_nodes_and_between_pairs)
{
    weft_link_model model;
    member m[6];
    const char *text =
        "0.1 Gbit/s, 50 us, 2 per node; inside 8 Gbit/s, 5 us; 2-0 0.05 Gbit/s, 1000 us";
    cr_assert_eq(weft_link_model_parse(text, &model), WEFT_OK, "%s", weft_error_message());
    for (int i = 0; i < 3; i++) { /* rank 0 to rank 1, 3, 5 */
        const int ranks = 2 * (i + 1);
        run_ranks(ranks, &model, 60, send_one, NULL, m);
        expect_all_well(ranks, m);
        const weft_link_speed *link = i == 0   ? &model.inside
                                      : i == 1 ? &model.between
                                               : &model.pair[0].link;
        const double simulated = 5e6 / link->bytes_per_second + link->latency;
        cr_expect_geq(m[ranks - 1].seconds, 0.99 * simulated);
    }
    const char *wrong[] = {"1 Gbit",
                           "0 Gbit/s, 1 us",
                           "1 Gbit/s, 1 us, 0 per node",
                           "1 Gbit/s, 1 us; inside",
                           "1 Gbit/s, 1 us; 1-1 1 Gbit/s, 1 us",
                           "1 Gbit/s, 1 us; 1 Gbit/s, 1 us",
                           "1 Gbit/s, 1 us more"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect(weft_link_model_parse(wrong[i], &model) == WEFT_E_ARG &&
                      weft_error_class() == WEFT_MSG_OPTION_INVALID,
                  "%s", wrong[i]);
}

/* ---- reports of missing ranks -------------------------------------------------------------- */

/* Rank 1 is late, reports its position when it is asked, and arrives. In the next wait it is in
 * another place: the earlier report is not an answer to the new question. */
static weft_status answer_late(member *m)
{
    weft_group *world;
    weft_comm_request *x;
    char byte = 0;
    WEFT_TRY(weft_comm_world(m->comm, &world));
    weft_comm_set_deadline(m->comm, m->rank ? 1e9 : 3);
    pthread_barrier_wait(&all_ready);
    if (m->rank == 0) {
        WEFT_TRY(weft_group_barrier(world));
        return weft_group_barrier(world);
    }
    stepped_clock_run(2.4);
    WEFT_TRY(weft_group_barrier(world));
    WEFT_TRY(weft_comm_request_create_recv(2, 1, 0, 1, WEFT_U8, "a byte", &x));
    WEFT_TRY(weft_comm_request_attach(x, world, WEFT_CHANNEL_STAGES));
    weft_comm_request_bind(x, &byte, &byte, NULL);
    weft_comm_request_start(x);
    stepped_clock_go();
    const weft_status_code status = weft_comm_request_wait(x);
    weft_comm_request_free(x);
    return status;
}

Test(channels, an_answer_is_one_to_the_wait_that_asked)
{
    member m[2];
    stepped_clock_begin(2);
    pthread_barrier_init(&all_ready, NULL, 2);
    run_ranks(2, NULL, 60, answer_late, NULL, m);
    cr_expect_eq(m[0].status, WEFT_E_COMM);
    cr_expect(m[0].kind == WEFT_MSG_RANK_FAILED && m[0].concerned == 1, "%s", m[0].error);
    cr_expect(strstr(m[0].error, "rank 1 (alive, in recv"), "%s", m[0].error);
    cr_expect_null(strstr(m[0].error, "not in a collective"), "%s", m[0].error);
}

/* ---- gathered tensors, meta devices -------------------------------------------------------- */

/* Rows of 1000 floats, split over the ranks: bitwise, and no rank receives data that it does not
 * need. */
static weft_status gather_rows(member *m)
{
    enum { ROWS = 7, WIDTH = 1000, ROOT = 1 };
    const int ranks = weft_comm_ranks(m->comm), self = weft_comm_rank(m->comm);
    int64_t start, rows, messages, before, after;
    weft_part(ROWS, ranks, self, &start, &rows);
    float own[ROWS * WIDTH];
    for (int64_t i = 0; i < rows * WIDTH; i++)
        own[i] = (float)(start * WIDTH + i);
    const weft_tensor tensor = {.name = "rows",
                                .dtype = WEFT_F32,
                                .shape = WEFT_SHAPE(rows, WIDTH),
                                .whole = WEFT_SHAPE(ROWS, WIDTH),
                                .start = {start},
                                .data = own};
    void *made;
    weft_comm_sent(m->comm, &messages, &before);
    WEFT_TRY(weft_tensor_gather(m->comm, ROOT, &tensor, &made));
    weft_comm_sent(m->comm, &messages, &after);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; self == ROOT && i < ROWS * WIDTH && status == WEFT_OK; i++)
        if (((float *)made)[i] != (float)i)
            status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "element %" PRId64 " is %g",
                                i, (double)((float *)made)[i]);
    if (status == WEFT_OK && (self == ROOT) != (made != NULL))
        status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "rank %d has%s a whole", self,
                            made ? "" : " not");
    /* The rank's own shard, and the list of the ranks that hold each shard. */
    const int64_t most = (self == ROOT ? 0 : rows * WIDTH * 4) + ranks * 256;
    if (status == WEFT_OK && after - before > most)
        status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                            "rank %d sent %" PRId64 " bytes, its part has %" PRId64, self,
                            after - before, rows * WIDTH * 4);
    weft_free(made);
    return status;
}

Test(channels, a_gathered_tensor_travels_to_its_root_only)
{
    member m[4];
    run_ranks(4, NULL, 20, gather_rows, NULL, m);
    expect_all_well(4, m);
}

/* All types of reductions on a device whose memory is one window. Collectives store nothing there
 * that they read later, count the bytes that they would send, and leave the window unchanged. */
static weft_status sum_hollow(member *m)
{
    static const weft_dtype type[] = {WEFT_F32, WEFT_BF16};
    const weft_device *device = &weft_device_virtual;
    const int ranks = weft_comm_ranks(m->comm), self = weft_comm_rank(m->comm);
    const int64_t count[] = {1000, (int64_t)3 << 20};
    weft_group *world;
    weft_device_stream *stream;
    WEFT_TRY(weft_comm_world(m->comm, &world));
    WEFT_TRY(device->open(device, &weft_backend_virtual, &stream));
    weft_status_code status = WEFT_OK;
    for (int t = 0; t < 4 && status == WEFT_OK; t++) {
        const weft_shape shape = WEFT_SHAPE(count[t / 2]);
        weft_comm_request *x;
        int64_t messages, before, sent, after;
        WEFT_TRY(weft_comm_request_create(ranks, self, WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0},
                                          &shape, &shape, type[t % 2], "a test", &x));
        WEFT_TRY(weft_comm_request_cut(x, WEFT_COMM_WIDE));
        const int64_t bytes = count[t / 2] * weft_dtype_bytes(type[t % 2]),
                      looked = bytes < 4096 ? bytes : 4096;
        char *data = device->alloc(device, bytes),
             *scratch = device->alloc(device, weft_comm_request_scratch(x));
        memset(data, 0x5a, (size_t)looked);
        status = weft_comm_request_attach(x, world, WEFT_CHANNEL_LAYERS);
        weft_comm_request_set_device(x, device, stream);
        weft_comm_request_bind(x, data, data, scratch);
        weft_comm_sent(m->comm, &messages, &before);
        if (status == WEFT_OK) {
            weft_comm_request_start(x);
            status = weft_comm_request_wait(x);
        }
        weft_comm_sent(m->comm, &sent, &after);
        for (int64_t i = 0; i < looked && status == WEFT_OK; i++)
            if (data[i] != 0x5a)
                status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "memory was touched");
        if (status == WEFT_OK && after - before < bytes)
            status =
                weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                           "%" PRId64 " bytes of %" PRId64 " were sent", after - before, bytes);
        if (status == WEFT_OK && sent - messages > 2 * ranks) /* 12 MiB go at once there */
            status = weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "%" PRId64 " messages",
                                sent - messages);
        weft_comm_request_free(x);
        device->free(device, data);
        device->free(device, scratch);
    }
    device->close(stream);
    return status;
}

Test(channels, sums_on_a_hollow_device_touch_no_memory)
{
    member m[3];
    run_ranks(3, NULL, 20, sum_hollow, NULL, m);
    expect_all_well(3, m);
}
