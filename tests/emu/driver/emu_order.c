/* Finds accesses of two streams, or of a stream and the host, without an event or a wait between
 * them. The check is made when work is submitted, so it does not depend on the speed of threads.
 * Each stream has a vector clock: the position in every stream that its next work comes after. */
#include "emu_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    emu_access access;
    const char *node;
    int64_t time;
    int stream;
} record;

static struct {
    pthread_mutex_t lock;
    emu_clock host;
    int64_t now[EMU_STREAMS];
    bool taken[EMU_STREAMS];
    record *list; /* accesses that the host has not waited for */
    size_t count, capacity;
} order = {.lock = PTHREAD_MUTEX_INITIALIZER};

const char *emu_intern(const char *text)
{
    enum { SLOTS = 1 << 14 };
    static char *slot[SLOTS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    uint64_t hash = 1469598103934665603u;
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    pthread_mutex_lock(&lock);
    size_t i = hash % SLOTS, tries = 0;
    while (slot[i] && strcmp(slot[i], text) != 0 && ++tries < SLOTS)
        i = (i + 1) % SLOTS;
    if (!slot[i])
        slot[i] = strdup(text);
    const char *found = slot[i] && tries < SLOTS ? slot[i] : "a node";
    pthread_mutex_unlock(&lock);
    return found;
}

int emu_order_open(void)
{
    int found = -1;
    pthread_mutex_lock(&order.lock);
    for (int i = 0; i < EMU_STREAMS && found < 0; i++)
        if (!order.taken[i])
            found = i;
    if (found >= 0)
        order.taken[found] = true;
    pthread_mutex_unlock(&order.lock);
    return found;
}

void emu_order_close(int stream)
{
    pthread_mutex_lock(&order.lock);
    order.host.at[stream] = order.now[stream];
    order.taken[stream] = false;
    pthread_mutex_unlock(&order.lock);
}

bool emu_order_idle(int stream)
{
    pthread_mutex_lock(&order.lock);
    const bool idle = order.host.at[stream] >= order.now[stream];
    pthread_mutex_unlock(&order.lock);
    return idle;
}

void emu_clock_join(emu_clock *to, const emu_clock *from)
{
    for (int i = 0; i < EMU_STREAMS; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

/* True for accesses that the host has waited for. */
static bool is_seen(const record *r)
{
    return r->time <= order.host.at[r->stream];
}

void emu_order_seen(const emu_clock *clock)
{
    size_t left = 0;
    pthread_mutex_lock(&order.lock);
    emu_clock_join(&order.host, clock);
    for (size_t i = 0; i < order.count; i++)
        if (!is_seen(&order.list[i]))
            order.list[left++] = order.list[i];
    order.count = left;
    pthread_mutex_unlock(&order.lock);
    emu_memory_protect();
}

static bool overlap(const emu_access *a, const char *begin, const char *end)
{
    return a->begin < end && begin < a->end;
}

/* True for accesses that the new one replaces in the list. */
static bool is_replaced(const record *r, int stream, const emu_access *access)
{
    const bool inside = access->begin <= r->access.begin && r->access.end <= access->end;
    return inside && (access->writes || (r->stream == stream && !r->access.writes));
}

static void add(int stream, const emu_clock *clock, const char *node, const emu_access *access)
{
    size_t left = 0;
    for (size_t i = 0; i < order.count; i++) {
        const record *r = &order.list[i];
        if (r->stream != stream && r->time > clock->at[r->stream] &&
            (r->access.writes || access->writes) && overlap(&r->access, access->begin, access->end))
            emu_stop("%s of %td bytes by %s (stream %d) and %s of %td bytes by %s (stream %d) have "
                     "no event between them",
                     r->access.writes ? "a write" : "a read", r->access.end - r->access.begin,
                     r->node, r->stream, access->writes ? "a write" : "a read",
                     access->end - access->begin, node, stream);
        if (!is_replaced(r, stream, access))
            order.list[left++] = *r;
    }
    order.count = left;
    if (order.count == order.capacity) {
        order.capacity = 2 * order.capacity + 256;
        order.list = realloc(order.list, order.capacity * sizeof *order.list);
        if (!order.list)
            emu_stop("out of memory");
    }
    order.list[order.count++] = (record){*access, node, order.now[stream], stream};
}

void emu_order_submit(int stream, emu_clock *clock, const char *node, const emu_access *access,
                      int count)
{
    pthread_mutex_lock(&order.lock);
    emu_clock_join(clock, &order.host);
    clock->at[stream] = ++order.now[stream];
    for (int i = 0; i < count; i++)
        if (access[i].end > access[i].begin)
            add(stream, clock, node, &access[i]);
    pthread_mutex_unlock(&order.lock);
}

void emu_order_release(const void *data, size_t bytes)
{
    const char *begin = data;
    pthread_mutex_lock(&order.lock);
    for (size_t i = 0; i < order.count; i++)
        if (!is_seen(&order.list[i]) && overlap(&order.list[i].access, begin, begin + bytes))
            emu_stop("memory is freed before the host waited for %s", order.list[i].node);
    pthread_mutex_unlock(&order.lock);
}

int emu_order_host(const char *at, const char **node)
{
    int least = 2;
    pthread_mutex_lock(&order.lock);
    for (size_t i = 0; i < order.count; i++) {
        const record *r = &order.list[i];
        const int most = r->access.writes ? 0 : 1;
        if (most < least && !is_seen(r) && overlap(&r->access, at, at + 1)) {
            least = most;
            *node = r->node;
        }
    }
    pthread_mutex_unlock(&order.lock);
    return least;
}

void emu_order_pending(const char *begin, const char *end,
                       void (*each)(void *user, const emu_access *access), void *user)
{
    pthread_mutex_lock(&order.lock);
    for (int writes = 0; writes < 2; writes++)
        for (size_t i = 0; i < order.count; i++)
            if (order.list[i].access.writes == writes && !is_seen(&order.list[i]) &&
                overlap(&order.list[i].access, begin, end))
                each(user, &order.list[i].access);
    pthread_mutex_unlock(&order.lock);
}
