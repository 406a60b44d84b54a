#include "kernel/far/far_stream.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernel/far/far_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct weft_device_stream {
    pthread_t thread;
    far_work *first, *last;
    int64_t submitted, done;
    pthread_cond_t added, finished; /* an item was added, or finished */
    bool leave;
    weft_error_copy *error; /* first error since the last wait; NULL: none */
    bool failed;
    weft_rng delays;
    int number;      /* position in clocks */
    far_clock clock; /* of the work that runs */
    far_clock ended; /* of the last work that ended */
    far_node node;
    char running[256]; /* text of the node that runs, on the stream's thread */
    char named[256];   /* text of the node marked last, on the host */
};

/* A recorded position. Held by its event, by the work that reaches it and by work that waits. */
typedef struct position {
    int holders;
    bool reached;
    pthread_cond_t met;
    double seconds;
    far_clock clock;
} position;

/* One lock for all streams: work takes much longer than what it protects. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the thread ---------------------------------------------------------------------------- */

/* Sleeps up to 0.2 ms before one item in 16. */
static void delay(weft_device_stream *s)
{
    const struct timespec t = {.tv_nsec = (long)weft_rng_below(&s->delays, 200000)};
    if (weft_rng_below(&s->delays, 16) == 0)
        nanosleep(&t, NULL);
}

/* Keeps the first error, with the node as its place. Requires the lock. */
static void keep_error(weft_device_stream *s, weft_status_code status)
{
    if (s->running[0] && status != WEFT_E_COMM)
        status = weft_error_at(status, WEFT_AT(.key = s->running));
    s->failed = true;
    s->error = weft_error_save();
}

static void *run(void *user)
{
    weft_device_stream *s = user;
    far_memory_name(s->running);
    pthread_mutex_lock(&lock);
    while (!s->leave || s->first) {
        far_work *w = s->first;
        if (!w) {
            pthread_cond_wait(&s->added, &lock);
            continue;
        }
        const bool skip = s->failed;
        far_races_begin(s->number, &s->clock, &w->ticket);
        pthread_mutex_unlock(&lock);
        far_node_text(&w->node, s->running);
        delay(s);
        const weft_status_code status = skip && !w->always ? WEFT_OK : w->run(w);
        pthread_mutex_lock(&lock);
        if (status != WEFT_OK && !s->failed)
            keep_error(s, status);
        s->first = w->next;
        s->done++;
        s->ended = s->clock;
        weft_free(w);
        pthread_cond_broadcast(&s->finished);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- work ---------------------------------------------------------------------------------- */

weft_status far_stream_open(uint64_t seed, weft_device_stream **stream)
{
    weft_device_stream *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a stream"));
    s->node.number = -1;
    pthread_cond_init(&s->added, NULL);
    pthread_cond_init(&s->finished, NULL);
    s->number = far_clock_take();
    if (s->number < 0 || pthread_create(&s->thread, NULL, run, s) != 0) {
        if (s->number >= 0)
            far_clock_release(s->number);
        weft_free(s);
        return weft_no_memory("a stream");
    }
    pthread_mutex_lock(&lock);
    s->delays = weft_rng_make(weft_seed_mix(seed, (uint64_t)s->number), WEFT_RNG_TEST);
    pthread_mutex_unlock(&lock);
    *stream = s;
    return WEFT_OK;
}

void far_stream_close(weft_device_stream *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&lock);
    s->leave = true;
    pthread_cond_broadcast(&s->added);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    far_memory_name("");
    far_clock_release(s->number);
    pthread_cond_destroy(&s->added);
    pthread_cond_destroy(&s->finished);
    weft_free(s->error);
    weft_free(s);
}

void far_stream_mark(weft_device_stream *s, const far_node *node)
{
    s->node = *node;
    far_node_text(node, s->named);
    far_memory_name(s->named);
}

const char *far_stream_named(const weft_device_stream *s)
{
    return s->named[0] ? s->named : "a copy";
}

void *far_work_create(int64_t bytes, weft_status_code (*run_work)(far_work *work))
{
    far_work *w = weft_alloc(bytes);
    if (!w)
        abort();
    w->run = run_work;
    return w;
}

void far_stream_submit(weft_device_stream *s, far_work *work, const far_access *access, int count)
{
    work->next = NULL;
    work->node = s->node;
    work->ticket = far_races_submit(s->number, &s->node, access, count);
    pthread_mutex_lock(&lock);
    if (s->first)
        s->last->next = work;
    else
        s->first = work;
    s->last = work;
    s->submitted++;
    pthread_cond_signal(&s->added);
    pthread_mutex_unlock(&lock);
}

/* Returns the stream's error to the host, once. Requires the lock. */
static weft_status_code take_error(weft_device_stream *s)
{
    if (!s->failed)
        return WEFT_OK;
    const weft_status_code status = weft_error_restore(s->error);
    weft_free(s->error);
    s->error = NULL;
    s->failed = false;
    return status;
}

weft_status far_stream_wait(weft_device_stream *s)
{
    pthread_mutex_lock(&lock);
    const int64_t all = s->submitted;
    while (s->done < all)
        pthread_cond_wait(&s->finished, &lock);
    const far_clock clock = s->ended;
    const weft_status_code status = take_error(s);
    pthread_mutex_unlock(&lock);
    far_races_seen(&clock);
    return status;
}

/* ---- events -------------------------------------------------------------------------------- */

/* Requires the lock. */
static void let_go(position *p)
{
    if (!p || --p->holders)
        return;
    pthread_cond_destroy(&p->met);
    weft_free(p);
}

typedef struct event_work {
    far_work work;
    weft_device_stream *stream;
    position *at;
} event_work;

static weft_status_code reach(far_work *work)
{
    position *p = ((event_work *)work)->at;
    pthread_mutex_lock(&lock);
    p->clock = ((event_work *)work)->stream->clock;
    p->reached = true;
    p->seconds = weft_now();
    pthread_cond_broadcast(&p->met);
    let_go(p);
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

static weft_status_code wait_for(far_work *work)
{
    position *p = ((event_work *)work)->at;
    pthread_mutex_lock(&lock);
    while (!p->reached)
        pthread_cond_wait(&p->met, &lock);
    far_clock_join(&((event_work *)work)->stream->clock, &p->clock);
    let_go(p);
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

static void submit_position(weft_device_stream *s, position *p, weft_status_code (*act)(far_work *))
{
    event_work *w = far_work_create(sizeof *w, act);
    w->work.always = true;
    w->stream = s;
    w->at = p;
    pthread_mutex_lock(&lock);
    p->holders++;
    pthread_mutex_unlock(&lock);
    far_stream_submit(s, &w->work, NULL, 0);
}

weft_status far_stream_record(weft_device_stream *s, weft_event *event)
{
    position *p;
    WEFT_TRY(WEFT_NEW(p, 1, "an event"));
    p->holders = 1;
    pthread_cond_init(&p->met, NULL);
    far_event_forget(event);
    event->handle = p;
    submit_position(s, p, reach);
    return WEFT_OK;
}

void far_stream_after(weft_device_stream *s, const weft_event *event)
{
    position *p = event->handle;
    if (p) /* otherwise nothing was recorded */
        submit_position(s, p, wait_for);
}

weft_status far_stream_await(weft_device_stream *s, weft_event *event)
{
    position *p = event->handle;
    pthread_mutex_lock(&lock);
    while (p && !p->reached)
        pthread_cond_wait(&p->met, &lock);
    event->seconds = p ? p->seconds : weft_now();
    const weft_status_code status = take_error(s);
    pthread_mutex_unlock(&lock);
    if (p)
        far_races_seen(&p->clock);
    return status;
}

void far_event_forget(weft_event *event)
{
    pthread_mutex_lock(&lock);
    let_go(event->handle);
    pthread_mutex_unlock(&lock);
    event->handle = NULL;
}

bool far_event_reached(const weft_event *event)
{
    const position *p = event->handle;
    pthread_mutex_lock(&lock);
    const bool reached = !p || p->reached;
    pthread_mutex_unlock(&lock);
    if (p && reached)
        far_races_seen(&p->clock);
    return reached;
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* The last lift of a gate. */
typedef struct lifted {
    const uint32_t *gate;
    uint32_t turn;
    far_clock clock;
    struct lifted *next;
} lifted;

typedef struct gate_work {
    far_work work;
    weft_device_stream *stream;
    uint32_t *gate;
    uint32_t turn;
} gate_work;

static lifted *gates; /* of all gates; kept to the end of the process */
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;

static bool is_before(uint32_t number, uint32_t turn)
{
    return (int32_t)(number - turn) < 0;
}

/* Requires the lock. */
static lifted *find_gate(const uint32_t *gate)
{
    lifted *l = gates;
    while (l && l->gate != gate)
        l = l->next;
    return l;
}

static weft_status_code pass_gate(far_work *work)
{
    const gate_work *g = (const gate_work *)work;
    pthread_mutex_lock(&lock);
    while (is_before(*g->gate, g->turn))
        pthread_cond_wait(&gate_moved, &lock);
    const lifted *l = find_gate(g->gate);
    if (l && !is_before(l->turn, g->turn))
        far_clock_join(&g->stream->clock, &l->clock);
    else /* by force() */
        far_races_join_host(&g->stream->clock);
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

static weft_status_code lift_gate(far_work *work)
{
    const gate_work *g = (const gate_work *)work;
    pthread_mutex_lock(&lock);
    lifted *l = find_gate(g->gate);
    if (!l) {
        l = weft_calloc(1, sizeof *l);
        if (!l)
            abort();
        l->gate = g->gate;
        l->next = gates;
        gates = l;
    }
    l->turn = *g->gate = g->turn;
    l->clock = g->stream->clock;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}

static void submit_gate(weft_device_stream *s, uint32_t *gate, uint32_t turn,
                        weft_status_code (*act)(far_work *))
{
    gate_work *w = far_work_create(sizeof *w, act);
    w->work.always = true;
    w->stream = s;
    w->gate = gate;
    w->turn = turn;
    far_stream_submit(s, &w->work, NULL, 0);
}

void far_stream_hold(weft_device_stream *s, uint32_t *gate, uint32_t turn)
{
    submit_gate(s, gate, turn, pass_gate);
}

void far_stream_lift(weft_device_stream *s, uint32_t *gate, uint32_t turn)
{
    submit_gate(s, gate, turn, lift_gate);
}

void far_gate_force(uint32_t *gate, uint32_t turn)
{
    pthread_mutex_lock(&lock);
    if (is_before(*gate, turn))
        *gate = turn;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&lock);
}
