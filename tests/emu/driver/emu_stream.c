/* Streams of the emulated driver: a thread each, which runs submitted work in order, with delays
 * that a seed chooses. */
#include "emu_driver.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ACCESSES = 256 };

struct emu_stream {
    pthread_t thread;
    emu_context *context;
    emu_work *first, *last;
    int64_t submitted, done;
    bool leave;
    uint64_t random;
    int number;
    emu_clock clock; /* of the work that runs */
    emu_clock ended; /* of the last work that ended */
    const char *node;
    emu_access declared[MOST_ACCESSES];
    int declarations;
    emu_graph *records; /* NULL: work runs */
};

typedef struct graph_item {
    emu_work *work;
    size_t bytes; /* of the work */
    const char *node;
    emu_access *access;
    int accesses;
} graph_item;

struct emu_graph {
    graph_item *item;
    int count, capacity;
};

/* One recorded position. Held by its event, by the work that reaches it and by work that waits. */
typedef struct position {
    int holders;
    bool reached;
    double seconds;
    emu_clock clock;
} position;

struct emu_event {
    position *at; /* NULL: not recorded */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* of all streams and events */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* for streams */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;   /* for the host */
static int open_streams;

/* ---- the thread ---------------------------------------------------------------------------- */

uint64_t emu_stream_random(emu_stream *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

/* Sleeps up to 0.2 ms before one item in 16. */
static void delay(emu_stream *s)
{
    const struct timespec t = {.tv_nsec = (long)(emu_stream_random(s) % 200000)};
    if (emu_stream_random(s) % 16 == 0)
        nanosleep(&t, NULL);
}

static void *run(void *user)
{
    emu_stream *s = user;
    pthread_mutex_lock(&lock);
    while (!s->leave || s->first) {
        emu_work *w = s->first;
        if (!w) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        const bool skip = s->context->error && !w->always;
        emu_order_begin(s->number, &s->clock, &w->ticket, !skip);
        pthread_mutex_unlock(&lock);
        emu_memory_name(w->node);
        if (!skip) {
            delay(s);
            w->run(w, s);
        }
        emu_memory_name("");
        pthread_mutex_lock(&lock);
        s->first = w->next;
        s->done++;
        s->ended = s->clock;
        free(w);
        pthread_cond_broadcast(&changed);
        if (s->done == s->submitted)
            pthread_cond_broadcast(&ended);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- streams ------------------------------------------------------------------------------- */

emu_stream *emu_stream_open(emu_context *context)
{
    emu_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->context = context;
    s->node = "no node";
    s->number = emu_order_open();
    s->random = (uint64_t)emu_setting("WEFT_EMU_SEED", 1) * 2654435761u +
                (uint64_t)(s->number + 1) * 40503u;
    if (s->number < 0 || pthread_create(&s->thread, NULL, run, s) != 0) {
        free(s);
        return NULL;
    }
    __atomic_add_fetch(&open_streams, 1, __ATOMIC_RELAXED);
    return s;
}

int emu_stream_count(void)
{
    return __atomic_load_n(&open_streams, __ATOMIC_RELAXED);
}

void emu_stream_close(emu_stream *s)
{
    if (!s->context->error && !emu_order_idle(s->number))
        emu_stop("stream %d is destroyed before the host waited for its work", s->number);
    pthread_mutex_lock(&lock);
    s->leave = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    emu_order_close(s->number);
    free(s);
    __atomic_sub_fetch(&open_streams, 1, __ATOMIC_RELAXED);
}

emu_context *emu_stream_context(const emu_stream *s)
{
    return s->context;
}

int emu_stream_number(const emu_stream *s)
{
    return s->number;
}

const char *emu_stream_node(const emu_stream *s)
{
    return s->node;
}

/* ---- graphs -------------------------------------------------------------------------------- */

static void record(emu_stream *s, emu_work *work, const emu_access *access, int count)
{
    emu_graph *g = s->records;
    if (g->count == g->capacity) {
        g->capacity = 2 * g->capacity + 16;
        g->item = realloc(g->item, (size_t)g->capacity * sizeof *g->item);
    }
    emu_access *copy = calloc((size_t)count + 1, sizeof *copy);
    if (!g->item || !copy)
        emu_stop("out of memory");
    memcpy(copy, access, (size_t)count * sizeof *copy);
    g->item[g->count++] = (graph_item){work, malloc_usable_size(work), s->node, copy, count};
}

bool emu_graph_begin(emu_stream *s)
{
    if (s->records)
        return false;
    s->records = calloc(1, sizeof *s->records);
    return s->records;
}

emu_graph *emu_graph_end(emu_stream *s)
{
    emu_graph *g = s->records;
    s->records = NULL;
    return g;
}

bool emu_graph_records(const emu_stream *s)
{
    return s->records;
}

emu_graph *emu_graph_take(emu_graph *g)
{
    emu_graph *taken = calloc(1, sizeof *taken);
    if (taken) {
        *taken = *g;
        *g = (emu_graph){0};
    }
    return taken;
}

void emu_graph_launch(emu_graph *g, emu_stream *s)
{
    for (int i = 0; i < g->count; i++) {
        const graph_item *item = &g->item[i];
        emu_work *work = malloc(item->bytes);
        char *inside;
        if (!work)
            emu_stop("out of memory");
        for (int k = 0; k < item->accesses; k++)
            if (emu_memory_find(item->access[k].begin,
                                (size_t)(item->access[k].end - item->access[k].begin),
                                &inside) == EMU_UNKNOWN)
                emu_stop("a graph uses memory at %p that was freed; node: %s",
                         (const void *)item->access[k].begin, item->node);
        memcpy(work, item->work, item->bytes);
        s->node = item->node;
        emu_stream_submit(s, work, item->access, item->accesses);
    }
}

void emu_graph_free(emu_graph *g)
{
    for (int i = 0; i < g->count; i++) {
        free(g->item[i].work);
        free(g->item[i].access);
    }
    free(g->item);
    free(g);
}

void emu_stream_submit(emu_stream *s, emu_work *work, const emu_access *access, int count)
{
    if (s->records) {
        record(s, work, access, count);
        return;
    }
    work->next = NULL;
    work->node = s->node;
    work->ticket = emu_order_submit(s->number, s->node, access, count);
    if (count)
        emu_memory_protect();
    pthread_mutex_lock(&lock);
    if (s->first)
        s->last->next = work;
    else
        s->first = work;
    s->last = work;
    s->submitted++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Sleeps until a stream has no more work or reaches an event, at most 2 ms. A host that only polls
 * would keep a core that the stream needs. */
static void sleep_until_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&ended, &lock, &until);
}

bool emu_stream_done(emu_stream *s)
{
    pthread_mutex_lock(&lock);
    if (s->done != s->submitted)
        sleep_until_end();
    const bool done = s->done == s->submitted;
    const emu_clock clock = s->ended;
    pthread_mutex_unlock(&lock);
    if (done)
        emu_order_seen(&clock);
    return done;
}

void emu_stream_fail(emu_stream *s, CUresult error)
{
    pthread_mutex_lock(&lock);
    if (!s->context->error)
        s->context->error = error;
    pthread_mutex_unlock(&lock);
}

void emu_stream_hang(emu_stream *s)
{
    pthread_mutex_lock(&lock);
    while (!s->leave)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void emu_stream_declare(emu_stream *s, const char *node)
{
    s->node = emu_intern(node);
    s->declarations = 0;
}

void emu_stream_declare_access(emu_stream *s, const emu_access *access)
{
    if (s->declarations == MOST_ACCESSES)
        emu_stop("%s declares more than %d accesses", s->node, MOST_ACCESSES);
    s->declared[s->declarations++] = *access;
}

int emu_stream_declared(const emu_stream *s, const emu_access **access)
{
    *access = s->declared;
    return s->declarations;
}

/* ---- events -------------------------------------------------------------------------------- */

typedef struct event_work {
    emu_work work;
    position *at;
} event_work;

/* Requires the lock. */
static void let_go(position *p)
{
    if (p && --p->holders == 0)
        free(p);
}

static void reach(emu_work *work, emu_stream *s)
{
    position *p = ((event_work *)work)->at;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&lock);
    p->clock = s->clock;
    p->reached = true;
    p->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    let_go(p);
    pthread_cond_broadcast(&changed);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

static void wait_for(emu_work *work, emu_stream *s)
{
    position *p = ((event_work *)work)->at;
    pthread_mutex_lock(&lock);
    while (!p->reached && !s->leave)
        pthread_cond_wait(&changed, &lock);
    if (p->reached)
        emu_clock_join(&s->clock, &p->clock);
    let_go(p);
    pthread_mutex_unlock(&lock);
}

static void submit_position(emu_stream *s, position *p, void (*act)(emu_work *, emu_stream *))
{
    event_work *w = calloc(1, sizeof *w);
    if (!w)
        emu_stop("out of memory");
    w->work.run = act;
    w->work.always = true;
    w->at = p;
    pthread_mutex_lock(&lock);
    p->holders++;
    pthread_mutex_unlock(&lock);
    emu_stream_submit(s, &w->work, NULL, 0);
}

emu_event *emu_event_create(void)
{
    return calloc(1, sizeof(emu_event));
}

void emu_event_destroy(emu_event *event)
{
    pthread_mutex_lock(&lock);
    let_go(event->at);
    pthread_mutex_unlock(&lock);
    free(event);
}

void emu_event_record(emu_event *event, emu_stream *s)
{
    position *p = calloc(1, sizeof *p);
    if (!p)
        emu_stop("out of memory");
    p->holders = 1;
    pthread_mutex_lock(&lock);
    let_go(event->at);
    event->at = p;
    pthread_mutex_unlock(&lock);
    submit_position(s, p, reach);
}

void emu_event_wait(emu_event *event, emu_stream *s)
{
    position *p = event->at;
    if (p) /* otherwise nothing was recorded */
        submit_position(s, p, wait_for);
}

bool emu_event_done(emu_event *event)
{
    position *p = event->at;
    pthread_mutex_lock(&lock);
    if (p && !p->reached)
        sleep_until_end();
    const bool done = !p || p->reached;
    pthread_mutex_unlock(&lock);
    if (done && p)
        emu_order_seen(&p->clock);
    return done;
}

bool emu_event_seconds(emu_event *event, double *seconds)
{
    pthread_mutex_lock(&lock);
    const bool known = event->at && event->at->reached;
    *seconds = known ? event->at->seconds : 0;
    pthread_mutex_unlock(&lock);
    return known;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The last write of a word. */
typedef struct written {
    const void *at;
    uint32_t value;
    emu_clock clock;
    struct written *next;
} written;

typedef struct word_work {
    emu_work work;
    const void *at;
    uint32_t *inside;
    uint32_t value;
} word_work;

static written *words; /* of all words; kept to the end of the process */

static bool is_before(uint32_t number, uint32_t value)
{
    return (int32_t)(number - value) < 0;
}

/* Requires the lock. */
static written *find_word(const void *at)
{
    written *w = words;
    while (w && w->at != at)
        w = w->next;
    return w;
}

/* Orders the stream after the writer of the word. */
static void wait_word(emu_work *work, emu_stream *s)
{
    const word_work *w = (const word_work *)work;
    pthread_mutex_lock(&lock);
    const written *last = find_word(w->at);
    if (last && !is_before(last->value, w->value))
        emu_clock_join(&s->clock, &last->clock);
    else /* the host wrote it */
        emu_order_join_host(&s->clock);
    pthread_mutex_unlock(&lock);
}

static void write_word(emu_work *work, emu_stream *s)
{
    const word_work *w = (const word_work *)work;
    pthread_mutex_lock(&lock);
    written *last = find_word(w->at);
    if (!last) {
        last = calloc(1, sizeof *last);
        if (!last)
            emu_stop("out of memory");
        last->at = w->at;
        last->next = words;
        words = last;
    }
    last->value = w->value;
    last->clock = s->clock;
    __atomic_store_n(w->inside, w->value, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

static void submit_word(emu_stream *s, const word_work *word)
{
    word_work *w = malloc(sizeof *w);
    if (!w)
        emu_stop("out of memory");
    *w = *word;
    emu_stream_submit(s, &w->work, NULL, 0);
}

void emu_word_wait(emu_stream *s, const void *at, uint32_t *inside, uint32_t value)
{
    if (is_before(__atomic_load_n(inside, __ATOMIC_ACQUIRE), value))
        emu_stop(
            "a stream waits for a word that was not written: a driver may then stop the threads "
            "that would write it");
    submit_word(s, &(word_work){{.run = wait_word}, at, inside, value});
}

void emu_word_write(emu_stream *s, const void *at, uint32_t *inside, uint32_t value)
{
    submit_word(s, &(word_work){{.run = write_word}, at, inside, value});
}
