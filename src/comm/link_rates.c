#include "comm/link_rates.h"

#include "base/memory.h"
#include "comm/comm_internal.h"
#include "comm/comm_link.h"
#include "comm/comm_world.h"
#include "kernel/device_links.h"

#include <math.h>

enum { ROUNDS = 5 }; /* the first one is not measured */

typedef struct measuring {
    weft_group *group;
    const weft_device *device;
    weft_device_stream *stream;
    char *sent, *received;
    int64_t bytes;
} measuring;

typedef void add_work(const measuring *m);

static void add_ring(const measuring *m)
{
    const weft_group *g = m->group;
    const weft_link_message message[] = {
        {.peer = (g->own + 1) % g->count, .data = m->sent, .bytes = m->bytes},
        {.peer = (g->own + g->count - 1) % g->count,
         .receiving = true,
         .data = m->received,
         .bytes = m->bytes}};
    g->links->exchange(m->stream, g->link, message, 2);
}

static void add_all_reduce(const measuring *m)
{
    m->group->links->collective(m->stream, m->group->link,
                                &(weft_link_collective){.op = WEFT_OP_ALL_REDUCE,
                                                        .dtype = WEFT_F32,
                                                        .in = m->sent,
                                                        .out = m->received,
                                                        .count = m->bytes / 4});
}

static weft_status time_work(const measuring *m, add_work *add, double *seconds)
{
    weft_event begin = {0}, end = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_group_barrier(m->group));
    WEFT_GO(m->device->record(m->stream, &begin));
    add(m);
    WEFT_GO(m->device->record(m->stream, &end));
    WEFT_GO(m->device->await(m->stream, &begin));
    WEFT_GO(m->device->await(m->stream, &end));
    *seconds = end.seconds - begin.seconds;
out:
    m->device->forget(m->device, &begin);
    m->device->forget(m->device, &end);
    return status;
}

/* Sets *rate to bytes / seconds of the fastest round of the slowest rank. */
static weft_status rate_of(const measuring *m, add_work *add, double *rate)
{
    double own = 0, *all;
    WEFT_TRY(WEFT_NEW(all, m->group->count, "rates of %d ranks", m->group->count));
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds;
        WEFT_GO(time_work(m, add, &seconds));
        if (i > 0 && seconds > 0)
            own = fmax(own, (double)m->bytes / seconds);
    }
    WEFT_GO(weft_group_all_gather(m->group, &own, sizeof own, all));
    *rate = own;
    for (int i = 0; i < m->group->count; i++)
        *rate = fmin(*rate, all[i]);
out:
    weft_free(all);
    return status;
}

weft_status weft_link_rates_measure(weft_group *group, const weft_device *device, int64_t bytes,
                                    weft_link_rates *rates)
{
    measuring m = {.group = group, .device = device, .bytes = bytes};
    weft_status_code status = WEFT_OK;
    *rates = (weft_link_rates){0};
    WEFT_TRY(weft_group_connect(group, device));
    if (!group->link)
        return WEFT_OK;
    m.sent = device->alloc(device, bytes);
    m.received = device->alloc(device, bytes);
    WEFT_GO(WEFT_ALLOCATED(m.sent && m.received, "the measurement of links"));
    WEFT_GO(device->open(device, NULL, &m.stream));
    device->fill(m.stream, m.sent, 0, bytes);
    WEFT_GO(rate_of(&m, add_ring, &rates->ring));
    WEFT_GO(rate_of(&m, add_all_reduce, &rates->all_reduce));
    rates->all_reduce *= 2.0 * (group->count - 1) / group->count;
    rates->library = group->links->name;
out:
    if (m.stream)
        device->close(m.stream);
    device->free(device, m.sent);
    device->free(device, m.received);
    return status;
}
