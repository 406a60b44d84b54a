/* Messages between ranks over the links of a cluster, in modelled time. Ranks are threads, each
 * with a clock of its own, and which of them the machine lets run first says nothing about which of
 * them sends first. What a rank sends is written down with the time on its clock, and the rank goes
 * on; it stands still when it waits for a message to be there, or to have left. When all ranks
 * stand still nobody can send earlier than what is known, and traffic (plan/simulate/traffic.h)
 * goes on to the next moment at which a message begins or has passed. Who waits for that one goes
 * on from there:
 *
 *   rank 0    sends a at 5 ms, waits for it ........................... goes on at 8 ms
 *   rank 1    runs, sends b at 4 ms over the same link, waits ... goes on at 7 ms, runs, ...
 *   traffic                                  4: b  5: b and a  7: a  8: -
 *
 * Messages of a rank to another follow one another, as on a queue pair; messages of several ranks,
 * or to several, share the links that they have in common. The same ranks get the same times to
 * the bit. */
#include "runtime/comm_internal.h"

#include "plan/simulate/traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum act { RUNS, WAITS, LEFT } act;

typedef struct mail mail;
struct mail {
    uint64_t key;
    int from, to;
    int64_t number;            /* in its queue */
    double when, bytes;        /* that it may leave */
    double begin, left, there; /* what it got */
    bool passed;               /* it has */
    bool sender_knows, receiver_knows;
    mail *next; /* of its pair, that has not passed */
    mail *also; /* to the same rank */
};

/* From one rank to another. */
typedef struct pair {
    mail *head, *tail;
    int32_t flow; /* of head; -1: it has not begun */
    weft_way way; /* no links: nobody has sent yet */
    double latency, free_at;
} pair;

/* Collectives of one queue: `done` have begun on all members; of those behind it so many are
 * there. */
typedef struct meeting {
    uint64_t key;
    int members;
    int64_t done, count, room;
    int *there;
} meeting;

typedef struct seat {
    act act;
    pthread_cond_t go;
    /* WAITS for a collective, or for mail to have passed */
    bool meets;
    uint64_t key;
    int64_t number;
    int from;
    mail *awaited; /* NULL: not sent yet */
    mail *mail;    /* to this rank */
} seat;

struct weft_turns {
    pthread_mutex_t mutex;
    weft_arena *arena;
    const weft_cluster *cluster; /* borrowed */
    int ranks;
    bool broken;
    weft_status_code failed; /* what of the traffic did; nobody has times any more */
    seat *seat;
    meeting *meeting;
    int64_t meetings, room;
    weft_traffic *traffic;
    pair *pair;    /* [ranks x ranks] */
    int64_t *busy; /* pairs with something to send, rising */
    int64_t busy_count;
    double now; /* of the traffic */
};

weft_turns *weft_turns_create(int ranks, const weft_cluster *cluster)
{
    const int64_t pairs = (int64_t)ranks * ranks;
    weft_turns *t = weft_alloc(sizeof *t);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->mutex, NULL);
    t->cluster = cluster;
    t->arena = weft_arena_create();
    t->traffic = weft_traffic_create(cluster);
    t->seat = weft_alloc(ranks * (int64_t)sizeof *t->seat);
    t->pair = weft_alloc(pairs * (int64_t)sizeof *t->pair);
    t->busy = weft_alloc(pairs * (int64_t)sizeof *t->busy);
    for (; t->seat && t->ranks < ranks; t->ranks++)
        pthread_cond_init(&t->seat[t->ranks].go, NULL);
    for (int64_t i = 0; t->pair && i < pairs; i++)
        t->pair[i].flow = -1;
    if (t->arena && t->traffic && t->seat && t->pair && t->busy)
        return t;
    weft_turns_free(t);
    return NULL;
}

void weft_turns_free(weft_turns *t)
{
    if (!t)
        return;
    for (int r = 0; r < t->ranks; r++) {
        pthread_cond_destroy(&t->seat[r].go);
        for (mail *m = t->seat[r].mail, *also; m; m = also) {
            also = m->also;
            weft_free(m);
        }
    }
    for (int64_t i = 0; i < t->meetings; i++)
        weft_free(t->meeting[i].there);
    pthread_mutex_destroy(&t->mutex);
    weft_traffic_free(t->traffic);
    weft_arena_free(t->arena);
    weft_free(t->seat);
    weft_free(t->meeting);
    weft_free(t->pair);
    weft_free(t->busy);
    weft_free(t);
}

/* ---- what has begun ------------------------------------------------------------------------ */

static uint64_t key_of(const weft_exchange *x)
{
    return (uint64_t)x->group->tag | (uint64_t)x->channel;
}

static bool is_single(const weft_exchange *x)
{
    return x->op == WEFT_COMM_SEND || x->op == WEFT_COMM_RECV;
}

static mail *find_mail(const weft_turns *t, uint64_t key, int from, int to, int64_t number)
{
    mail *m = t->seat[to].mail;
    while (m && (m->key != key || m->from != from || m->number != number))
        m = m->also;
    return m;
}

static meeting *find_meeting(const weft_turns *t, uint64_t key)
{
    for (int64_t i = 0; i < t->meetings; i++)
        if (t->meeting[i].key == key)
            return &t->meeting[i];
    return NULL;
}

static weft_status find_way(weft_turns *t, pair *p, int from, int to)
{
    weft_path path;
    if (p->way.links)
        return WEFT_OK;
    weft_cluster_path(t->cluster, from, to, &path);
    p->way.link = weft_arena_alloc(t->arena, path.count * (int64_t)sizeof *p->way.link);
    p->way.count = weft_arena_alloc(t->arena, path.count * (int64_t)sizeof *p->way.count);
    if (!p->way.link || !p->way.count)
        return weft_fail(WEFT_E_MEMORY, "no memory for the way from rank %d to %d", from, to);
    for (int32_t i = 0; i < path.count; i++) {
        p->way.link[i] = path.link[i];
        p->way.count[i] = 1;
    }
    p->way.links = path.count;
    p->latency = path.latency;
    return WEFT_OK;
}

static void append(weft_turns *t, mail *m)
{
    const int64_t at = (int64_t)m->from * t->ranks + m->to;
    pair *p = &t->pair[at];
    if (p->head) {
        p->tail->next = m;
    } else {
        int64_t i = t->busy_count++;
        for (; i > 0 && t->busy[i - 1] > at; i--)
            t->busy[i] = t->busy[i - 1];
        t->busy[i] = at;
        p->head = m;
    }
    p->tail = m;
}

/* Of a device without a clock it takes no time. */
static weft_status note_sent(weft_turns *t, int from, const weft_exchange *x)
{
    const int to = x->group->rank[x->argument];
    seat *s = &t->seat[to];
    WEFT_TRY(find_way(t, &t->pair[(int64_t)from * t->ranks + to], from, to));
    mail *m = weft_alloc(sizeof *m);
    if (!m)
        return weft_fail(WEFT_E_MEMORY, "no memory for a message to rank %d", to);
    *m = (mail){.key = key_of(x),
                .from = from,
                .to = to,
                .number = x->number,
                .when = x->asked,
                .bytes = (double)x->bytes,
                .passed = !x->clock.now,
                .sender_knows = x->forgotten,
                .also = s->mail};
    s->mail = m;
    if (s->act == WAITS && !s->meets && !s->awaited && s->from == from && s->key == m->key &&
        s->number == m->number)
        s->awaited = m;
    if (!m->passed)
        append(t, m);
    return WEFT_OK;
}

static void forget_mail(weft_turns *t, mail *m)
{
    mail **at = &t->seat[m->to].mail;
    while (*at != m)
        at = &(*at)->also;
    *at = m->also;
    weft_free(m);
}

static weft_status note_there(weft_turns *t, uint64_t key, int members, int64_t number)
{
    meeting *m = find_meeting(t, key);
    if (!m) {
        WEFT_TRY(weft_grow((void **)&t->meeting, t->meetings, &t->room, sizeof *t->meeting));
        m = &t->meeting[t->meetings++];
        *m = (meeting){.key = key, .members = members};
    }
    while (m->done + m->count <= number) {
        WEFT_TRY(weft_grow((void **)&m->there, m->count, &m->room, sizeof *m->there));
        m->there[m->count++] = 0;
    }
    m->there[number - m->done]++;
    while (m->count && m->there[0] == m->members) {
        memmove(m->there, m->there + 1, (size_t)--m->count * sizeof *m->there);
        m->done++;
    }
    return WEFT_OK;
}

/* ---- traffic ------------------------------------------------------------------------------- */

static double next_of(const weft_turns *t, const pair *p)
{
    return p->flow >= 0 ? weft_traffic_ends(t->traffic, p->flow) : fmax(p->head->when, p->free_at);
}

static weft_status pass(weft_turns *t, pair *p)
{
    mail *m = p->head;
    WEFT_TRY(weft_traffic_end(t->traffic, p->flow));
    WEFT_TRY(weft_traffic_close(t->traffic, p->flow));
    p->flow = -1;
    p->free_at = m->left = t->now;
    m->there = t->now + p->latency;
    m->passed = true;
    p->head = m->next;
    pthread_cond_signal(&t->seat[m->from].go);
    pthread_cond_signal(&t->seat[m->to].go);
    return WEFT_OK;
}

/* To the next moment at which something begins or has passed. */
static weft_status advance(weft_turns *t)
{
    const weft_index_list *changed;
    double next = INFINITY;
    for (int64_t i = 0; i < t->busy_count; i++)
        next = fmin(next, next_of(t, &t->pair[t->busy[i]]));
    t->now = fmax(next, t->now);
    int64_t left = 0;
    for (int64_t i = 0; i < t->busy_count; i++) {
        pair *p = &t->pair[t->busy[i]];
        if (p->flow >= 0 && next_of(t, p) <= t->now)
            WEFT_TRY(pass(t, p));
        if (p->head)
            t->busy[left++] = t->busy[i];
    }
    t->busy_count = left;
    for (int64_t i = 0; i < t->busy_count; i++) {
        pair *p = &t->pair[t->busy[i]];
        if (p->flow >= 0 || next_of(t, p) > t->now)
            continue;
        WEFT_TRY(weft_traffic_open(t->traffic, &p->flow));
        WEFT_TRY(weft_traffic_begin(t->traffic, p->flow, &p->way, p->head->bytes, t->now));
        p->head->begin = t->now;
    }
    return weft_traffic_share(t->traffic, t->now, &changed);
}

static bool can_run(const weft_turns *t, int rank)
{
    const seat *s = &t->seat[rank];
    if (s->act != WAITS)
        return s->act == RUNS;
    if (s->meets) {
        const meeting *m = find_meeting(t, s->key);
        return m && m->done > s->number;
    }
    return s->awaited && s->awaited->passed;
}

static void let_all_go(weft_turns *t)
{
    t->broken = true;
    for (int r = 0; r < t->ranks; r++)
        pthread_cond_signal(&t->seat[r].go);
}

/* Traffic goes on until somebody can. */
static void look(weft_turns *t)
{
    while (!t->broken) {
        bool wanted = false;
        for (int r = 0; r < t->ranks; r++) {
            if (can_run(t, r))
                return;
            wanted = wanted || (t->seat[r].act == WAITS && !t->seat[r].meets);
        }
        if (!wanted || !t->busy_count)
            return;
        if ((t->failed = advance(t)) != WEFT_OK)
            let_all_go(t);
    }
}

/* ---- what ranks say ------------------------------------------------------------------------ */

weft_status weft_turns_begin(weft_turns *t, int rank, const weft_exchange *x)
{
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&t->mutex);
    if (x->op == WEFT_COMM_SEND)
        status = note_sent(t, rank, x);
    else if (x->op != WEFT_COMM_RECV)
        status = note_there(t, key_of(x), x->ranks, x->number);
    pthread_mutex_unlock(&t->mutex);
    return status;
}

static mail *mail_of(const weft_turns *t, int rank, const weft_exchange *x)
{
    const int peer = x->group->rank[x->argument];
    const bool sends = x->op == WEFT_COMM_SEND;
    return find_mail(t, key_of(x), sends ? rank : peer, sends ? peer : rank, x->number);
}

static void stand_still(weft_turns *t, int rank, const weft_exchange *x)
{
    seat *s = &t->seat[rank];
    s->act = WAITS;
    s->meets = !is_single(x);
    s->key = key_of(x);
    s->number = x->number;
    s->from = s->meets ? -1 : x->op == WEFT_COMM_SEND ? rank : x->group->rank[x->argument];
    s->awaited = s->meets ? NULL : mail_of(t, rank, x);
    look(t);
}

void weft_turns_wait(weft_turns *t, int rank, const weft_exchange *x)
{
    pthread_mutex_lock(&t->mutex);
    stand_still(t, rank, x);
    pthread_mutex_unlock(&t->mutex);
}

weft_status weft_turns_go_on(weft_turns *t, int rank, weft_exchange *x)
{
    seat *s = &t->seat[rank];
    pthread_mutex_lock(&t->mutex);
    stand_still(t, rank, x);
    while (!can_run(t, rank) && !t->broken)
        pthread_cond_wait(&s->go, &t->mutex);
    s->act = RUNS;
    mail *m = s->awaited;
    if (m && m->passed) {
        const bool sends = x->op == WEFT_COMM_SEND;
        if (x->clock.now) {
            x->begin = sends ? m->begin : x->begin;
            x->end = fmax(x->end, sends ? m->left : m->there);
        }
        *(sends ? &m->sender_knows : &m->receiver_knows) = true;
        if (m->sender_knows && m->receiver_knows)
            forget_mail(t, m);
    }
    const weft_status_code failed = t->failed;
    pthread_mutex_unlock(&t->mutex);
    return failed == WEFT_OK ? WEFT_OK
                             : weft_fail(failed, "%s: no memory for the traffic of ranks", x->what);
}

bool weft_turns_passed(weft_turns *t, int rank, const weft_exchange *x, double now)
{
    pthread_mutex_lock(&t->mutex);
    const mail *m = mail_of(t, rank, x);
    const bool passed = m && m->passed && (x->op == WEFT_COMM_SEND ? m->left : m->there) <= now;
    pthread_mutex_unlock(&t->mutex);
    return passed;
}

void weft_turns_leave(weft_turns *t, int rank)
{
    pthread_mutex_lock(&t->mutex);
    t->seat[rank].act = LEFT;
    look(t);
    pthread_mutex_unlock(&t->mutex);
}

void weft_turns_break(weft_turns *t)
{
    pthread_mutex_lock(&t->mutex);
    let_all_go(t);
    pthread_mutex_unlock(&t->mutex);
}
