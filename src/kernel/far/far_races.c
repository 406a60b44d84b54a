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
} record;

static struct {
    pthread_mutex_t lock;
    far_clock host;
    int64_t now[FAR_STREAMS]; /* last time given out */
    bool taken[FAR_STREAMS];
    record *list; /* accesses that the host has not waited for */
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
    pthread_mutex_lock(&races.lock);
    races.host.at[stream] = races.now[stream]; /* closing waits */
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
    far_clock_join(&races.host, clock);
    pthread_mutex_unlock(&races.lock);
}

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

/* True for accesses that the host has seen or that the new one replaces. */
static bool is_over(const record *r, int stream, const far_access *access)
{
    if (r->time <= races.host.at[r->stream])
        return true;
    const bool inside = access && access->begin <= r->access.begin && r->access.end <= access->end;
    return inside && (access->writes || (r->stream == stream && !r->access.writes));
}

static void add(int stream, const far_clock *clock, const far_node *node, const far_access *access)
{
    int64_t left = 0;
    for (int64_t i = 0; i < races.count; i++) {
        const record *r = &races.list[i];
        if (r->stream != stream && r->time > clock->at[r->stream] &&
            (r->access.writes || access->writes) && overlap(&r->access, access))
            stop("two streams use the same memory", r, node);
        if (!is_over(r, stream, access))
            races.list[left++] = *r;
    }
    races.count = left;
    if (weft_grow((void **)&races.list, races.count, &races.capacity, sizeof *races.list) !=
        WEFT_OK)
        abort();
    races.list[races.count++] =
        (record){.access = *access, .stream = stream, .time = races.now[stream], .node = *node};
}

void far_races_submit(int stream, far_clock *clock, const far_node *node, const far_access *access,
                      int count)
{
    pthread_mutex_lock(&races.lock);
    far_clock_join(clock, &races.host);
    clock->at[stream] = ++races.now[stream];
    for (int i = 0; i < count; i++)
        if (access[i].end > access[i].begin)
            add(stream, clock, node, &access[i]);
    pthread_mutex_unlock(&races.lock);
}

void far_races_release(const void *data, int64_t bytes)
{
    const far_access freed = {data, (const char *)data + bytes, true};
    pthread_mutex_lock(&races.lock);
    for (int64_t i = 0; i < races.count; i++)
        if (races.list[i].time > races.host.at[races.list[i].stream] &&
            overlap(&races.list[i].access, &freed))
            stop("memory is freed while a stream uses it", &races.list[i], NULL);
    pthread_mutex_unlock(&races.lock);
}
