#include "kernel/far/far_races.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    far_access access;
    int stream;
    int64_t time;
    far_node node;
    bool begun;
} record;

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
    record *list; /* accesses that some work may conflict with */
    int64_t count, capacity;
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

/* Drops clocks that no work needs, and accesses that all work comes after. */
static void drop_old(void)
{
    int64_t left = 0;
    while (races.oldest != races.host && !races.oldest->holders) {
        far_seen *old = races.oldest;
        races.oldest = old->next;
        weft_free(old);
    }
    for (int64_t i = 0; i < races.count; i++)
        if (races.list[i].time > races.oldest->clock.at[races.list[i].stream])
            races.list[left++] = races.list[i];
    races.count = left;
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

static void stop(const char *what, const record *r, const far_node *node)
{
    char text[2][256];
    fprintf(stderr, "far: %s: %s of %td bytes by %s (stream %d) and %s; no event between them\n",
            what, r->access.writes ? "a write" : "a read", r->access.end - r->access.begin,
            far_node_text(&r->node, text[0]), r->stream,
            node ? far_node_text(node, text[1]) : "the host");
    abort();
}

/* True for an access that `by`, which comes after it, makes needless to remember. */
static bool is_replaced(const record *r, const record *by)
{
    const bool inside = by->access.begin <= r->access.begin && r->access.end <= by->access.end;
    return inside && (by->access.writes || (r->stream == by->stream && !r->access.writes));
}

/* Compares an access that begins with begun accesses, and drops replaced ones. */
static void begin(record own, const far_clock *clock)
{
    int64_t left = 0;
    for (int64_t i = 0; i < races.count; i++) {
        record *r = &races.list[i];
        const bool is_own = r->stream == own.stream && r->time == own.time;
        if (is_own && !memcmp(&r->access, &own.access, sizeof own.access))
            r->begun = true;
        if (r->begun && r->stream != own.stream && r->time > clock->at[r->stream] &&
            (r->access.writes || own.access.writes) && overlap(&r->access, &own.access))
            stop("two streams use the same memory", r, &own.node);
        if (is_own || !r->begun || !is_replaced(r, &own))
            races.list[left++] = *r;
    }
    races.count = left;
}

far_ticket far_races_submit(int stream, const far_node *node, const far_access *access, int count)
{
    pthread_mutex_lock(&races.lock);
    const far_ticket ticket = {++races.now[stream], host_clock()};
    ticket.seen->holders++;
    for (int i = 0; i < count; i++) {
        if (access[i].end <= access[i].begin)
            continue;
        if (weft_grow((void **)&races.list, races.count, &races.capacity, sizeof *races.list) !=
            WEFT_OK)
            abort();
        record *r = &races.list[races.count++];
        memset(r, 0, sizeof *r);
        r->access.begin = access[i].begin;
        r->access.end = access[i].end;
        r->access.writes = access[i].writes;
        r->stream = stream;
        r->time = ticket.time;
        r->node = *node;
    }
    pthread_mutex_unlock(&races.lock);
    return ticket;
}

void far_races_begin(int stream, far_clock *clock, const far_ticket *ticket)
{
    pthread_mutex_lock(&races.lock);
    far_clock_join(clock, &ticket->seen->clock);
    clock->at[stream] = ticket->time;
    for (int64_t i = 0; i < races.count; i++)
        if (races.list[i].stream == stream && races.list[i].time == ticket->time &&
            !races.list[i].begun) {
            begin(races.list[i], clock);
            i = -1; /* the list has changed */
        }
    ticket->seen->holders--;
    drop_old();
    pthread_mutex_unlock(&races.lock);
}

void far_races_release(const void *data, int64_t bytes)
{
    const far_access freed = {data, (const char *)data + bytes, true};
    pthread_mutex_lock(&races.lock);
    for (int64_t i = 0; i < races.count; i++)
        if (races.list[i].time > host_clock()->clock.at[races.list[i].stream] &&
            overlap(&races.list[i].access, &freed))
            stop("memory is freed while a stream uses it", &races.list[i], NULL);
    pthread_mutex_unlock(&races.lock);
}
