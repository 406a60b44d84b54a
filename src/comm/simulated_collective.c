#include "comm/simulated_collective.h"

#include "comm/comm_internal.h"
#include "comm/comm_request.h"
#include "comm/comm_segment.h"

#include <string.h>

/* Message that was sent before its receiver posted the receive. */
typedef struct arrival {
    int64_t from, tag, bytes; /* from: member */
    double there;
    struct arrival *next;
} arrival;

typedef struct member {
    weft_message *posted, **last_posted; /* receives without a message, oldest first */
    arrival *arrived, **last_arrived;    /* messages without a receive, oldest first */
    bool is_ready;
} member;

struct weft_simulated_collective {
    weft_comm_request *const *x;
    int members;
    weft_arena *arena; /* everything below, and the messages of the segments */
    member *member;
    arrival *unused;
    int *ready; /* [members] ring of members that can progress */
    int first_ready, ready_count;
};

bool weft_simulated_collective_fits(const weft_comm_request *x)
{
    return x->like && x->buffers.device->meta && x->simulated.clock.now &&
           x->comm->transport.plans && x->comm->transport.time && x->spec.op != WEFT_COMM_SEND &&
           x->spec.op != WEFT_COMM_RECV;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void make_ready(weft_simulated_collective *t, int i)
{
    if (t->member[i].is_ready)
        return;
    t->member[i].is_ready = true;
    t->ready[(t->first_ready + t->ready_count++) % t->members] = i;
}

static void end_message(weft_simulated_collective *t, int i, weft_message *m)
{
    const bool last = atomic_fetch_sub(m->together, 1) == 1;
    atomic_store(&m->done, true);
    if (last)
        make_ready(t, i);
}

static weft_status check_bytes(const weft_simulated_collective *t, const weft_message *m, int own,
                               int64_t bytes)
{
    return m->bytes == bytes
               ? WEFT_OK
               : weft_error(WEFT_MSG_RANKS_DISAGREE, WEFT_AT(WEFT_RANK(m->peer)),
                            "ranks %d and %d disagree about the size of a message: %" PRId64
                            " and %" PRId64 " bytes",
                            t->x[own]->comm->rank, m->peer, m->bytes, bytes);
}

static weft_status keep_arrival(weft_simulated_collective *t, int from, const weft_message *m)
{
    member *to = &t->member[m->handle.number];
    arrival *a = t->unused;
    if (a)
        t->unused = a->next;
    else
        WEFT_TRY(WEFT_ARENA_NEW(t->arena, a, 1, "a message to rank %d", m->peer));
    *a = (arrival){.from = from, .tag = m->tag, .bytes = m->bytes, .there = m->there};
    *to->last_arrived = a;
    to->last_arrived = &a->next;
    return WEFT_OK;
}

static weft_status post_send(weft_simulated_collective *t, int own, weft_message *m)
{
    const weft_transport *transport = &t->x[own]->comm->transport;
    const int to = (int)m->handle.number;
    transport->time(transport->self, m);
    weft_message **at = &t->member[to].posted;
    while (*at && ((*at)->handle.number != own || (*at)->tag != m->tag))
        at = &(*at)->next;
    weft_message *other = *at;
    if (!other) {
        WEFT_TRY(keep_arrival(t, own, m));
    } else {
        *at = other->next;
        if (!other->next)
            t->member[to].last_posted = at;
        WEFT_TRY(check_bytes(t, m, own, other->bytes));
        other->there = m->there;
        end_message(t, to, other);
    }
    end_message(t, own, m);
    return WEFT_OK;
}

static weft_status post_receive(weft_simulated_collective *t, int own, weft_message *m)
{
    member *to = &t->member[own];
    arrival **at = &to->arrived;
    while (*at && ((*at)->from != m->handle.number || (*at)->tag != m->tag))
        at = &(*at)->next;
    arrival *a = *at;
    if (!a) {
        m->next = NULL;
        *to->last_posted = m;
        to->last_posted = &m->next;
        return WEFT_OK;
    }
    *at = a->next;
    if (!a->next)
        to->last_arrived = at;
    WEFT_TRY(check_bytes(t, m, own, a->bytes));
    m->there = a->there;
    a->next = t->unused;
    t->unused = a;
    end_message(t, own, m);
    return WEFT_OK;
}

weft_status weft_simulated_collective_post(weft_simulated_collective *t, const weft_comm_request *x,
                                           weft_message *m)
{
    return m->receiving ? post_receive(t, x->spec.own, m) : post_send(t, x->spec.own, m);
}

/* ---- members --------------------------------------------------------------------------------- */

/* Lends the request a plan, messages and segments. */
static weft_status set_up(weft_simulated_collective *t, weft_coll_plans *plans,
                          weft_comm_request *x)
{
    weft_comm_segment *segment;
    if (!x->plan_arena) {
        WEFT_TRY(weft_coll_plans_find(plans, x, &x->plan));
        WEFT_TRY(WEFT_ARENA_NEW(t->arena, segment, WEFT_COMM_SEGMENTS_MOST, "a collective"));
        WEFT_TRY(
            WEFT_ALLOCATED(weft_comm_segments_make(x, x->plan, t->arena, segment), "%s", x->what));
        x->segment = segment;
        x->segments = weft_coll_plan_segments(x->plan);
        weft_comm_request_bind(x, x->buffers.in, x->buffers.out, x->buffers.scratch);
    }
    x->simulated.together = t;
    x->run.begun = true;
    return weft_comm_request_begin(x->comm, x);
}

static void take_back(weft_comm_request *x)
{
    x->simulated.together = NULL;
    if (x->plan_arena)
        return;
    x->plan = NULL;
    x->segment = NULL;
    x->segments = 0;
}

/* Advances a member until it waits for messages. */
static weft_status advance(weft_comm_request *x, bool *finished)
{
    bool progressed = true;
    *finished = false;
    while (progressed && !*finished) {
        progressed = false;
        WEFT_TRY(weft_comm_request_advance(x->comm, x, &progressed, finished));
    }
    return WEFT_OK;
}

static weft_status run_all(weft_simulated_collective *t, weft_coll_plans *plans)
{
    int done = 0;
    for (int i = 0; i < t->members; i++) {
        t->member[i].last_posted = &t->member[i].posted;
        t->member[i].last_arrived = &t->member[i].arrived;
        WEFT_TRY(set_up(t, plans, t->x[i]));
        make_ready(t, i);
    }
    while (t->ready_count) {
        bool finished;
        const int i = t->ready[t->first_ready];
        t->first_ready = (t->first_ready + 1) % t->members;
        t->ready_count--;
        WEFT_TRY(advance(t->x[i], &finished));
        t->member[i].is_ready = finished; /* a finished member is never ready again */
        done += finished;
    }
    return done == t->members
               ? WEFT_OK
               : weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = t->x[0]->what),
                            "%d of %d members did not finish", t->members - done, t->members);
}

weft_status weft_simulated_collective_run(weft_comm_request *const *x, int members,
                                          weft_coll_plans *plans)
{
    weft_simulated_collective t = {.x = x, .members = members, .arena = weft_arena_create()};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(t.arena, "a collective"));
    WEFT_GO(WEFT_ARENA_NEW(t.arena, t.member, members, "a collective"));
    WEFT_GO(WEFT_ARENA_NEW(t.arena, t.ready, members, "a collective"));
    WEFT_GO(run_all(&t, plans));
out:
    for (int i = 0; i < members; i++)
        take_back(x[i]);
    weft_arena_free(t.arena);
    return status;
}
