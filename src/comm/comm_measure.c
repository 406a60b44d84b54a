/* Measures link costs between two ranks of a node and two ranks of different nodes. */
#include "comm/comm_measure.h"

#include "comm/comm_internal.h"

#include "base/log.h"
#include "comm/coll_algorithms.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "comm/rank_map.h"
#include "graph/graph.h"
#include "kernel/host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 1 << 20, TIMES = 40, LARGE_TIMES = 10 };

/* Measures the seconds of `bytes` in one direction between members 0 and 1, the minimum of many. */
static weft_status one_way(weft_group *pair, char *data, int64_t bytes, int times, double *seconds)
{
    weft_comm_request *x[2] = {0};
    weft_status_code status = WEFT_OK;
    const int own = pair->own;
    double best = 0;
    WEFT_GO(weft_comm_request_create_send(2, own, !own, bytes, WEFT_U8, "a measurement", &x[0]));
    WEFT_GO(weft_comm_request_create_recv(2, own, !own, bytes, WEFT_U8, "a measurement", &x[1]));
    for (int i = 0; i < 2; i++) {
        WEFT_GO(weft_comm_request_attach(x[i], pair, WEFT_CHANNEL_CONTROL));
        weft_comm_request_bind(x[i], data, data, NULL);
    }
    for (int i = 0; i < times; i++) {
        const double begin = weft_now();
        for (int sender = 0; sender < 2; sender++) {
            weft_comm_request *now = x[sender != own];
            weft_comm_request_start(now);
            WEFT_GO(weft_comm_request_wait(now));
        }
        const double took = (weft_now() - begin) / 2;
        best = i == 0 || took < best ? took : best;
    }
    *seconds = best;
out:
    weft_comm_request_free(x[0]);
    weft_comm_request_free(x[1]);
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

/* Returns this rank's partner in `round`; -1: none. The edges of a ring, i to i + 1, are measured
 * in three rounds: even edges, odd edges, and the last edge if their number is odd. The edges of a
 * round are measured at the same time. */
static int partner(int own, int count, int round)
{
    const int edges = count == 2 ? 1 : count;
    for (int e = 0; e < edges; e++) {
        const int colour = e == edges - 1 && edges % 2 ? 2 : e % 2;
        if (colour == round && (e == own || (e + 1) % count == own))
            return e == own ? (e + 1) % count : e;
    }
    return -1;
}

/* Measures the ring over list[count], in which this rank is number `own`, and returns the better
 * link of its two neighbours. */
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
    int *list = weft_calloc(ranks, sizeof *list), count = 0, at = 0, local_index = 0;
    int *seen = weft_calloc(ranks, sizeof *seen); /* ranks counted per node */
    char *data = weft_alloc_aligned(LARGE);
    WEFT_GO(WEFT_ALLOCATED(list && seen && data, "measuring links"));
    memset(data, 0, LARGE);
    for (int r = 0; r < ranks; r++) {
        if (comm->node[r] == comm->node[own]) {
            at = r == own ? count : at;
            list[count++] = r;
        }
    }
    local_index = at;
    WEFT_GO(measure_ring(comm, list, count, at, data, inside));
    count = 0;
    for (int r = 0; r < ranks; r++)
        if (seen[comm->node[r]]++ ==
            local_index) { /* ranks with the same index on their machines */
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
    int other[2] = {-1, -1}; /* [0] on rank 0's node, [1] on another */
    WEFT_TRY(WEFT_ALLOCATED(data, "measuring messages"));
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
/* ---- collectives ----------------------------------------------------------------------------- */

enum { ROUNDS = 24, SPLIT_ROWS = 64 };

/* Makes a request of `bytes` as counted by weft_algorithm_cost. An all-to-all has strided rows, as
 * tokens of heads do. */
static weft_status make_request(weft_group *group, weft_comm_op op, int64_t bytes,
                                weft_comm_request **x)
{
    const int k = group->count;
    const int64_t n = bytes / 4 / k * k, row = n / SPLIT_ROWS / k * k;
    const weft_shape whole = WEFT_SHAPE(n), part = WEFT_SHAPE(n / k),
                     flat = WEFT_SHAPE(SPLIT_ROWS, row), tall = WEFT_SHAPE(SPLIT_ROWS * k, row / k);
    weft_attr_comm attr = {.dim = 0, .dim2 = 1, .shift = 1};
    static const char what[] = "a measurement";
    switch (op) {
    case WEFT_COMM_ALL_REDUCE:
        return weft_comm_request_create(k, group->own, WEFT_OP_ALL_REDUCE, &attr, &whole, &whole,
                                        WEFT_F32, what, x);
    case WEFT_COMM_ALL_GATHER:
        return weft_comm_request_create(k, group->own, WEFT_OP_ALL_GATHER, &attr, &part, &whole,
                                        WEFT_F32, what, x);
    case WEFT_COMM_REDUCE_SCATTER:
        return weft_comm_request_create(k, group->own, WEFT_OP_REDUCE_SCATTER, &attr, &whole, &part,
                                        WEFT_F32, what, x);
    case WEFT_COMM_BROADCAST:
        return weft_comm_request_create_broadcast(k, group->own, 0, n, WEFT_F32, what, x);
    case WEFT_COMM_ALL_TO_ALL:
        return weft_comm_request_create(k, group->own, WEFT_OP_ALL_TO_ALL, &attr, &flat, &tall,
                                        WEFT_F32, what, x);
    default:
        return weft_comm_request_create(k, group->own, WEFT_OP_RING_SHIFT, &attr, &whole, &whole,
                                        WEFT_F32, what, x);
    }
}

/* Makes groups of k consecutive ranks, for measurements at the same time. */
static weft_status group_of(weft_comm *comm, int k, weft_group **group)
{
    int *ranks;
    WEFT_TRY(WEFT_NEW(ranks, k, "measuring collectives"));
    for (int i = 0; i < k; i++)
        ranks[i] = comm->rank / k * k + i;
    const weft_status_code status = weft_comm_group(comm, ranks, k, group);
    weft_free(ranks);
    return status;
}

static weft_status run_request(weft_comm_request *x)
{
    weft_comm_request_start(x);
    return weft_comm_request_wait(x);
}

/* *data holds the input, the output and the request's scratch memory. */
static weft_status open_request(weft_group *group, weft_comm_op op, int64_t bytes,
                                weft_comm_request **x, char **data)
{
    const int64_t buffer_bytes = weft_aligned(bytes) + WEFT_ALIGNMENT;
    WEFT_TRY(make_request(group, op, bytes, x));
    *data = weft_alloc_aligned(2 * buffer_bytes + weft_comm_request_scratch(*x));
    WEFT_TRY(WEFT_ALLOCATED(*data, "measuring collectives"));
    memset(*data, 0, (size_t)(2 * buffer_bytes));
    char *const out = op == WEFT_COMM_BROADCAST ? *data : *data + buffer_bytes;
    weft_comm_request_bind(*x, *data, out, *data + 2 * buffer_bytes);
    return weft_comm_request_attach(*x, group, WEFT_CHANNEL_LAYERS);
}

weft_status weft_comm_measure_exchange(weft_comm *comm, int ranks, weft_comm_op op, int64_t bytes,
                                       double *seconds)
{
    weft_group *group;
    weft_comm_request *x = NULL;
    char *data = NULL;
    double took[ROUNDS];
    weft_status_code status = WEFT_OK;
    WEFT_TRY(group_of(comm, ranks, &group));
    if (op == WEFT_COMM_SEND) {
        data = weft_alloc_aligned(bytes);
        WEFT_TRY(WEFT_ALLOCATED(data, "measuring collectives"));
        memset(data, 0, (size_t)bytes);
        WEFT_GO(one_way(group, data, bytes, LARGE_TIMES, seconds));
        goto out;
    }
    WEFT_GO(open_request(group, op, bytes, &x, &data));
    WEFT_GO(run_request(x));
    for (int i = 0; i < ROUNDS; i++) {
        WEFT_GO(weft_group_barrier(group));
        const double begun = weft_now();
        WEFT_GO(run_request(x));
        took[i] = weft_now() - begun;
    }
    *seconds = weft_measure_quick(took, ROUNDS, 4);
out:
    weft_comm_request_free(x);
    weft_free(data);
    return status;
}

weft_status weft_comm_measure_drag(weft_comm *comm, double *slowdown)
{
    enum { BYTES = 4 << 20, FEW = 8 };
    double alone[FEW], both[FEW], comm_seconds;
    weft_group *world;
    weft_comm_request *x = NULL;
    char *data = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_comm_measure_exchange(comm, weft_comm_ranks(comm), WEFT_COMM_ALL_REDUCE, BYTES,
                                        &comm_seconds));
    WEFT_TRY(weft_comm_broadcast(comm, &comm_seconds, sizeof comm_seconds, 0));
    int64_t count = 100000;
    double took = 0;
    for (int i = 0; i < 3; i++) /* lasts three collectives, so that one overlaps completely */
        took = weft_measure_work(count);
    count = (int64_t)((double)count * 3 * comm_seconds / took);
    WEFT_TRY(weft_comm_broadcast(comm, &count, sizeof count, 0));
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_GO(open_request(world, WEFT_COMM_ALL_REDUCE, BYTES, &x, &data));
    WEFT_GO(run_request(x));
    for (int i = 0; i < FEW; i++) {
        WEFT_GO(weft_group_barrier(world));
        alone[i] = weft_measure_work(count);
        WEFT_GO(weft_group_barrier(world));
        const double begun = weft_now();
        weft_comm_request_start(x);
        weft_measure_work(count);
        WEFT_GO(weft_comm_request_wait(x));
        both[i] = weft_now() - begun;
    }
    *slowdown = weft_measure_slowdown(alone, both, FEW, comm_seconds);
out:
    weft_comm_request_free(x);
    weft_free(data);
    return status;
}
