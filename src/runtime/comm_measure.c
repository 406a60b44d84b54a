/* What messages cost here, measured between two ranks of a node and two of different nodes. */
#include "runtime/comm_internal.h"

#include "base/log.h"

#include <string.h>

enum { LARGE = 1 << 20, TIMES = 40 };

/* Seconds of one way there of `bytes`, the best of many, between members 0 and 1. */
static weft_status one_way(weft_group *pair, char *data, int64_t bytes, double *seconds)
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
    for (int i = 0; i < TIMES; i++) {
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
    WEFT_TRY(one_way(pair, data, 8, &small));
    WEFT_TRY(one_way(pair, data, LARGE, &large));
    *message = small;
    *byte = (large > small ? large - small : large) / LARGE;
    return WEFT_OK;
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
