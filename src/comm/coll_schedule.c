/* Collective schedules of every algorithm. */
#include "comm/coll_schedule.h"

#include "kernel/sums.h"

#include <string.h>

const char *weft_comm_op_name(weft_comm_op op)
{
    static const char *const name[] = {"all_reduce", "all_gather", "reduce_scatter",
                                       "all_to_all", "broadcast",  "ring_shift",
                                       "send",       "recv",       "relay"};
    return name[op];
}

const char *weft_algorithm_name(weft_algorithm algorithm)
{
    static const char *const name[] = {"direct",       "pairwise", "doubling", "halving",
                                       "hierarchical", "tree",     "ring"};
    return name[algorithm];
}

weft_span weft_span_of(const int *node, int ranks)
{
    weft_span l = {.ranks = ranks};
    int run = 0, longest = 0, shortest = ranks;
    bool interleaved = false;
    for (int i = 0; i < ranks; i++) {
        bool seen = i > 0 && node[i] == node[i - 1];
        for (int j = 0; j < i && !seen; j++)
            seen = node[j] == node[i];
        l.nodes += !seen;
        interleaved = interleaved || (seen && node[i] != node[i - 1]);
        run++;
        if (i + 1 == ranks || node[i + 1] != node[i]) {
            longest = run > longest ? run : longest;
            shortest = run < shortest ? run : shortest;
            run = 0;
        }
    }
    l.per_node = !interleaved && longest == shortest ? longest : 0;
    return l;
}

static bool is_power(int n)
{
    return (n & (n - 1)) == 0;
}

/* ---- construction ---------------------------------------------------------------------------- */

typedef struct maker {
    weft_coll_schedule *s;
    int ranks, own, round;
    weft_status_code status;
} maker;

static void emit(maker *m, weft_coll_step_kind kind, int peer, int first, int count, int stride,
                 bool from_in)
{
    weft_coll_schedule *s = m->s;
    if (m->status != WEFT_OK)
        return;
    m->status = weft_grow((void **)&s->step, s->count, &s->capacity, sizeof *s->step);
    if (m->status == WEFT_OK)
        s->step[s->count++] = (weft_coll_step){.round = m->round,
                                               .peer = peer,
                                               .first = first,
                                               .count = count,
                                               .stride = stride,
                                               .kind = (uint8_t)kind,
                                               .from_in = from_in};
}

static void send(maker *m, int peer, int first, int count, bool from_in)
{
    emit(m, WEFT_COLL_STEP_SEND, peer, first, count, 1, from_in);
}

/* Every rank with every rank, `width` peers per round: sends the peer's collective chunk; received
 * chunks are stored or kept as terms. The distances of a round's peers differ by the number of
 * rounds, so each round has about the same share of peers on other machines. With the nearest peers
 * first, some ranks' links would be idle in every round.
 *
 *     16 ranks, peers of rank 0    round 0: 1 3 5 7 9 11 13 15    round 1: 2 4 6 8 10 12 14 */
static void pairs(maker *m, int width, weft_coll_step_kind kind, bool own_chunk, bool from_in)
{
    const int k = m->ranks, r = m->own, rounds = (k - 1 + width - 1) / width;
    for (int first = 1; first <= rounds; first++, m->round++) {
        for (int d = first; d < k; d += rounds) {
            const int from = (r - d + k) % k;
            emit(m, kind, from, kind == WEFT_COLL_STEP_RECEIVE_TERM ? r : from, 1, 1, false);
        }
        for (int d = first; d < k; d += rounds) {
            const int to = (r + d) % k;
            send(m, to, own_chunk ? r : to, 1, from_in);
        }
    }
}

static void sum_terms(maker *m, int chunk)
{
    m->s->sum_after = m->round - 1;
    m->s->sum_chunk = chunk;
}

static void reduce_direct(maker *m)
{
    m->s->chunks = 1;
    for (int d = 1; d < m->ranks; d++)
        emit(m, WEFT_COLL_STEP_RECEIVE_TERM, (m->own - d + m->ranks) % m->ranks, 0, 1, 1, false);
    for (int d = 1; d < m->ranks; d++)
        send(m, (m->own + d) % m->ranks, 0, 1, true);
    m->round++;
    sum_terms(m, 0);
}

static void reduce_pairwise(maker *m)
{
    m->s->chunks = m->ranks;
    pairs(m, WEFT_DIRECT_RANKS, WEFT_COLL_STEP_RECEIVE_TERM, false, true);
    sum_terms(m, m->own);
    pairs(m, WEFT_DIRECT_RANKS, WEFT_COLL_STEP_RECEIVE, true, false);
}

/* The second rank of a pair sends all its data to the first rank, which sends the result back at
 * the end. */
static bool fold(maker *m, int members, int scale, int own, int *v)
{
    const int p = weft_sum_power(members), extras = members - p;
    const int chunks = m->s->chunks;
    *v = own < 2 * extras ? own / 2 : own - extras;
    if (own < 2 * extras) {
        if (own % 2)
            send(m, (own - 1) * scale, 0, chunks, false);
        else
            emit(m, WEFT_COLL_STEP_ADD, (own + 1) * scale, 0, chunks, 1, false);
    }
    m->round += extras > 0;
    return own < 2 * extras && own % 2;
}

static void unfold(maker *m, int members, int scale, int own)
{
    const int extras = members - weft_sum_power(members);
    if (own < 2 * extras) {
        if (own % 2)
            emit(m, WEFT_COLL_STEP_RECEIVE, (own - 1) * scale, 0, m->s->chunks, 1, false);
        else
            send(m, (own + 1) * scale, 0, m->s->chunks, false);
    }
    m->round += extras > 0;
}

/* All-reduce by doubling among members 0, scale, 2 scale, ... of the group; this rank is number
 * `own` in this sequence. */
static void double_up(maker *m, int members, int scale, int own)
{
    const int p = weft_sum_power(members), extras = members - p;
    int v;
    const bool rests = fold(m, members, scale, own, &v);
    for (int distance = 1; distance < p; distance *= 2, m->round++) {
        const int peer = weft_sum_stand_in(v ^ distance, extras) * scale;
        if (rests)
            continue;
        emit(m, WEFT_COLL_STEP_ADD, peer, 0, 1, 1, false);
        send(m, peer, 0, 1, false);
    }
    unfold(m, members, scale, own);
}

static void reduce_doubling(maker *m)
{
    m->s->chunks = 1;
    double_up(m, m->ranks, 1, m->own);
}

/* Near peers first, when the halves are largest. Ranges are repeated halves of the chunks:
 *
 *   8 chunks   ........        the range of rank 5 = 101b: bit 0 set: upper half,
 *              ....----        bit 1 clear: lower half of it, bit 2 set: upper half of that
 *              ....--          and back in reverse order
 *              .....- */
static void reduce_halving(maker *m)
{
    const int k = m->ranks, p = weft_sum_power(k), extras = k - p;
    int v, first = 0, size = p;
    m->s->chunks = p;
    const bool rests = fold(m, k, 1, m->own, &v);
    for (int distance = 1; distance < p; distance *= 2, m->round++) {
        const int peer = weft_sum_stand_in(v ^ distance, extras);
        const bool upper = (v & distance) != 0;
        size /= 2;
        const int keep = first + (upper ? size : 0), give = first + (upper ? 0 : size);
        if (!rests) {
            emit(m, WEFT_COLL_STEP_ADD, peer, keep, size, 1, false);
            send(m, peer, give, size, false);
        }
        first = keep;
    }
    for (int distance = p / 2; distance >= 1; distance /= 2, m->round++) {
        const int peer = weft_sum_stand_in(v ^ distance, extras);
        const bool upper = (v & distance) != 0;
        if (!rests) {
            emit(m, WEFT_COLL_STEP_RECEIVE, peer, upper ? first - size : first + size, size, 1,
                 false);
            send(m, peer, first, size, false);
        }
        first -= upper ? size : 0;
        size *= 2;
    }
    unfold(m, k, 1, m->own);
}

/* Up a binomial tree to the first rank of the node, among these first ranks, and down again. */
static void reduce_hierarchical(maker *m, int per_node)
{
    const int inside = m->own % per_node;
    bool up = true;
    m->s->chunks = 1;
    for (int distance = 1; distance < per_node; distance *= 2, m->round++) {
        if (!up)
            continue;
        if (inside & distance)
            send(m, m->own - distance, 0, 1, false);
        else
            emit(m, WEFT_COLL_STEP_ADD, m->own + distance, 0, 1, 1, false);
        up = !(inside & distance);
    }
    if (inside == 0) {
        double_up(m, m->ranks / per_node, per_node, m->own / per_node);
    } else { /* keeps the number of rounds equal on all ranks */
        const int nodes = m->ranks / per_node, p = weft_sum_power(nodes);
        for (int distance = 1; distance < p; distance *= 2)
            m->round++;
        m->round += nodes > p ? 2 : 0;
    }
    for (int distance = per_node / 2; distance >= 1; distance /= 2, m->round++) {
        if (inside % (2 * distance) == distance)
            emit(m, WEFT_COLL_STEP_RECEIVE, m->own - distance, 0, 1, 1, false);
        else if (inside % (2 * distance) == 0)
            send(m, m->own + distance, 0, 1, false);
    }
}

/* Chunk c ends on rank c. At distance 1, 2, 4, ... a rank keeps the chunks whose index agrees with
 * its own in one more bit. */
static void scatter_halving(maker *m)
{
    const int k = m->ranks;
    for (int distance = 1; distance < k; distance *= 2, m->round++) {
        const int peer = m->own ^ distance, step = 2 * distance;
        emit(m, WEFT_COLL_STEP_ADD, peer, m->own % step, k / step, step, false);
        emit(m, WEFT_COLL_STEP_SEND, peer, peer % step, k / step, step, false);
    }
}

/* A rank has `have` chunks from its own on. Each round doubles them with the chunks of rank own +
 * have. */
static void gather_doubling(maker *m)
{
    const int k = m->ranks;
    for (int have = 1; have < k; have *= 2, m->round++) {
        const int count = have < k - have ? have : k - have;
        emit(m, WEFT_COLL_STEP_RECEIVE, (m->own + have) % k, (m->own + have) % k, count, 1, false);
        send(m, (m->own - have + k) % k, m->own, count, have == 1);
    }
}

static void gather_ring(maker *m)
{
    const int k = m->ranks;
    for (int i = 0; i + 1 < k; i++, m->round++) {
        emit(m, WEFT_COLL_STEP_RECEIVE, (m->own + k - 1) % k, (m->own + 2 * k - 1 - i) % k, 1, 1,
             false);
        send(m, (m->own + 1) % k, (m->own + k - i) % k, 1, i == 0);
    }
}

static void broadcast_tree(maker *m, int root)
{
    const int k = m->ranks, v = (m->own - root + k) % k;
    int top = weft_sum_power(k);
    if (top < k)
        top *= 2;
    m->s->chunks = 1;
    for (int distance = top / 2; distance >= 1; distance /= 2, m->round++) {
        if (v % (2 * distance) == distance)
            emit(m, WEFT_COLL_STEP_RECEIVE, (v - distance + root) % k, 0, 1, 1, false);
        else if (v % (2 * distance) == 0 && v + distance < k)
            send(m, (v + distance + root) % k, 0, 1, v == 0);
    }
}

static void broadcast_ring(maker *m, int root)
{
    const int k = m->ranks, v = (m->own - root + k) % k;
    m->s->chunks = 1;
    m->s->pipelined = true;
    for (int i = 0; i + 1 < k; i++, m->round++) {
        if (v == i + 1)
            emit(m, WEFT_COLL_STEP_RECEIVE, (m->own + k - 1) % k, 0, 1, 1, false);
        if (v == i)
            send(m, (m->own + 1) % k, 0, 1, v == 0);
    }
}

static void shift_ring(maker *m, int shift)
{
    const int k = m->ranks, by = (shift % k + k) % k, from = (m->own - by + k) % k;
    if (!by) {
        m->s->copy_own = m->own;
        return;
    }
    emit(m, WEFT_COLL_STEP_RECEIVE, from, from, 1, 1, false);
    send(m, (m->own + by) % k, (m->own + by) % k, 1, true);
    m->round++;
}

/* A ring without the link from the last rank to the first. */
static void open_ring(maker *m)
{
    if (m->own > 0)
        emit(m, WEFT_COLL_STEP_RECEIVE, m->own - 1, m->own - 1, 1, 1, false);
    if (m->own + 1 < m->ranks)
        send(m, m->own + 1, m->own + 1, 1, true);
    m->round++;
}

static void all_reduce(maker *m, weft_algorithm algorithm, const weft_span *span)
{
    const bool terms = algorithm == WEFT_ALGORITHM_DIRECT || algorithm == WEFT_ALGORITHM_PAIRWISE;
    m->s->partials = m->s->copy_all = !terms;
    switch (algorithm) {
    case WEFT_ALGORITHM_DIRECT: reduce_direct(m); break;
    case WEFT_ALGORITHM_PAIRWISE: reduce_pairwise(m); break;
    case WEFT_ALGORITHM_DOUBLING: reduce_doubling(m); break;
    case WEFT_ALGORITHM_HALVING: reduce_halving(m); break;
    default: reduce_hierarchical(m, span->per_node); break;
    }
}

static void make(maker *m, weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                 int argument)
{
    const int width = WEFT_DIRECT_RANKS;
    switch (op) {
    case WEFT_COMM_ALL_REDUCE: all_reduce(m, algorithm, span); break;
    case WEFT_COMM_ALL_GATHER:
        m->s->copy_own = m->own;
        if (algorithm == WEFT_ALGORITHM_DOUBLING)
            gather_doubling(m);
        else if (algorithm == WEFT_ALGORITHM_RING)
            gather_ring(m);
        else
            pairs(m, width, WEFT_COLL_STEP_RECEIVE, true, true);
        break;
    case WEFT_COMM_REDUCE_SCATTER:
        if (algorithm == WEFT_ALGORITHM_HALVING) {
            m->s->partials = m->s->copy_all = true;
            scatter_halving(m);
        } else {
            pairs(m, width, WEFT_COLL_STEP_RECEIVE_TERM, false, true);
            sum_terms(m, m->own);
        }
        break;
    case WEFT_COMM_ALL_TO_ALL:
        m->s->copy_own = m->own;
        pairs(m, width, WEFT_COLL_STEP_RECEIVE, false, true);
        break;
    case WEFT_COMM_BROADCAST:
        if (algorithm == WEFT_ALGORITHM_RING)
            broadcast_ring(m, argument);
        else
            broadcast_tree(m, argument);
        break;
    case WEFT_COMM_RING_SHIFT: shift_ring(m, argument); break;
    case WEFT_COMM_RELAY: open_ring(m); break;
    case WEFT_COMM_SEND:
    case WEFT_COMM_RECV:
        m->s->chunks = 1;
        emit(m, op == WEFT_COMM_SEND ? WEFT_COLL_STEP_SEND : WEFT_COLL_STEP_RECEIVE, argument, 0, 1,
             1, op == WEFT_COMM_SEND);
        m->round++;
        break;
    default: break;
    }
}

weft_status weft_coll_schedule_make(weft_algorithm algorithm, weft_comm_op op,
                                    const weft_span *span, int own, int argument,
                                    weft_coll_schedule *schedule)
{
    maker m = {.s = schedule, .ranks = span->ranks, .own = own};
    *schedule = (weft_coll_schedule){.chunks = span->ranks, .copy_own = -1, .sum_after = -1};
    make(&m, algorithm, op, span, argument);
    schedule->rounds = m.round;
    if (m.status != WEFT_OK)
        weft_coll_schedule_free(schedule);
    return m.status;
}

void weft_coll_schedule_free(weft_coll_schedule *schedule)
{
    weft_free(schedule->step);
    *schedule = (weft_coll_schedule){0};
}

bool weft_algorithm_fits(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                         int64_t bytes, bool is_16bit)
{
    const int k = span->ranks, per_node = span->per_node;
    switch (op) {
    case WEFT_COMM_ALL_REDUCE:
        if (algorithm == WEFT_ALGORITHM_DIRECT)
            return k <= WEFT_DIRECT_RANKS && bytes <= WEFT_DIRECT_BYTES;
        if (algorithm == WEFT_ALGORITHM_HIERARCHICAL)
            return span->nodes > 1 && per_node > 1 && is_power(per_node);
        return algorithm == WEFT_ALGORITHM_PAIRWISE || algorithm == WEFT_ALGORITHM_DOUBLING ||
               algorithm == WEFT_ALGORITHM_HALVING;
    case WEFT_COMM_ALL_GATHER:
        return algorithm == WEFT_ALGORITHM_DIRECT
                   ? k <= WEFT_DIRECT_RANKS
                   : algorithm == WEFT_ALGORITHM_DOUBLING || algorithm == WEFT_ALGORITHM_RING;
    case WEFT_COMM_REDUCE_SCATTER:
        if (algorithm == WEFT_ALGORITHM_HALVING)
            return is_power(k) && !is_16bit;
        return algorithm ==
               (k <= WEFT_DIRECT_RANKS ? WEFT_ALGORITHM_DIRECT : WEFT_ALGORITHM_PAIRWISE);
    case WEFT_COMM_ALL_TO_ALL:
        return algorithm ==
               (k <= WEFT_DIRECT_RANKS ? WEFT_ALGORITHM_DIRECT : WEFT_ALGORITHM_PAIRWISE);
    case WEFT_COMM_BROADCAST:
        return algorithm == WEFT_ALGORITHM_TREE || algorithm == WEFT_ALGORITHM_RING;
    default: return algorithm == WEFT_ALGORITHM_DIRECT;
    }
}
