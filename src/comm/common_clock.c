#include "comm/common_clock.h"

#include "base/log.h"
#include "comm/comm_internal.h"
#include "comm/comm_world.h"

#include <math.h>

enum { ROUND_TRIPS = 16 };

/* Reply of a parent. */
typedef struct clock_reply {
    double now, offset, error; /* common time, offset and error of the parent, in seconds */
} clock_reply;

static double own_now(const weft_own_clock *own)
{
    return own->now ? own->now(own->user) : weft_now();
}

static weft_status pair_with(weft_comm *comm, int parent, int child, weft_group **pair)
{
    return weft_comm_group(comm, (int[]){parent, child}, 2, pair);
}

static weft_status serve(weft_comm *comm, const weft_common_clock *clock, int child)
{
    weft_group *pair;
    WEFT_TRY(pair_with(comm, comm->rank, child, &pair));
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char question;
        WEFT_TRY(weft_group_recv(pair, WEFT_CHANNEL_CONTROL, 1, &question, 1));
        const clock_reply a = {own_now(&clock->own) + clock->offset, clock->offset, clock->error};
        WEFT_TRY(weft_group_send(pair, WEFT_CHANNEL_CONTROL, 1, &a, sizeof a));
    }
    return WEFT_OK;
}

static weft_status ask(weft_comm *comm, weft_common_clock *clock, int parent)
{
    weft_group *pair;
    double quickest = INFINITY;
    WEFT_TRY(pair_with(comm, parent, comm->rank, &pair));
    for (int i = 0; i < ROUND_TRIPS; i++) {
        clock_reply a;
        const double asked = own_now(&clock->own);
        WEFT_TRY(weft_group_send(pair, WEFT_CHANNEL_CONTROL, 0, "?", 1));
        WEFT_TRY(weft_group_recv(pair, WEFT_CHANNEL_CONTROL, 0, &a, sizeof a));
        const double answered = own_now(&clock->own), trip = answered - asked;
        if (trip >= quickest)
            continue;
        quickest = trip;
        const double offset = a.now - (asked + answered) / 2;
        const bool same =
            comm->node[parent] == comm->node[comm->rank] && fabs(offset - a.offset) <= trip / 2;
        clock->offset = same ? a.offset : offset;
        clock->error = same ? a.error : a.error + trip / 2;
    }
    return WEFT_OK;
}

/* Distant pairs measure first, so that a parent has its own offset before it answers: rank 4 from
 * 0; then 2 from 0 and 6 from 4; then 1 from 0, 3 from 2, 5 from 4 and 7 from 6. */
static weft_status measure(weft_comm *comm, weft_common_clock *c)
{
    int64_t apart = 1;
    while (apart < comm->ranks)
        apart *= 2;
    for (apart /= 2; apart > 0; apart /= 2) {
        const int64_t child = comm->rank + apart;
        if (comm->rank % (2 * apart) == apart)
            WEFT_TRY(ask(comm, c, (int)(comm->rank - apart)));
        else if (comm->rank % (2 * apart) == 0 && child < comm->ranks)
            WEFT_TRY(serve(comm, c, (int)child));
    }
    return WEFT_OK;
}

weft_status weft_common_clock_measure(weft_comm *comm, weft_common_clock *clock)
{
    weft_common_clock c = {.own = clock->own, .measured = true};
    const weft_status_code status = measure(comm, &c);
    if (status != WEFT_OK)
        weft_comm_abort(comm); /* another rank may wait for this one */
    WEFT_TRY(status);
    c.measured_at = own_now(&c.own);
    *clock = c;
    return WEFT_OK;
}

double weft_common_now(const weft_common_clock *clock)
{
    return own_now(&clock->own) + clock->offset;
}

double weft_common_clock_age(const weft_common_clock *clock)
{
    return clock->measured ? own_now(&clock->own) - clock->measured_at : INFINITY;
}
