/* Whose turn it is on links that ranks share, in modelled time. Ranks are threads, each with a
 * clock of its own, and which of them the machine lets run first says nothing about which of them
 * sends first. So a rank that asks for a shared link stands still until no rank can ask for an
 * earlier time: until all others ask too, wait for what was not sent yet, or have left. Then the
 * earliest of those that ask gets it (of two the lower rank), and goes on:
 *
 *   rank 0   asks at 5 ms  ............................... gets 6..7 ms
 *   rank 1   runs, asks at 4 ms  ..... gets 4..6 ms, runs, waits for rank 0
 *   rank 2   waits for rank 1 ........ got it, runs, waits for rank 0 ...
 *
 * What a rank does after it was let go is later than that, so what was given stays right, and the
 * same ranks get the same times to the bit. */
#include "runtime/comm_internal.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

typedef enum act { RUNS, ASKS, WAITS, LEFT } act;

/* Messages of one queue from one rank to another. */
typedef struct sent {
    uint64_t key;
    int from;
    int64_t count;
} sent;

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
    /* ASKS */
    int link;
    double when, seconds; /* that it takes it */
    double begin;         /* what it got */
    /* WAITS */
    uint64_t key;
    int64_t number;
    int from;   /* -1: a collective */
    sent *sent; /* to this rank */
    int64_t count, room;
} seat;

struct weft_turns {
    pthread_mutex_t mutex;
    int ranks;
    bool broken;
    seat *seat;
    meeting *meeting;
    int64_t meetings, room;
    double *free_at; /* by link: when it is free again */
};

weft_turns *weft_turns_create(int ranks, int links)
{
    weft_turns *t = weft_alloc(sizeof *t);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->mutex, NULL);
    t->seat = weft_alloc(ranks * (int64_t)sizeof *t->seat);
    t->free_at = weft_alloc(links * (int64_t)sizeof *t->free_at);
    for (; t->seat && t->ranks < ranks; t->ranks++)
        pthread_cond_init(&t->seat[t->ranks].go, NULL);
    if (t->seat && t->free_at)
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
        weft_free(t->seat[r].sent);
    }
    for (int64_t i = 0; i < t->meetings; i++)
        weft_free(t->meeting[i].there);
    pthread_mutex_destroy(&t->mutex);
    weft_free(t->seat);
    weft_free(t->meeting);
    weft_free(t->free_at);
    weft_free(t);
}

/* ---- what has begun ------------------------------------------------------------------------ */

static uint64_t key_of(const weft_exchange *x)
{
    return (uint64_t)x->group->tag | (uint64_t)x->channel;
}

static sent *find_sent(const weft_turns *t, uint64_t key, int from, int to)
{
    const seat *s = &t->seat[to];
    for (int64_t i = 0; i < s->count; i++)
        if (s->sent[i].key == key && s->sent[i].from == from)
            return &s->sent[i];
    return NULL;
}

static meeting *find_meeting(const weft_turns *t, uint64_t key)
{
    for (int64_t i = 0; i < t->meetings; i++)
        if (t->meeting[i].key == key)
            return &t->meeting[i];
    return NULL;
}

static weft_status note_sent(weft_turns *t, uint64_t key, int from, int to)
{
    sent *found = find_sent(t, key, from, to);
    if (!found) {
        seat *s = &t->seat[to];
        WEFT_TRY(weft_grow((void **)&s->sent, s->count, &s->room, sizeof *s->sent));
        found = &s->sent[s->count++];
        *found = (sent){.key = key, .from = from};
    }
    found->count++;
    return WEFT_OK;
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

/* ---- whose turn it is ---------------------------------------------------------------------- */

static bool can_run(const weft_turns *t, int rank)
{
    const seat *s = &t->seat[rank];
    if (s->act != WAITS)
        return s->act == RUNS;
    if (s->from < 0) {
        const meeting *m = find_meeting(t, s->key);
        return m && m->done > s->number;
    }
    const sent *message = find_sent(t, s->key, s->from, rank);
    return message && message->count > s->number;
}

static void give(weft_turns *t, int rank)
{
    seat *s = &t->seat[rank];
    double *free_at = &t->free_at[s->link];
    s->begin = s->when > *free_at ? s->when : *free_at;
    *free_at = s->begin + s->seconds;
    s->act = RUNS;
    pthread_cond_signal(&s->go);
}

static void look(weft_turns *t)
{
    int first = -1;
    for (int r = 0; r < t->ranks; r++) {
        if (can_run(t, r))
            return;
        if (t->seat[r].act == ASKS && (first < 0 || t->seat[r].when < t->seat[first].when))
            first = r;
    }
    if (first >= 0)
        give(t, first);
}

double weft_turns_take(weft_turns *t, int rank, int link, double when, double seconds)
{
    seat *s = &t->seat[rank];
    pthread_mutex_lock(&t->mutex);
    s->act = ASKS;
    s->link = link;
    s->when = s->begin = when;
    s->seconds = seconds;
    look(t);
    while (s->act == ASKS && !t->broken)
        pthread_cond_wait(&s->go, &t->mutex);
    s->act = RUNS;
    when = s->begin;
    pthread_mutex_unlock(&t->mutex);
    return when;
}

weft_status weft_turns_begin(weft_turns *t, int rank, const weft_exchange *x)
{
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&t->mutex);
    if (x->op == WEFT_COMM_SEND)
        status = note_sent(t, key_of(x), rank, x->group->rank[x->argument]);
    else if (x->op != WEFT_COMM_RECV)
        status = note_there(t, key_of(x), x->ranks, x->number);
    pthread_mutex_unlock(&t->mutex);
    return status;
}

void weft_turns_wait(weft_turns *t, int rank, const weft_exchange *x)
{
    seat *s = &t->seat[rank];
    pthread_mutex_lock(&t->mutex);
    if (x->op != WEFT_COMM_SEND) { /* that has left */
        s->act = WAITS;
        s->key = key_of(x);
        s->number = x->number;
        s->from = x->op == WEFT_COMM_RECV ? x->group->rank[x->argument] : -1;
        look(t);
    }
    pthread_mutex_unlock(&t->mutex);
}

static void become(weft_turns *t, int rank, act now)
{
    pthread_mutex_lock(&t->mutex);
    t->seat[rank].act = now;
    if (now == LEFT)
        look(t);
    pthread_mutex_unlock(&t->mutex);
}

void weft_turns_go_on(weft_turns *t, int rank)
{
    become(t, rank, RUNS);
}

void weft_turns_leave(weft_turns *t, int rank)
{
    become(t, rank, LEFT);
}

void weft_turns_break(weft_turns *t)
{
    pthread_mutex_lock(&t->mutex);
    t->broken = true;
    for (int r = 0; r < t->ranks; r++)
        pthread_cond_signal(&t->seat[r].go);
    pthread_mutex_unlock(&t->mutex);
}
