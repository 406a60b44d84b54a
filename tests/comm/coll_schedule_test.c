/* Collective schedules of all ranks run in one thread. Every receive has its send, results are
 * correct and bitwise identical on all ranks and with all algorithms, and messages are counted. */
#include "comm/coll_algorithms.h"
#include "comm/coll_schedule.h"
#include "comm/comm.h"
#include "comm/comm_request.h"
#include "graph/graph.h"
#include "kernel/sums.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chunk is one float. */
typedef struct player {
    weft_coll_schedule s;
    float *in, *result, *term; /* by chunk, by chunk, by member */
    int64_t at;                /* move */
    int sent, received;
} player;

typedef struct game {
    weft_comm_op op;
    weft_algorithm algorithm;
    weft_span layout;
    int argument;
    player *rank;
} game;

static float value(int rank, int chunk)
{
    return (float)((rank * 7919 + chunk * 104729) % 100003) / 977.0f;
}

static int argument_of(const game *g, int rank)
{
    if (g->op == WEFT_COMM_SEND || g->op == WEFT_COMM_RECV)
        return !rank;
    return g->argument;
}

static void begin(game *g)
{
    const int k = g->layout.ranks;
    g->rank = calloc((size_t)k, sizeof *g->rank);
    for (int r = 0; r < k; r++) {
        player *p = &g->rank[r];
        const weft_comm_op op = g->op == WEFT_COMM_SEND && r == 1 ? WEFT_COMM_RECV : g->op;
        cr_assert_eq(
            weft_coll_schedule_make(g->algorithm, op, &g->layout, r, argument_of(g, r), &p->s),
            WEFT_OK);
        p->in = calloc((size_t)p->s.chunks, sizeof(float));
        p->result = calloc((size_t)p->s.chunks, sizeof(float));
        p->term = calloc((size_t)k, sizeof(float));
        for (int c = 0; c < p->s.chunks; c++) {
            /* an all-reduce gives the same values with any chunks */
            p->in[c] = value(r, g->op == WEFT_COMM_ALL_REDUCE ? 0 : c);
            p->result[c] = p->s.copy_all || p->s.copy_own == c ? p->in[c] : -1e30f;
        }
    }
}

static void end(game *g)
{
    for (int r = 0; r < g->layout.ranks; r++) {
        weft_coll_schedule_free(&g->rank[r].s);
        free(g->rank[r].in);
        free(g->rank[r].result);
        free(g->rank[r].term);
    }
    free(g->rank);
}

static const weft_coll_step *sent_by(const player *from, int64_t first, int round, int to)
{
    for (int64_t i = first; i < from->s.count && from->s.step[i].round == round; i++)
        if (from->s.step[i].kind == WEFT_COLL_STEP_SEND && from->s.step[i].peer == to)
            return &from->s.step[i];
    return NULL;
}

static void add_term(void *user, int to, int from)
{
    float *term = user;
    term[to] += term[from];
}

/* One round. Sends read the buffers as they were before the round. */
static void play_round(game *g, int round, const int64_t *first, float *const *before)
{
    const int k = g->layout.ranks;
    for (int r = 0; r < k; r++) {
        player *p = &g->rank[r];
        for (; p->at < p->s.count && p->s.step[p->at].round == round; p->at++) {
            const weft_coll_step *m = &p->s.step[p->at];
            if (m->kind == WEFT_COLL_STEP_SEND) {
                p->sent++;
                continue;
            }
            const player *from = &g->rank[m->peer];
            const weft_coll_step *s = sent_by(from, first[m->peer], round, r);
            p->received++;
            cr_assert(s, "%s %s of %d: rank %d waits in round %d for rank %d, which sends nothing",
                      weft_algorithm_name(g->algorithm), weft_comm_op_name(g->op), k, r, round,
                      m->peer);
            cr_assert_eq(s->count, m->count);
            for (int i = 0; i < m->count; i++) {
                const int n = p->s.chunks, to = (m->first + i * m->stride) % n;
                const int of = (s->first + i * s->stride) % from->s.chunks;
                const float x = s->from_in ? from->in[of] : before[m->peer][of];
                const bool moved = g->op >= WEFT_COMM_ALL_TO_ALL;
                cr_assert(moved || to == of, "chunk %d arrives as %d", of, to);
                if (m->kind == WEFT_COLL_STEP_ADD)
                    p->result[to] += x;
                else if (m->kind == WEFT_COLL_STEP_RECEIVE)
                    p->result[to] = x;
                else
                    p->term[m->peer] = x;
            }
        }
        if (p->s.sum_after == round) {
            p->term[r] = p->in[p->s.sum_chunk];
            weft_sum_tree(k, add_term, p->term);
            p->result[p->s.sum_chunk] = p->term[0];
        }
    }
}

static void play(game *g)
{
    begin(g);
    const int k = g->layout.ranks;
    int64_t *first = calloc((size_t)k, sizeof *first);
    float **before = calloc((size_t)k, sizeof *before);
    const int rounds = g->rank[0].s.rounds;
    for (int r = 0; r < k; r++) {
        cr_assert_eq(g->rank[r].s.rounds, rounds, "ranks count rounds differently");
        before[r] = calloc((size_t)g->rank[r].s.chunks, sizeof(float));
    }
    for (int round = 0; round < rounds; round++) {
        for (int r = 0; r < k; r++) {
            first[r] = g->rank[r].at;
            memcpy(before[r], g->rank[r].result, (size_t)g->rank[r].s.chunks * sizeof(float));
        }
        play_round(g, round, first, before);
    }
    int sent = 0, received = 0;
    for (int r = 0; r < k; r++) {
        sent += g->rank[r].sent;
        received += g->rank[r].received;
        cr_assert_eq(g->rank[r].at, g->rank[r].s.count, "moves are not by round");
        free(before[r]);
    }
    cr_assert_eq(sent, received, "%d messages are sent, %d received", sent, received);
    free(before);
    free(first);
}

static float tree_sum(int k, int chunk)
{
    float *term = calloc((size_t)k, sizeof *term);
    for (int r = 0; r < k; r++)
        term[r] = value(r, chunk);
    weft_sum_tree(k, add_term, term);
    const float sum = term[0];
    free(term);
    return sum;
}

static void check(const game *g)
{
    const int k = g->layout.ranks;
    for (int r = 0; r < k; r++) {
        const player *p = &g->rank[r];
        const int from = ((r - g->argument) % k + k) % k;
        for (int c = 0; c < p->s.chunks; c++) {
            float wanted = p->result[c];
            switch (g->op) {
            case WEFT_COMM_ALL_REDUCE: wanted = tree_sum(k, 0); break;
            case WEFT_COMM_REDUCE_SCATTER: wanted = c == r ? tree_sum(k, c) : wanted; break;
            case WEFT_COMM_ALL_GATHER: wanted = value(c, c); break;
            case WEFT_COMM_ALL_TO_ALL: wanted = value(c, r); break;
            case WEFT_COMM_BROADCAST:
                wanted = r == g->argument ? wanted : value(g->argument, 0);
                break;
            case WEFT_COMM_RING_SHIFT: wanted = c == from ? value(from, r) : wanted; break;
            case WEFT_COMM_SEND: wanted = r == 1 ? value(0, 0) : wanted; break;
            case WEFT_COMM_RELAY: wanted = r > 0 && c == r - 1 ? value(r - 1, r) : wanted; break;
            default: break;
            }
            cr_assert(p->result[c] == wanted,
                      "%s %s of %d ranks: rank %d has %.9g for %d, not %.9g",
                      weft_algorithm_name(g->algorithm), weft_comm_op_name(g->op), k, r,
                      (double)p->result[c], c, (double)wanted);
        }
    }
}

static weft_span layout_of(int ranks, int per_node)
{
    int *node = calloc((size_t)ranks, sizeof *node);
    for (int i = 0; i < ranks; i++)
        node[i] = i / per_node;
    const weft_span layout = weft_span_of(node, ranks);
    free(node);
    return layout;
}

static void run_all(int ranks, int per_node)
{
    for (int op = 0; op < WEFT_COMM_OP_COUNT; op++)
        for (int a = 0; a < WEFT_ALGORITHM_COUNT; a++) {
            game g = {.op = (weft_comm_op)op,
                      .algorithm = (weft_algorithm)a,
                      .layout = layout_of(ranks, per_node)};
            if (op == WEFT_COMM_RECV || (op == WEFT_COMM_SEND && ranks != 2))
                continue;
            g.argument = op == WEFT_COMM_BROADCAST    ? ranks / 2
                         : op == WEFT_COMM_RING_SHIFT ? ranks / 3 - 1
                                                      : 0;
            if (!weft_algorithm_fits(g.algorithm, g.op, &g.layout, 1, false))
                continue;
            play(&g);
            check(&g);
            end(&g);
        }
}

/* Sums are bitwise identical: every algorithm adds in the order of weft_sum_tree. */
Test(moves, every_algorithm_gives_the_same_bits)
{
    for (int ranks = 2; ranks <= 40; ranks++)
        run_all(ranks, ranks);
    for (int per_node = 2; per_node <= 8; per_node *= 2)
        for (int nodes = 2; nodes <= 7; nodes++)
            run_all(per_node * nodes, per_node);
    run_all(6, 3);
    run_all(64, 8);
}

Test(moves, layouts_are_read_from_the_nodes)
{
    const int even[] = {3, 3, 1, 1, 2, 2}, uneven[] = {0, 0, 1}, back[] = {0, 1, 0, 1};
    weft_span l = weft_span_of(even, 6);
    cr_expect(l.ranks == 6 && l.nodes == 3 && l.per_node == 2);
    l = weft_span_of(uneven, 3);
    cr_expect(l.nodes == 2 && l.per_node == 0);
    l = weft_span_of(back, 4);
    cr_expect(l.nodes == 2 && l.per_node == 0);
}

static void count_at_1024(weft_comm_op op, int64_t bytes, int per_node)
{
    const weft_span layout = layout_of(1024, per_node);
    weft_algorithm algorithm;
    double seconds;
    cr_assert_eq(weft_algorithm_choose(op, &layout, bytes, false, &weft_link_costs_default,
                                       &algorithm, &seconds),
                 WEFT_OK);
    game g = {.op = op, .algorithm = algorithm, .layout = layout};
    play(&g);
    check(&g);
    int most = 0;
    for (int r = 0; r < 1024; r++)
        most = g.rank[r].sent > most ? g.rank[r].sent : most;
    cr_expect_leq(most, 20, "%s of %" PRId64 " bytes, %s: a rank sends %d messages",
                  weft_comm_op_name(op), bytes, weft_algorithm_name(algorithm), most);
    fprintf(stderr,
            "1024 ranks, %d a node: %s of %" PRId64 " bytes, %s: at most %d messages sent a rank\n",
            per_node, weft_comm_op_name(op), bytes, weft_algorithm_name(algorithm), most);
    end(&g);
}

/* A barrier is an all_reduce of 4 bytes, a norm one of 8; a gather of 16 bytes a rank. */
Test(moves, few_messages_at_1024_ranks)
{
    for (int per_node = 8; per_node <= 1024; per_node *= 128) {
        count_at_1024(WEFT_COMM_ALL_REDUCE, 4, per_node);
        count_at_1024(WEFT_COMM_ALL_REDUCE, 8, per_node);
        count_at_1024(WEFT_COMM_ALL_REDUCE, 16 << 10, per_node);
        count_at_1024(WEFT_COMM_ALL_GATHER, 16 << 10, per_node);
        count_at_1024(WEFT_COMM_BROADCAST, 4096, per_node);
    }
}

/* The chosen algorithm is the first with the lowest cost, also if the costs of others are not
 * computed because their messages alone take longer. Returns the seconds. */
static double expect_cheapest(weft_comm_op op, const weft_span *layout, int64_t bytes,
                              const weft_link_costs *costs)
{
    weft_algorithm chosen, cheapest = WEFT_ALGORITHM_COUNT;
    double seconds, least = INFINITY;
    cr_assert_eq(weft_algorithm_choose(op, layout, bytes, false, costs, &chosen, &seconds),
                 WEFT_OK);
    for (int a = 0; a < WEFT_ALGORITHM_COUNT; a++) {
        double other;
        if (!weft_algorithm_fits((weft_algorithm)a, op, layout, bytes, false))
            continue;
        cr_assert_eq(weft_algorithm_cost((weft_algorithm)a, op, layout, bytes, costs, &other),
                     WEFT_OK);
        if (other < least) {
            least = other;
            cheapest = (weft_algorithm)a;
        }
    }
    cr_expect_eq(chosen, cheapest, "%s of %" PRId64 " bytes, %d ranks on %d nodes: %s, not %s",
                 weft_comm_op_name(op), bytes, layout->ranks, layout->nodes,
                 weft_algorithm_name(chosen), weft_algorithm_name(cheapest));
    cr_expect_eq(seconds, least);
    return seconds;
}

/* With growing sizes the choice changes from few messages to few bytes. */
Test(moves, the_choice_is_the_cheapest)
{
    const weft_link_costs even = {.message = {1e-6, 1e-6}, .byte = {1e-9, 1e-9}, .add = 1e-10};
    for (int ranks = 2; ranks <= 64; ranks += ranks < 10 ? 1 : 9) {
        const weft_span layout = layout_of(ranks, ranks % 4 ? ranks : 4);
        double before = 0;
        for (int64_t bytes = 64; bytes <= 1 << 28; bytes *= 8) {
            const double seconds =
                expect_cheapest(WEFT_COMM_ALL_REDUCE, &layout, bytes, &weft_link_costs_default);
            cr_expect_gt(seconds, before, "more bytes cost no more: %d ranks, %" PRId64 " bytes",
                         ranks, bytes);
            before = seconds;
            for (int op = WEFT_COMM_ALL_GATHER; op <= WEFT_COMM_BROADCAST; op++)
                expect_cheapest((weft_comm_op)op, &layout, bytes, &weft_link_costs_default);
            for (int op = WEFT_COMM_ALL_REDUCE; op <= WEFT_COMM_BROADCAST; op++)
                expect_cheapest((weft_comm_op)op, &layout, bytes, &even);
        }
    }
    const weft_span many = layout_of(64, 64);
    weft_algorithm small, large;
    double seconds;
    cr_assert_eq(weft_algorithm_choose(WEFT_COMM_ALL_REDUCE, &many, 64, false,
                                       &weft_link_costs_default, &small, &seconds),
                 WEFT_OK);
    cr_assert_eq(weft_algorithm_choose(WEFT_COMM_ALL_REDUCE, &many, 1 << 28, false,
                                       &weft_link_costs_default, &large, &seconds),
                 WEFT_OK);
    cr_expect_eq(small, WEFT_ALGORITHM_DOUBLING);
    cr_expect_eq(large, WEFT_ALGORITHM_HALVING);
}

Test(moves, the_table_can_be_printed)
{
    const weft_span layout = layout_of(64, 8);
    weft_buf text = {0};
    cr_assert_eq(weft_algorithm_table(&layout, &weft_link_costs_default, &text), WEFT_OK);
    cr_expect(strstr(text.data, "64 ranks on 8 nodes"));
    cr_expect(strstr(text.data, "all_reduce"));
    cr_expect(strstr(text.data, "from here"));
    weft_buf_free(&text);
}

/* A pipeline around a ring has an exchange for each of its ranks, which must not grow with them. */
Test(moves, a_ring_shift_takes_the_same_memory_among_any_number_of_ranks)
{
    const weft_shape shape = WEFT_SHAPE(1, 64, 32);
    const weft_attr_comm attr = {.shift = 1};
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        weft_comm_request *x;
        cr_assert_eq(weft_comm_request_create(i ? 512 : 4, 3, WEFT_OP_RING_SHIFT, &attr, &shape,
                                              &shape, WEFT_F32, "a test", &x),
                     WEFT_OK, "%s", weft_error_message());
        bytes[i] = weft_comm_request_own_bytes(x);
        weft_comm_request_free(x);
    }
    cr_expect_leq(bytes[1], bytes[0], "%" PRId64 " bytes among 512 ranks, %" PRId64 " among 4",
                  bytes[1], bytes[0]);
}
