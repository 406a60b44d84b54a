/* Finds accesses of two streams, or of a stream and the host, without an event or a wait between
 * them. Each stream has a vector clock: its next work comes after these positions of all streams.
 * Streams are compared when work begins, because the clock of work that waits for a word is not
 * known before. Accesses are kept until all work that was submitted before the host's wait has
 * begun. So the result does not depend on the speed of threads. */
#include "emu_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct record {
    emu_access access;
    const char *node;
    int64_t time;
    int stream;
    bool begun;
} record;

/* A state of the host: the work that it had waited for. */
typedef struct emu_seen {
    emu_clock clock;
    int holders; /* work that was submitted then and has not begun */
    struct emu_seen *next;
} emu_seen;

static struct {
    pthread_mutex_t lock;
    emu_seen first;          /* of the list */
    emu_seen *oldest, *host; /* the list's last is the present */
    int64_t now[EMU_STREAMS];
    bool taken[EMU_STREAMS];
    record *list; /* accesses that some work may conflict with */
    size_t count, capacity;
} order = {.lock = PTHREAD_MUTEX_INITIALIZER, .oldest = &order.first, .host = &order.first};

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

void emu_clock_join(emu_clock *to, const emu_clock *from)
{
    for (int i = 0; i < EMU_STREAMS; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

/* True for accesses that the host has waited for. Requires the lock, as all below. */
static bool is_seen(const record *r)
{
    return r->time <= order.host->clock.at[r->stream];
}

/* Drops clocks that no work needs, and accesses that all work comes after. */
static void drop_old(void)
{
    size_t left = 0;
    while (order.oldest != order.host && !order.oldest->holders) {
        emu_seen *old = order.oldest;
        order.oldest = old->next;
        if (old != &order.first)
            free(old);
    }
    for (size_t i = 0; i < order.count; i++)
        if (order.list[i].time > order.oldest->clock.at[order.list[i].stream])
            order.list[left++] = order.list[i];
    order.count = left;
}

static void see(const emu_clock *clock)
{
    if (order.host->holders) {
        emu_seen *next = malloc(sizeof *next);
        if (!next)
            emu_stop("out of memory");
        *next = (emu_seen){.clock = order.host->clock};
        order.host = order.host->next = next;
    }
    emu_clock_join(&order.host->clock, clock);
    drop_old();
}

void emu_order_close(int stream)
{
    emu_clock all = {0};
    pthread_mutex_lock(&order.lock);
    all.at[stream] = order.now[stream];
    see(&all);
    order.taken[stream] = false;
    pthread_mutex_unlock(&order.lock);
}

bool emu_order_idle(int stream)
{
    pthread_mutex_lock(&order.lock);
    const bool idle = order.host->clock.at[stream] >= order.now[stream];
    pthread_mutex_unlock(&order.lock);
    return idle;
}

void emu_order_seen(const emu_clock *clock)
{
    pthread_mutex_lock(&order.lock);
    see(clock);
    pthread_mutex_unlock(&order.lock);
    emu_memory_protect();
}

void emu_order_join_host(emu_clock *to)
{
    pthread_mutex_lock(&order.lock);
    emu_clock_join(to, &order.host->clock);
    pthread_mutex_unlock(&order.lock);
}

static bool overlap(const emu_access *a, const char *begin, const char *end)
{
    return a->begin < end && begin < a->end;
}

/* True for an access that `by`, which comes after it, makes needless to remember. */
static bool is_replaced(const record *r, const record *by)
{
    const bool inside = by->access.begin <= r->access.begin && r->access.end <= by->access.end;
    return inside && (by->access.writes || (r->stream == by->stream && !r->access.writes));
}

/* Compares an access that begins with begun accesses, and drops replaced ones. */
static void begin(record own, const emu_clock *clock)
{
    const emu_access *access = &own.access;
    size_t left = 0;
    for (size_t i = 0; i < order.count; i++) {
        record *r = &order.list[i];
        const bool is_own = r->stream == own.stream && r->time == own.time;
        if (is_own && r->access.begin == access->begin && r->access.end == access->end &&
            r->access.writes == access->writes)
            r->begun = true;
        if (r->begun && r->stream != own.stream && r->time > clock->at[r->stream] &&
            (r->access.writes || access->writes) && overlap(&r->access, access->begin, access->end))
            emu_stop("%s of %td bytes by %s (stream %d) and %s of %td bytes by %s (stream %d) have "
                     "no event between them",
                     r->access.writes ? "a write" : "a read", r->access.end - r->access.begin,
                     r->node, r->stream, access->writes ? "a write" : "a read",
                     access->end - access->begin, own.node, own.stream);
        if (is_own || !r->begun || !is_replaced(r, &own))
            order.list[left++] = *r;
    }
    order.count = left;
}

emu_ticket emu_order_submit(int stream, const char *node, const emu_access *access, int count)
{
    pthread_mutex_lock(&order.lock);
    const emu_ticket ticket = {++order.now[stream], order.host};
    ticket.seen->holders++;
    for (int i = 0; i < count; i++) {
        if (access[i].end <= access[i].begin)
            continue;
        if (order.count == order.capacity) {
            order.capacity = 2 * order.capacity + 256;
            order.list = realloc(order.list, order.capacity * sizeof *order.list);
            if (!order.list)
                emu_stop("out of memory");
        }
        order.list[order.count++] =
            (record){.access = access[i], .node = node, .time = ticket.time, .stream = stream};
    }
    pthread_mutex_unlock(&order.lock);
    return ticket;
}

/* Forgets the accesses of work that does not run. */
static void drop(int stream, int64_t time)
{
    size_t left = 0;
    for (size_t i = 0; i < order.count; i++)
        if (order.list[i].stream != stream || order.list[i].time != time)
            order.list[left++] = order.list[i];
    order.count = left;
}

void emu_order_begin(int stream, emu_clock *clock, const emu_ticket *ticket, bool runs)
{
    pthread_mutex_lock(&order.lock);
    emu_clock_join(clock, &ticket->seen->clock);
    clock->at[stream] = ticket->time;
    if (!runs)
        drop(stream, ticket->time);
    for (size_t i = 0; i < order.count;) {
        const record *r = &order.list[i++];
        if (r->stream != stream || r->time != ticket->time || r->begun)
            continue;
        begin(*r, clock);
        i = 0; /* the list has changed */
    }
    ticket->seen->holders--;
    drop_old();
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
