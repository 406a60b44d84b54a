/* What messages cost here, measured between two ranks of a node and two of different nodes. */
#include "runtime/comm_internal.h"

#include "base/log.h"

#include <string.h>

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
                                weft_link *link)
{
    *link = (weft_link){0};
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

weft_status weft_comm_measure_links(weft_comm *comm, weft_link *inside, weft_link *between)
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
