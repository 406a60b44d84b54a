/* Messages between ranks over the links of a cluster, in simulated time.
 *
 * Ranks are threads with a clock each. The order in which the machine runs the threads does not
 * determine which message is sent first. A send is recorded with the sender's time, and the sender
 * continues. A rank blocks when it waits for a message to arrive or to leave. When all ranks are
 * blocked, no rank can send earlier than the recorded sends. The traffic (link_sharing.h) then
 * advances to the next time at which a message begins or has left. The ranks that wait for this
 * message continue from there:
 *
 *   rank 0    sends a at 5 ms, waits for its departure .................. resumes at 8 ms
 *   rank 1    runs, sends b at 4 ms over the same link, waits ... resumes at 7 ms, runs, ...
 *   traffic                                  4: b  5: b and a  7: a  8: -
 *
 * Messages from one rank to another are sent one at a time, as on a queue pair. All other messages
 * share the links that they have in common. Simulated times are bitwise reproducible. */
#include "comm/simulated_links.h"

#include "comm/comm_internal.h"
#include "comm/simulated_collective.h"

#include "plan/cluster/cluster_path.h"
#include "plan/simulate/link_sharing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum act { RUNS, WAITS, LEFT } act;

typedef struct mail mail;
struct mail {
    uint64_t key;
    int from, to;
    int64_t number;            /* sequence number in its queue */
    double when, bytes;        /* when: earliest departure */
    double begin, left, there; /* simulated start, departure and arrival */
    bool passed;               /* the three times above are known */
    bool sender_knows, receiver_knows;
    mail *next; /* next unsent one of its pair */
    mail *also; /* next one to the same rank */
};

/* Sender and receiver of at least one message. */
typedef struct pair {
    int64_t key; /* from x ranks + to: order of pairs at equal times */
    mail *head, *tail;
    int32_t flow; /* flow of `head`; -1: not begun */
    weft_route route;
    double latency, free_at;
    double next;  /* time at which `head` begins or has left */
    int64_t heap; /* index in weft_simulated_links.busy; -1: nothing to send */
} pair;

/* Collectives of one queue, counted by member. A rank waits until all members have begun its
 * collective. In a ring shift or relay, it waits for its sender only. */
typedef struct meeting {
    uint64_t key;
    int members;
    int64_t *begun; /* [members] collectives begun */
    int64_t done;   /* collectives that all members have begun */
    int lagging;    /* members that have begun exactly `done` */
    /* [members + 1] first rank that waits for a member (last: for all); -1: none */
    int32_t *waiting;
    /* [members] requests that are held, oldest first: a collective, and the requests after it */
    weft_comm_request **held, **last_held;
    weft_comm_request **together; /* [members] the first of each while they run */
    int holding;                  /* members with held requests */
    struct meeting *next;
} meeting;

typedef struct sim_rank {
    act act;
    pthread_cond_t go;
    /* WAITS: for a collective, or for mail to be sent */
    bool meets, stuck; /* meets: waits for a collective; stuck: still blocked */
    meeting *meeting;
    int member;   /* member it waits for: an index of meeting->waiting */
    int32_t also; /* next rank with the same wait; -1: none */
    uint64_t key;
    int64_t number;
    int from;
    mail *awaited; /* NULL: not posted yet */
    mail *mail;    /* mail to this rank */
} sim_rank;

struct weft_simulated_links {
    pthread_mutex_t mutex;
    weft_arena *arena;
    const weft_cluster *cluster; /* borrowed */
    int ranks;
    bool broken;
    weft_status_code failed; /* error of the traffic, after which no rank gets times */
    sim_rank *sim_rank;
    int running;       /* ranks that are not blocked */
    int wanting;       /* blocked ranks that wait for mail */
    meeting **meeting; /* [ranks] lists by hash */
    weft_traffic *traffic;
    pair **slot; /* [slots] hash table by key; a power of two, at most half full */
    int64_t slots, pairs;
    pair **busy; /* [busy_capacity] pairs with mail to send: a heap by `next` */
    int64_t busy_count, busy_capacity;
    pair **of_flow; /* [flow_capacity] pair by flow */
    int64_t flow_capacity;
    pair **due; /* [due_capacity] pairs whose event is now */
    int64_t due_capacity;
    double now; /* simulated time of the traffic */
};

weft_simulated_links *weft_simulated_links_create(int ranks, const weft_cluster *cluster)
{
    weft_simulated_links *t = weft_alloc(sizeof *t);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->mutex, NULL);
    t->cluster = cluster;
    t->arena = weft_arena_create();
    t->traffic = weft_traffic_create(cluster);
    t->sim_rank = weft_calloc(ranks, sizeof *t->sim_rank);
    t->meeting = weft_calloc(ranks, sizeof(meeting *));
    t->slots = 64;
    t->slot = weft_calloc(t->slots, sizeof(pair *));
    for (; t->sim_rank && t->ranks < ranks; t->ranks++)
        pthread_cond_init(&t->sim_rank[t->ranks].go, NULL);
    t->running = ranks;
    if (t->arena && t->traffic && t->sim_rank && t->meeting && t->slot)
        return t;
    weft_simulated_links_free(t);
    return NULL;
}

void weft_simulated_links_free(weft_simulated_links *t)
{
    if (!t)
        return;
    for (int r = 0; r < t->ranks; r++) {
        pthread_cond_destroy(&t->sim_rank[r].go);
        for (mail *m = t->sim_rank[r].mail, *also; m; m = also) {
            also = m->also;
            weft_free(m);
        }
    }
    pthread_mutex_destroy(&t->mutex);
    weft_traffic_free(t->traffic);
    weft_arena_free(t->arena);
    weft_free(t->sim_rank);
    weft_free(t->meeting);
    weft_free(t->slot);
    weft_free(t->busy);
    weft_free(t->of_flow);
    weft_free(t->due);
    weft_free(t);
}

/* ---- blocked and running ranks --------------------------------------------------------------- */

/* Unblocks `rank`. */
static void release(weft_simulated_links *t, int rank)
{
    sim_rank *s = &t->sim_rank[rank];
    if (!s->stuck)
        return;
    s->stuck = false;
    t->running++;
    t->wanting -= !s->meets;
    pthread_cond_signal(&s->go);
}

/* Unblocks the ranks that wait for `member` to begin their collective. */
static void release_waiting(weft_simulated_links *t, meeting *m, int member)
{
    const int64_t begun = member == m->members ? m->done : m->begun[member];
    int32_t *at = &m->waiting[member];
    while (*at >= 0) {
        sim_rank *s = &t->sim_rank[*at];
        const int rank = *at;
        if (begun <= s->number) {
            at = &s->also;
            continue;
        }
        *at = s->also;
        release(t, rank);
    }
}

static void leave_meeting(weft_simulated_links *t, int rank)
{
    const sim_rank *s = &t->sim_rank[rank];
    int32_t *at = &s->meeting->waiting[s->member];
    while (*at != rank)
        at = &t->sim_rank[*at].also;
    *at = s->also;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static pair **find_slot(pair **slot, int64_t slots, int64_t key)
{
    int64_t at = (int64_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> 20) & (slots - 1);
    while (slot[at] && slot[at]->key != key)
        at = (at + 1) & (slots - 1);
    return &slot[at];
}

static weft_status grow_slots(weft_simulated_links *t)
{
    const int64_t slots = 2 * t->slots;
    pair **slot;
    WEFT_TRY(WEFT_NEW(slot, slots, "the messages of ranks"));
    for (int64_t i = 0; i < t->slots; i++)
        if (t->slot[i])
            *find_slot(slot, slots, t->slot[i]->key) = t->slot[i];
    weft_free(t->slot);
    t->slot = slot;
    t->slots = slots;
    return WEFT_OK;
}

static weft_status make_pair(weft_simulated_links *t, int from, int to, pair **out)
{
    weft_path path;
    weft_cluster_path(t->cluster, from, to, &path);
    pair *p = weft_arena_alloc(t->arena, sizeof *p);
    if (p) {
        *p = (pair){.key = (int64_t)from * t->ranks + to, .flow = -1, .heap = -1};
        p->route.link = weft_arena_calloc(t->arena, path.count, sizeof *p->route.link);
        p->route.count = weft_arena_calloc(t->arena, path.count, sizeof *p->route.count);
    }
    if (!p || !p->route.link || !p->route.count)
        return weft_no_memory("the path from rank %d to %d", from, to);
    for (int32_t i = 0; i < path.count; i++) {
        p->route.link[i] = path.link[i];
        p->route.count[i] = 1;
    }
    p->route.links = path.count;
    p->latency = path.latency;
    *out = p;
    return WEFT_OK;
}

static weft_status find_pair(weft_simulated_links *t, int from, int to, pair **out)
{
    const int64_t key = (int64_t)from * t->ranks + to;
    pair **at = find_slot(t->slot, t->slots, key);
    if (!*at) {
        if (2 * ++t->pairs > t->slots)
            WEFT_TRY(grow_slots(t));
        at = find_slot(t->slot, t->slots, key);
        WEFT_TRY(make_pair(t, from, to, at));
    }
    *out = *at;
    return WEFT_OK;
}

/* ---- pairs by the time of their next event --------------------------------------------------- */

static void put(weft_simulated_links *t, int64_t at, pair *p)
{
    t->busy[at] = p;
    p->heap = at;
}

/* Moves `p`, whose time may have changed, from heap index `at` to its index. */
static void sift(weft_simulated_links *t, int64_t at, pair *p)
{
    for (; at > 0 && p->next < t->busy[(at - 1) / 2]->next; at = (at - 1) / 2)
        put(t, at, t->busy[(at - 1) / 2]);
    for (int64_t child; (child = 2 * at + 1) < t->busy_count; at = child) {
        if (child + 1 < t->busy_count && t->busy[child + 1]->next < t->busy[child]->next)
            child++;
        if (p->next <= t->busy[child]->next)
            break;
        put(t, at, t->busy[child]);
    }
    put(t, at, p);
}

static void take_out(weft_simulated_links *t, pair *p)
{
    const int64_t at = p->heap;
    pair *last = t->busy[--t->busy_count];
    p->heap = -1;
    if (last != p)
        sift(t, at, last);
}

/* Updates the event time of a pair that has mail to send. */
static weft_status reschedule(weft_simulated_links *t, pair *p)
{
    p->next =
        p->flow >= 0 ? weft_traffic_ends(t->traffic, p->flow) : fmax(p->head->when, p->free_at);
    if (p->heap < 0) {
        WEFT_TRY(weft_grow((void **)&t->busy, t->busy_count, &t->busy_capacity, sizeof *t->busy));
        p->heap = t->busy_count++;
    }
    sift(t, p->heap, p);
    return WEFT_OK;
}

/* ---- requests that have begun ---------------------------------------------------------------- */

static uint64_t key_of(const weft_comm_request *x)
{
    return (uint64_t)x->group->tag | (uint64_t)x->channel;
}

static bool is_single(const weft_comm_request *x)
{
    return x->spec.op == WEFT_COMM_SEND || x->spec.op == WEFT_COMM_RECV;
}

static mail *find_mail(const weft_simulated_links *t, uint64_t key, int from, int to,
                       int64_t number)
{
    mail *m = t->sim_rank[to].mail;
    while (m && (m->key != key || m->from != from || m->number != number))
        m = m->also;
    return m;
}

static weft_status make_meeting(weft_simulated_links *t, uint64_t key, int members, meeting **out)
{
    meeting *m = weft_arena_alloc(t->arena, sizeof *m);
    if (m) {
        *m = (meeting){.key = key, .members = members, .lagging = members};
        m->begun = weft_arena_calloc(t->arena, members, sizeof *m->begun);
        m->waiting = weft_arena_calloc(t->arena, members + 1, sizeof *m->waiting);
        m->held = weft_arena_calloc(t->arena, 3 * (int64_t)members, sizeof *m->held);
        m->last_held = m->held ? m->held + members : NULL;
        m->together = m->held ? m->held + 2 * (int64_t)members : NULL;
    }
    WEFT_TRY(WEFT_ALLOCATED(m && m->begun && m->waiting && m->held, "the messages of %d ranks",
                            members));
    for (int i = 0; i <= members; i++)
        m->waiting[i] = -1;
    for (int i = 0; i < members; i++)
        m->begun[i] = 0;
    *out = m;
    return WEFT_OK;
}

/* Finds or creates a meeting in the hash table, which has one list per rank. */
static weft_status find_meeting(weft_simulated_links *t, uint64_t key, int members, meeting **out)
{
    meeting **list = &t->meeting[(key * 0x9e3779b97f4a7c15u >> 20) % (uint64_t)t->ranks];
    for (*out = *list; *out; *out = (*out)->next)
        if ((*out)->key == key)
            return WEFT_OK;
    WEFT_TRY(make_meeting(t, key, members, out));
    (*out)->next = *list;
    *list = *out;
    return WEFT_OK;
}

static weft_status append(weft_simulated_links *t, pair *p, mail *m)
{
    if (p->head)
        p->tail->next = m;
    else
        p->head = m;
    p->tail = m;
    return p->heap < 0 ? reschedule(t, p) : WEFT_OK;
}

/* Records a send. A send of a device without a clock takes no time. */
static weft_status note_sent(weft_simulated_links *t, int from, const weft_comm_request *x)
{
    const int to = x->group->rank[x->spec.argument];
    sim_rank *s = &t->sim_rank[to];
    pair *p;
    WEFT_TRY(find_pair(t, from, to, &p));
    mail *m;
    WEFT_TRY(WEFT_NEW(m, 1, "a message to rank %d", to));
    *m = (mail){.key = key_of(x),
                .from = from,
                .to = to,
                .number = x->simulated.number,
                .when = x->simulated.asked,
                .bytes = (double)x->spec.bytes,
                .passed = !x->simulated.clock.now,
                .sender_knows = x->run.forgotten,
                .also = s->mail};
    s->mail = m;
    if (s->act == WAITS && !s->meets && !s->awaited && s->from == from && s->key == m->key &&
        s->number == m->number)
        s->awaited = m;
    if (!m->passed)
        return append(t, p, m);
    if (s->awaited == m)
        release(t, to);
    return WEFT_OK;
}

static void forget_mail(weft_simulated_links *t, mail *m)
{
    mail **at = &t->sim_rank[m->to].mail;
    while (*at != m)
        at = &(*at)->also;
    *at = m->also;
    weft_free(m);
}

/* ---- held collectives ------------------------------------------------------------------------ */

/* Ring shifts and relays wait for one other rank only. They are held after a collective only. */
static bool needs_all(const weft_comm_request *x)
{
    return x->spec.op != WEFT_COMM_RING_SHIFT && x->spec.op != WEFT_COMM_RELAY;
}

/* Holds the request, unless it can start at once. */
static bool hold(meeting *m, weft_comm_request *x)
{
    const int own = x->spec.own;
    if (!m->held[own] && !needs_all(x))
        return false;
    x->run.next = NULL;
    m->holding += !m->held[own];
    *(m->held[own] ? &m->last_held[own]->run.next : &m->held[own]) = x;
    m->last_held[own] = x;
    return true;
}

static weft_comm_request *take_held(meeting *m, int own)
{
    weft_comm_request *x = m->held[own];
    m->held[own] = x->run.next;
    m->holding -= !m->held[own];
    x->run.next = NULL;
    return x;
}

static bool all_fit(const meeting *m)
{
    for (int i = 0; i < m->members; i++) {
        const weft_comm_request *x = m->together[i];
        if (!weft_simulated_collective_fits(x) || !weft_comm_request_is_next(x) ||
            x->spec.op != m->together[0]->spec.op ||
            x->simulated.number != m->together[0]->simulated.number)
            return false;
    }
    return true;
}

/* Collectives that have run. They end when the mutex is free, because their owners need it next. */
typedef struct ended {
    weft_comm_request **item;
    int64_t count, capacity;
    bool done; /* false: they have failed */
} ended;

static void end_later(ended *e, weft_comm_request *x)
{
    if (weft_grow((void **)&e->item, e->count, &e->capacity, sizeof(weft_comm_request *)) ==
        WEFT_OK)
        e->item[e->count++] = x;
    else
        weft_comm_request_end(x, e->done);
}

static void end_all(ended *e)
{
    for (int64_t i = 0; i < e->count; i++)
        weft_comm_request_end(e->item[i], e->done);
    weft_free(e->item);
}

/* Starts the first collective that all members hold, and the requests after it that need no other
 * member. */
static weft_status run_held(meeting *m, ended *e)
{
    for (int i = 0; i < m->members; i++)
        m->together[i] = take_held(m, i);
    const bool fits = all_fit(m);
    weft_status_code status = WEFT_OK;
    if (fits)
        status = weft_simulated_collective_run(m->together, m->members,
                                               m->together[0]->comm->transport.plans);
    e->done = status == WEFT_OK;
    for (int i = 0; i < m->members; i++)
        if (fits)
            end_later(e, m->together[i]);
        else
            weft_comm_request_enqueue(m->together[i]);
    for (int i = 0; i < m->members; i++)
        while (m->held[i] && !needs_all(m->held[i]))
            weft_comm_request_enqueue(take_held(m, i));
    return status;
}

/* Records that a member began a collective. Members begin the collectives of a queue in order. */
static weft_status note_there(weft_simulated_links *t, weft_comm_request *x, bool *held, ended *e)
{
    meeting *m;
    WEFT_TRY(find_meeting(t, key_of(x), x->spec.ranks, &m));
    if (held)
        *held = hold(m, x);
    const int64_t before = m->begun[x->spec.own];
    weft_status_code status = WEFT_OK;
    while (m->holding == m->members)
        WEFT_GO(run_held(m, e));
out:
    m->begun[x->spec.own] = (int64_t)x->simulated.number + 1;
    release_waiting(t, m, x->spec.own);
    m->lagging -= before <= m->done && m->begun[x->spec.own] > m->done;
    while (m->lagging == 0) {
        int64_t least = m->begun[0];
        for (int i = 1; i < m->members; i++)
            least = m->begun[i] < least ? m->begun[i] : least;
        m->done = least;
        for (int i = 0; i < m->members; i++)
            m->lagging += m->begun[i] <= least;
        release_waiting(t, m, m->members);
    }
    return status;
}

/* ---- traffic --------------------------------------------------------------------------------- */

static weft_status pass(weft_simulated_links *t, pair *p)
{
    mail *m = p->head;
    WEFT_TRY(weft_traffic_end(t->traffic, p->flow));
    WEFT_TRY(weft_traffic_close(t->traffic, p->flow));
    p->flow = -1;
    p->free_at = m->left = t->now;
    m->there = t->now + p->latency;
    m->passed = true;
    p->head = m->next;
    if (t->sim_rank[m->from].awaited == m)
        release(t, m->from);
    if (t->sim_rank[m->to].awaited == m)
        release(t, m->to);
    return WEFT_OK;
}

static int by_key(const void *a, const void *b)
{
    const pair *const *x = a, *const *y = b;
    return ((*x)->key > (*y)->key) - ((*x)->key < (*y)->key);
}

/* Takes the pairs whose event time has come from the heap, sorted by key. */
static weft_status take_due(weft_simulated_links *t, int64_t *count)
{
    *count = 0;
    while (t->busy_count && t->busy[0]->next <= t->now) {
        WEFT_TRY(weft_grow((void **)&t->due, *count, &t->due_capacity, sizeof *t->due));
        t->due[(*count)++] = t->busy[0];
        take_out(t, t->busy[0]);
    }
    qsort(t->due, (size_t)*count, sizeof *t->due, by_key);
    return WEFT_OK;
}

static weft_status begin_head(weft_simulated_links *t, pair *p)
{
    WEFT_TRY(weft_traffic_open(t->traffic, &p->flow));
    while (p->flow >= t->flow_capacity)
        WEFT_TRY(weft_grow((void **)&t->of_flow, t->flow_capacity, &t->flow_capacity,
                           sizeof *t->of_flow));
    t->of_flow[p->flow] = p;
    p->head->begin = t->now;
    return weft_traffic_begin(t->traffic, p->flow, &p->route, p->head->bytes, t->now);
}

/* Advances the traffic to the next time at which a message begins or has left. */
static weft_status advance(weft_simulated_links *t)
{
    const weft_index_list *changed;
    int64_t due;
    t->now = fmax(t->busy[0]->next, t->now);
    WEFT_TRY(take_due(t, &due));
    for (int64_t i = 0; i < due; i++)
        if (t->due[i]->flow >= 0)
            WEFT_TRY(pass(t, t->due[i]));
    for (int64_t i = 0; i < due; i++) {
        pair *p = t->due[i];
        if (p->head && fmax(p->head->when, p->free_at) <= t->now)
            WEFT_TRY(begin_head(t, p));
        else if (p->head)
            WEFT_TRY(reschedule(t, p));
    }
    WEFT_TRY(weft_traffic_share(t->traffic, t->now, &changed));
    for (int64_t i = 0; i < changed->count; i++)
        WEFT_TRY(reschedule(t, t->of_flow[changed->item[i]]));
    return WEFT_OK;
}

static void let_all_go(weft_simulated_links *t)
{
    t->broken = true;
    for (int r = 0; r < t->ranks; r++)
        pthread_cond_signal(&t->sim_rank[r].go);
}

/* Advances the traffic until a rank is unblocked. */
static void run_traffic(weft_simulated_links *t)
{
    while (!t->broken && !t->running && t->wanting && t->busy_count)
        if ((t->failed = advance(t)) != WEFT_OK)
            let_all_go(t);
}

/* ---- calls of the ranks ---------------------------------------------------------------------- */

weft_status weft_simulated_links_begin(weft_simulated_links *t, int rank, weft_comm_request *x,
                                       bool *held)
{
    weft_status_code status = WEFT_OK;
    ended e = {0};
    pthread_mutex_lock(&t->mutex);
    if (held)
        *held = false;
    if (x->spec.op == WEFT_COMM_SEND)
        status = note_sent(t, rank, x);
    else if (x->spec.op != WEFT_COMM_RECV)
        status = note_there(t, x, t->broken ? NULL : held, &e);
    pthread_mutex_unlock(&t->mutex);
    end_all(&e);
    return status;
}

void weft_simulated_links_hand_over(weft_simulated_links *t, const weft_comm_request *x)
{
    meeting *m;
    pthread_mutex_lock(&t->mutex);
    if (find_meeting(t, key_of(x), x->spec.ranks, &m) == WEFT_OK)
        while (m->held[x->spec.own])
            weft_comm_request_enqueue(take_held(m, x->spec.own));
    pthread_mutex_unlock(&t->mutex);
}

void weft_simulated_links_drop(weft_simulated_links *t, const weft_comm *comm)
{
    pthread_mutex_lock(&t->mutex);
    for (int l = 0; l < t->ranks; l++)
        for (meeting *m = t->meeting[l]; m; m = m->next)
            for (int i = 0; i < m->members; i++)
                while (m->held[i] && m->held[i]->comm == comm)
                    weft_comm_request_end(take_held(m, i), false);
    pthread_mutex_unlock(&t->mutex);
}

static mail *mail_of(const weft_simulated_links *t, int rank, const weft_comm_request *x)
{
    const int peer = x->group->rank[x->spec.argument];
    const bool sends = x->spec.op == WEFT_COMM_SEND;
    return find_mail(t, key_of(x), sends ? rank : peer, sends ? peer : rank, x->simulated.number);
}

/* Returns the member whose start completes this rank's result. x->spec.ranks: all members. The rank
 * itself: it receives nothing. */
static int awaited_member(const weft_comm_request *x)
{
    if (x->spec.op == WEFT_COMM_RELAY && x->spec.own == 0)
        return x->spec.own;
    return x->spec.op == WEFT_COMM_RELAY || x->spec.op == WEFT_COMM_RING_SHIFT ? x->spec.out.at
                                                                               : x->spec.ranks;
}

static weft_status join_meeting(weft_simulated_links *t, int rank, const weft_comm_request *x)
{
    sim_rank *s = &t->sim_rank[rank];
    WEFT_TRY(find_meeting(t, s->key, x->spec.ranks, &s->meeting));
    s->member = awaited_member(x);
    const int64_t begun =
        s->member == x->spec.ranks ? s->meeting->done : s->meeting->begun[s->member];
    s->stuck = begun <= s->number;
    if (s->stuck) {
        s->also = s->meeting->waiting[s->member];
        s->meeting->waiting[s->member] = rank;
    }
    return WEFT_OK;
}

/* Marks `rank` as running. */
static void get_up(weft_simulated_links *t, int rank)
{
    sim_rank *s = &t->sim_rank[rank];
    if (s->stuck && s->meets)
        leave_meeting(t, rank);
    release(t, rank);
    s->act = RUNS;
}

static void stand_still(weft_simulated_links *t, int rank, const weft_comm_request *x)
{
    sim_rank *s = &t->sim_rank[rank];
    get_up(t, rank);
    s->act = WAITS;
    s->meets = !is_single(x);
    s->key = key_of(x);
    s->number = x->simulated.number;
    s->from = s->meets                       ? -1
              : x->spec.op == WEFT_COMM_SEND ? rank
                                             : x->group->rank[x->spec.argument];
    s->awaited = s->meets ? NULL : mail_of(t, rank, x);
    s->stuck = !s->meets && !(s->awaited && s->awaited->passed);
    if (s->meets && (t->failed = join_meeting(t, rank, x)) != WEFT_OK)
        let_all_go(t);
    t->running -= s->stuck;
    t->wanting += s->stuck && !s->meets;
    run_traffic(t);
}

void weft_simulated_links_wait(weft_simulated_links *t, int rank, const weft_comm_request *x)
{
    pthread_mutex_lock(&t->mutex);
    stand_still(t, rank, x);
    pthread_mutex_unlock(&t->mutex);
}

weft_status weft_simulated_links_advance(weft_simulated_links *t, int rank, weft_comm_request *x)
{
    sim_rank *s = &t->sim_rank[rank];
    pthread_mutex_lock(&t->mutex);
    stand_still(t, rank, x);
    while (s->stuck && !t->broken)
        pthread_cond_wait(&s->go, &t->mutex);
    get_up(t, rank);
    mail *m = s->awaited;
    if (m && m->passed) {
        const bool sends = x->spec.op == WEFT_COMM_SEND;
        if (x->simulated.clock.now) {
            x->simulated.begin = sends ? m->begin : x->simulated.begin;
            x->simulated.end = fmax(x->simulated.end, sends ? m->left : m->there);
        }
        *(sends ? &m->sender_knows : &m->receiver_knows) = true;
        if (m->sender_knows && m->receiver_knows)
            forget_mail(t, m);
    }
    s->awaited = NULL;
    const weft_status_code failed = t->failed;
    pthread_mutex_unlock(&t->mutex);
    return failed == WEFT_OK ? WEFT_OK
                             : weft_error_at(weft_no_memory("the traffic between ranks"),
                                             WEFT_AT(.key = x->what));
}

bool weft_simulated_links_passed(weft_simulated_links *t, int rank, const weft_comm_request *x,
                                 double now)
{
    pthread_mutex_lock(&t->mutex);
    const mail *m = mail_of(t, rank, x);
    const bool passed =
        m && m->passed && (x->spec.op == WEFT_COMM_SEND ? m->left : m->there) <= now;
    pthread_mutex_unlock(&t->mutex);
    return passed;
}

void weft_simulated_links_leave(weft_simulated_links *t, int rank)
{
    pthread_mutex_lock(&t->mutex);
    if (t->sim_rank[rank].act != LEFT) {
        get_up(t, rank);
        t->running--;
        t->sim_rank[rank].act = LEFT;
        run_traffic(t);
    }
    pthread_mutex_unlock(&t->mutex);
}

void weft_simulated_links_break(weft_simulated_links *t)
{
    pthread_mutex_lock(&t->mutex);
    let_all_go(t);
    pthread_mutex_unlock(&t->mutex);
}
