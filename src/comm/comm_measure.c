/* What messages cost here, measured between two ranks of a node and two of different nodes. */
#include "runtime/comm_internal.h"

#include "base/log.h"
#include "runtime/measure.h"
#include "runtime/seat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 1 << 20, TIMES = 40, LARGE_TIMES = 10 };

/* Seconds of one way there of `bytes`, the best of many, between members 0 and 1. */
static weft_status one_way(weft_group *pair, char *data, int64_t bytes, int times, double *seconds)
{
    weft_exchange *x[2] = {0};
    weft_status_code status = WEFT_OK;
    const int own = pair->own;
    double best = 0;
    WEFT_GO(weft_exchange_create_send(2, own, !own, bytes, WEFT_U8, "a measurement", &x[0]));
    WEFT_GO(weft_exchange_create_recv(2, own, !own, bytes, WEFT_U8, "a measurement", &x[1]));
    for (int i = 0; i < 2; i++) {
        WEFT_GO(weft_exchange_attach(x[i], pair, WEFT_CHANNEL_CONTROL));
        weft_exchange_bind(x[i], data, data, NULL);
    }
    for (int i = 0; i < times; i++) {
        const double begin = weft_now();
        for (int turn = 0; turn < 2; turn++) {
            weft_exchange *now = x[turn != own];
            weft_exchange_start(now);
            WEFT_GO(weft_exchange_wait(now));
        }
        const double took = (weft_now() - begin) / 2;
        best = i == 0 || took < best ? took : best;
    }
    *seconds = best;
out:
    weft_exchange_free(x[0]);
    weft_exchange_free(x[1]);
    return status;
}

static double adding(char *data)
{
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const double begin = weft_now();
        weft_device_host.add(NULL, WEFT_F32, data, data, data + LARGE, LARGE / 4);
        const double took = weft_now() - begin;
        best = i == 0 || took < best ? took : best;
    }
    return best / LARGE;
}

static weft_status measure_pair(weft_comm *comm, int other, char *data, double *message,
                                double *byte)
{
    weft_group *pair;
    double small, large;
    WEFT_TRY(weft_comm_group(comm, (int[]){0, other}, 2, &pair));
    WEFT_TRY(one_way(pair, data, 8, TIMES, &small));
    WEFT_TRY(one_way(pair, data, LARGE, LARGE_TIMES, &large));
    *message = small;
    *byte = (large > small ? large - small : large) / LARGE;
    return WEFT_OK;
}

/* The edges of a ring, i to i + 1, are measured in three rounds, those of a round at once: even
 * ones, odd ones, and the last one where their number is odd. -1: this rank has none in `round`. */
static int partner(int own, int count, int round)
{
    const int edges = count == 2 ? 1 : count;
    for (int e = 0; e < edges; e++) {
        const int turn = e == edges - 1 && edges % 2 ? 2 : e % 2;
        if (turn == round && (e == own || (e + 1) % count == own))
            return e == own ? (e + 1) % count : e;
    }
    return -1;
}

/* Of the ring over list[count], in which this rank is number `own`: the better one of its two
 * neighbours'. */
static weft_status measure_ring(weft_comm *comm, const int *list, int count, int own, char *data,
                                weft_link_speed *link)
{
    *link = (weft_link_speed){0};
    for (int round = 0; round < 3; round++) {
        WEFT_TRY(weft_comm_barrier(comm));
        const int other = count > 1 ? partner(own, count, round) : -1;
        if (other < 0)
            continue;
        const int a = list[own < other ? own : other], b = list[own < other ? other : own];
        weft_group *pair;
        double small, large;
        WEFT_TRY(weft_comm_group(comm, (int[]){a, b}, 2, &pair));
        WEFT_TRY(one_way(pair, data, 8, TIMES, &small));
        WEFT_TRY(one_way(pair, data, LARGE, LARGE_TIMES, &large));
        const double rate = LARGE / (large > small ? large - small : large);
        link->bytes_per_second = rate > link->bytes_per_second ? rate : link->bytes_per_second;
        link->latency = link->latency == 0 || small < link->latency ? small : link->latency;
    }
    return WEFT_OK;
}

weft_status weft_comm_measure_links(weft_comm *comm, weft_link_speed *inside,
                                    weft_link_speed *between)
{
    weft_status_code status = WEFT_OK;
    const int own = comm->rank, ranks = comm->ranks;
    int *list = weft_alloc(ranks * (int64_t)sizeof *list), count = 0, at = 0, place = 0;
    int *seen = weft_alloc(ranks * (int64_t)sizeof *seen); /* ranks of a node so far */
    char *data = weft_alloc_aligned(LARGE);
    if (!list || !seen || !data)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory to measure links"));
    memset(data, 0, LARGE);
    for (int r = 0; r < ranks; r++) {
        if (comm->node[r] == comm->node[own]) {
            at = r == own ? count : at;
            list[count++] = r;
        }
    }
    place = at;
    WEFT_GO(measure_ring(comm, list, count, at, data, inside));
    count = 0;
    for (int r = 0; r < ranks; r++)
        if (seen[comm->node[r]]++ == place) { /* those at this rank's place of their machines */
            at = r == own ? count : at;
            list[count++] = r;
        }
    WEFT_GO(measure_ring(comm, list, count, at, data, between));
out:
    weft_free(list);
    weft_free(seen);
    weft_free(data);
    return status;
}

weft_status weft_comm_measure(weft_comm *comm, weft_link_costs *costs)
{
    weft_link_costs found = weft_link_costs_default;
    weft_status_code status = WEFT_OK;
    char *data = weft_alloc_aligned(2 * LARGE);
    int other[2] = {-1, -1}; /* of rank 0's node, of another */
    if (!data)
        return weft_fail(WEFT_E_MEMORY, "no memory to measure messages");
    memset(data, 0, 2 * LARGE);
    for (int r = comm->ranks - 1; r > 0; r--)
        other[comm->node[r] != comm->node[0]] = r;
    for (int far = 0; far < 2; far++)
        if (other[far] >= 0 && (comm->rank == 0 || comm->rank == other[far]))
            WEFT_GO(measure_pair(comm, other[far], data, &found.message[far], &found.byte[far]));
    found.add = adding(data);
    WEFT_GO(weft_comm_broadcast(comm, &found, sizeof found, 0));
    *costs = found;
out:
    weft_free(data);
    return status;
}
/* ---- collectives ---------------------------------------------------------------------------- */

enum { TURNS = 24, SPLIT_ROWS = 64 };

/* Of `bytes` as weft_algorithm_cost counts them; all-to-all of rows that lie apart, as tokens of
 * heads do. */
static weft_status make_exchange(weft_group *group, weft_comm_op op, int64_t bytes,
                                 weft_exchange **x)
{
    const int k = group->count;
    const int64_t n = bytes / 4 / k * k, row = n / SPLIT_ROWS / k * k;
    const weft_shape whole = WEFT_SHAPE(n), part = WEFT_SHAPE(n / k),
                     flat = WEFT_SHAPE(SPLIT_ROWS, row), tall = WEFT_SHAPE(SPLIT_ROWS * k, row / k);
    weft_attr_comm attr = {.dim = 0, .dim2 = 1, .shift = 1};
    static const char what[] = "a measurement";
    switch (op) {
    case WEFT_COMM_ALL_REDUCE:
        return weft_exchange_create(k, group->own, WEFT_OP_ALL_REDUCE, &attr, &whole, &whole,
                                    WEFT_F32, what, x);
    case WEFT_COMM_ALL_GATHER:
        return weft_exchange_create(k, group->own, WEFT_OP_ALL_GATHER, &attr, &part, &whole,
                                    WEFT_F32, what, x);
    case WEFT_COMM_REDUCE_SCATTER:
        return weft_exchange_create(k, group->own, WEFT_OP_REDUCE_SCATTER, &attr, &whole, &part,
                                    WEFT_F32, what, x);
    case WEFT_COMM_BROADCAST:
        return weft_exchange_create_broadcast(k, group->own, 0, n, WEFT_F32, what, x);
    case WEFT_COMM_ALL_TO_ALL:
        return weft_exchange_create(k, group->own, WEFT_OP_ALL_TO_ALL, &attr, &flat, &tall,
                                    WEFT_F32, what, x);
    default:
        return weft_exchange_create(k, group->own, WEFT_OP_RING_SHIFT, &attr, &whole, &whole,
                                    WEFT_F32, what, x);
    }
}

/* Groups of k neighbours, all at the same time. */
static weft_status group_of(weft_comm *comm, int k, weft_group **group)
{
    int *ranks = weft_alloc(k * (int64_t)sizeof *ranks);
    if (!ranks)
        return weft_fail(WEFT_E_MEMORY, "no memory to measure exchanges");
    for (int i = 0; i < k; i++)
        ranks[i] = comm->rank / k * k + i;
    const weft_status_code status = weft_comm_group(comm, ranks, k, group);
    weft_free(ranks);
    return status;
}

static weft_status run_exchange(weft_exchange *x)
{
    weft_exchange_start(x);
    return weft_exchange_wait(x);
}

/* `scratch` of in, out and the exchange's own. */
static weft_status open_exchange(weft_group *group, weft_comm_op op, int64_t bytes,
                                 weft_exchange **x, char **data)
{
    const int64_t room = weft_aligned(bytes) + WEFT_ALIGNMENT;
    WEFT_TRY(make_exchange(group, op, bytes, x));
    *data = weft_alloc_aligned(2 * room + weft_exchange_scratch(*x));
    if (!*data)
        return weft_fail(WEFT_E_MEMORY, "no memory to measure exchanges");
    memset(*data, 0, (size_t)(2 * room));
    char *const out = op == WEFT_COMM_BROADCAST ? *data : *data + room;
    weft_exchange_bind(*x, *data, out, *data + 2 * room);
    return weft_exchange_attach(*x, group, WEFT_CHANNEL_LAYERS);
}

weft_status weft_comm_measure_exchange(weft_comm *comm, int ranks, weft_comm_op op, int64_t bytes,
                                       double *seconds)
{
    weft_group *group;
    weft_exchange *x = NULL;
    char *data = NULL;
    double took[TURNS];
    weft_status_code status = WEFT_OK;
    WEFT_TRY(group_of(comm, ranks, &group));
    if (op == WEFT_COMM_SEND) {
        data = weft_alloc_aligned(bytes);
        if (!data)
            return weft_fail(WEFT_E_MEMORY, "no memory to measure exchanges");
        memset(data, 0, (size_t)bytes);
        WEFT_GO(one_way(group, data, bytes, LARGE_TIMES, seconds));
        goto out;
    }
    WEFT_GO(open_exchange(group, op, bytes, &x, &data));
    WEFT_GO(run_exchange(x));
    for (int i = 0; i < TURNS; i++) {
        WEFT_GO(weft_group_barrier(group));
        const double begun = weft_now();
        WEFT_GO(run_exchange(x));
        took[i] = weft_now() - begun;
    }
    *seconds = weft_measure_quick(took, TURNS, 4);
out:
    weft_exchange_free(x);
    weft_free(data);
    return status;
}

weft_status weft_comm_measure_drag(weft_comm *comm, double *drag)
{
    enum { BYTES = 4 << 20, FEW = 8 };
    double alone[FEW], both[FEW], exchange;
    weft_group *world;
    weft_exchange *x = NULL;
    char *data = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_comm_measure_exchange(comm, weft_comm_ranks(comm), WEFT_COMM_ALL_REDUCE, BYTES,
                                        &exchange));
    WEFT_TRY(weft_comm_broadcast(comm, &exchange, sizeof exchange, 0));
    int64_t count = 100000;
    double took = 0;
    for (int i = 0; i < 3; i++) /* as long as three exchanges, so that one is wholly beside it */
        took = weft_measure_work(count);
    count = (int64_t)((double)count * 3 * exchange / took);
    WEFT_TRY(weft_comm_broadcast(comm, &count, sizeof count, 0));
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_GO(open_exchange(world, WEFT_COMM_ALL_REDUCE, BYTES, &x, &data));
    WEFT_GO(run_exchange(x));
    for (int i = 0; i < FEW; i++) {
        WEFT_GO(weft_group_barrier(world));
        alone[i] = weft_measure_work(count);
        WEFT_GO(weft_group_barrier(world));
        const double begun = weft_now();
        weft_exchange_start(x);
        weft_measure_work(count);
        WEFT_GO(weft_exchange_wait(x));
        both[i] = weft_now() - begun;
    }
    *drag = weft_measure_drag(alone, both, FEW, exchange);
out:
    weft_exchange_free(x);
    weft_free(data);
    return status;
}

weft_status weft_comm_measure_peak(weft_comm *comm, const weft_backend *backend, double seconds,
                                   double *gflops)
{
    weft_core_rate own = {.threads = weft_host_threads(),
                          .cores = weft_seat_here().cores,
                          .online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)},
                   *all = weft_alloc(comm->ranks * (int64_t)sizeof *all);
    weft_status_code status = WEFT_OK;
    if (!all) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    WEFT_GO(weft_measure_core(backend, seconds, &own.gflops));
    WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    *gflops = weft_measure_together(all, comm->node, comm->ranks);
out:
    weft_free(all);
    return status;
}
