#include "kernel/far/far_races.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    far_access access;
    int64_t time;
    far_node node;
} record;

/* Accesses of a stream that some work may conflict with, in the order of their time. */
typedef struct queue {
    record *list;
    int64_t count, capacity;
    int64_t begun; /* the time of its last work that has begun */
} queue;

/* A state of the host: the work that it had waited for. */
typedef struct far_seen {
    far_clock clock;
    int holders; /* work that was submitted then and has not begun */
    struct far_seen *next;
} far_seen;

static struct {
    pthread_mutex_t lock;
    far_seen *oldest, *host;  /* a list; its last is the present */
    int64_t now[FAR_STREAMS]; /* last time given out */
    bool taken[FAR_STREAMS];
    queue queue[FAR_STREAMS];
} races = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *far_node_text(const far_node *node, char text[256])
{
    if (node->number < 0)
        snprintf(text, 256, "%s", node->op ? node->op : "no node");
    else
        snprintf(text, 256, "node %d, %s%s%s", (int)node->number, node->op,
                 node->scope && node->scope[0] ? " of " : "", node->scope ? node->scope : "");
    return text;
}

/* ---- clocks -------------------------------------------------------------------------------- */

/* Requires the lock, as all below. */
static far_seen *host_clock(void)
{
    if (!races.host)
        races.host = races.oldest = weft_calloc(1, sizeof *races.host);
    if (!races.host)
        abort();
    return races.host;
}

/* The first access of the queue after `time`. */
static int64_t first_after(const queue *q, int64_t time)
{
    int64_t low = 0, high = q->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (q->list[middle].time > time)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Drops clocks that no work needs, and accesses that all work comes after. */
static void drop_old(void)
{
    const far_seen *before = races.oldest;
    while (races.oldest != races.host && !races.oldest->holders) {
        far_seen *old = races.oldest;
        races.oldest = old->next;
        weft_free(old);
    }
    if (races.oldest == before && races.oldest != races.host)
        return; /* its clock has not changed */
    for (int s = 0; s < FAR_STREAMS; s++) {
        queue *q = &races.queue[s];
        const int64_t old = first_after(q, races.oldest->clock.at[s]);
        if (!old)
            continue;
        q->count -= old;
        memmove(q->list, q->list + old, (size_t)q->count * sizeof *q->list);
    }
}

static void see(const far_clock *clock)
{
    far_seen *now = host_clock();
    if (now->holders) {
        far_seen *next = weft_alloc(sizeof *next);
        if (!next)
            abort();
        *next = (far_seen){.clock = now->clock};
        now = races.host = now->next = next;
    }
    far_clock_join(&now->clock, clock);
    drop_old();
}

int far_clock_take(void)
{
    int found = -1;
    pthread_mutex_lock(&races.lock);
    for (int i = 0; i < FAR_STREAMS && found < 0; i++)
        if (!races.taken[i])
            found = i;
    if (found >= 0)
        races.taken[found] = true;
    pthread_mutex_unlock(&races.lock);
    return found;
}

void far_clock_release(int stream)
{
    far_clock all = {0};
    pthread_mutex_lock(&races.lock);
    all.at[stream] = races.now[stream]; /* closing waits */
    see(&all);
    races.taken[stream] = false;
    pthread_mutex_unlock(&races.lock);
}

void far_clock_join(far_clock *to, const far_clock *from)
{
    for (int i = 0; i < FAR_STREAMS; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

void far_races_seen(const far_clock *clock)
{
    pthread_mutex_lock(&races.lock);
    see(clock);
    pthread_mutex_unlock(&races.lock);
}

void far_races_join_host(far_clock *to)
{
    pthread_mutex_lock(&races.lock);
    far_clock_join(to, &host_clock()->clock);
    pthread_mutex_unlock(&races.lock);
}

/* ---- accesses ------------------------------------------------------------------------------ */

static bool overlap(const far_access *a, const far_access *b)
{
    return a->begin < b->end && b->begin < a->end;
}

static void stop(const char *what, const record *r, int stream, const far_node *node)
{
    char text[2][256];
    fprintf(stderr, "far: %s: %s of %td bytes by %s (stream %d) and %s; no event between them\n",
            what, r->access.writes ? "a write" : "a read", r->access.end - r->access.begin,
            far_node_text(&r->node, text[0]), stream,
            node ? far_node_text(node, text[1]) : "the host");
    abort();
}

/* Compares an access that begins with the begun accesses of another stream after `time`. */
static void compare(const record *own, int stream, int64_t time)
{
    const queue *q = &races.queue[stream];
    for (int64_t i = first_after(q, time); i < q->count && q->list[i].time <= q->begun; i++) {
        const record *r = &q->list[i];
        if ((r->access.writes || own->access.writes) && overlap(&r->access, &own->access))
            stop("two streams use the same memory", r, stream, &own->node);
    }
}

far_ticket far_races_submit(int stream, const far_node *node, const far_access *access, int count)
{
    pthread_mutex_lock(&races.lock);
    const far_ticket ticket = {++races.now[stream], host_clock()};
    queue *q = &races.queue[stream];
    ticket.seen->holders++;
    for (int i = 0; i < count; i++) {
        if (access[i].end <= access[i].begin)
            continue;
        if (weft_grow((void **)&q->list, q->count, &q->capacity, sizeof *q->list) != WEFT_OK)
            abort();
        q->list[q->count++] = (record){access[i], ticket.time, *node};
    }
    pthread_mutex_unlock(&races.lock);
    return ticket;
}

void far_races_begin(int stream, far_clock *clock, const far_ticket *ticket)
{
    pthread_mutex_lock(&races.lock);
    far_clock_join(clock, &ticket->seen->clock);
    clock->at[stream] = ticket->time;
    queue *q = &races.queue[stream];
    for (int64_t i = first_after(q, ticket->time - 1);
         i < q->count && q->list[i].time == ticket->time; i++)
        for (int s = 0; s < FAR_STREAMS; s++)
            if (s != stream)
                compare(&q->list[i], s, clock->at[s]);
    q->begun = ticket->time;
    ticket->seen->holders--;
    drop_old();
    pthread_mutex_unlock(&races.lock);
}

void far_races_release(const void *data, int64_t bytes)
{
    const far_access freed = {data, (const char *)data + bytes, true};
    pthread_mutex_lock(&races.lock);
    for (int s = 0; s < FAR_STREAMS; s++) {
        const queue *q = &races.queue[s];
        for (int64_t i = first_after(q, host_clock()->clock.at[s]); i < q->count; i++)
            if (overlap(&q->list[i].access, &freed))
                stop("memory is freed while a stream uses it", &q->list[i], s, NULL);
    }
    pthread_mutex_unlock(&races.lock);
}
