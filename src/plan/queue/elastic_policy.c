#include "plan/queue/elastic_policy.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

static const char *const names[WEFT_ELASTIC_POLICIES] = {"fixed-1",  "fixed-2", "fixed-4",
                                                         "fixed-8",  "ddit",    "tetriserve",
                                                         "genserve", "weft",    "weft-start"};

/* Least speedup of twice the devices, of two, for a degree to be efficient. */
#define EFFICIENT 1.6
/* Least speedup for idle devices to be kept until the end of a job. */
#define EFFICIENT_TO_END 1.3

const char *weft_elastic_policy_name(weft_elastic_policy policy)
{
    return names[policy];
}

bool weft_elastic_policy_keeps(weft_elastic_policy policy)
{
    return policy == WEFT_ELASTIC_START;
}

weft_status weft_elastic_work_create(int64_t jobs, weft_elastic_work *w)
{
    *w = (weft_elastic_work){0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(w->order, jobs, "the order of a queue"));
    WEFT_GO(WEFT_NEW(w->heap, jobs, "the order of a queue"));
    WEFT_GO(WEFT_NEW(w->best, jobs * (WEFT_ELASTIC_DEVICES + 1), "the values of a queue"));
    WEFT_GO(WEFT_NEW(w->need, jobs, "the order of a queue"));
    WEFT_GO(WEFT_NEW(w->value, (jobs + 1) * (WEFT_ELASTIC_DEVICES + 1), "the values of a queue"));
    WEFT_GO(WEFT_NEW(w->chosen, jobs, "the order of a queue"));
out:
    if (status != WEFT_OK)
        weft_elastic_work_free(w);
    return status;
}

void weft_elastic_work_free(weft_elastic_work *w)
{
    weft_free(w->order);
    weft_free(w->heap);
    weft_free(w->best);
    weft_free(w->need);
    weft_free(w->value);
    weft_free(w->chosen);
    *w = (weft_elastic_work){0};
}

/* ---- a job ---------------------------------------------------------------------------------- */

/* Seconds of the change to a degree. */
static double change_to(const weft_elastic_question *q, int64_t i, int degree)
{
    const weft_elastic_entry *e = &q->entries[i];
    return e->steps > 0 && e->degree != 1 << degree ? q->change : 0;
}

double weft_elastic_seconds_left(const weft_elastic_question *q, int64_t i, int degree)
{
    const weft_elastic_entry *e = &q->entries[i];
    const double wait = e->busy ? e->until - q->now : 0, change = change_to(q, i, degree);
    return e->steps < 0
               ? wait
               : wait + change + (double)e->steps * e->size->step[degree] + e->size->decode;
}

static double device_seconds(const weft_elastic_question *q, int64_t i, int degree)
{
    const weft_elastic_entry *e = &q->entries[i];
    return e->steps < 0 ? (double)e->degree * (e->until - q->now)
                        : (double)(1 << degree) * ((double)e->steps * e->size->step[degree] +
                                                   change_to(q, i, degree)) +
                              e->size->decode;
}

/* The degree with the fewest device seconds that ends before the deadline; -1: none. */
static int least_degree(const weft_elastic_question *q, int64_t i)
{
    int best = -1;
    for (int k = 0; k < WEFT_ELASTIC_DEGREES && 1 << k <= q->devices; k++)
        if (isfinite(device_seconds(q, i, k)) &&
            (q->entries[i].deadline <= 0 ||
             q->now + weft_elastic_seconds_left(q, i, k) <= q->entries[i].deadline) &&
            (best < 0 || device_seconds(q, i, k) < device_seconds(q, i, best)))
            best = k;
    return best;
}

/* The least degree that the job can have; the largest one if it can have none. */
static int smallest_degree(const weft_elastic_size *s)
{
    int k = 0;
    while (k + 1 < WEFT_ELASTIC_DEGREES && !isfinite(s->step[k]))
        k++;
    return k;
}

/* The largest degree up to which each doubling is efficient. */
static int efficient_degree(const weft_elastic_size *s, int64_t devices)
{
    int k = 0;
    while (k + 1 < WEFT_ELASTIC_DEGREES && 2 << k <= devices &&
           s->step[k] >= EFFICIENT * s->step[k + 1])
        k++;
    return k;
}

/* Decoding needs one device, and is not delayed. */
static int64_t give_decoders(const weft_elastic_question *q, int64_t idle, int64_t *degrees)
{
    for (int64_t i = 0; i < q->count; i++) {
        const weft_elastic_entry *e = &q->entries[i];
        degrees[i] = 0;
        if (!e->busy && e->steps == 0 && idle > 0) {
            degrees[i] = 1;
            idle--;
        }
    }
    return idle;
}

static bool waits(const weft_elastic_question *q, int64_t i, const int64_t *degrees)
{
    return !q->entries[i].busy && q->entries[i].steps > 0 && degrees[i] == 0;
}

/* Idle devices go to the jobs that gain the most from twice the devices, while a doubling is at
 * least `least` times as fast. */
static void give_rest(const weft_elastic_question *q, int64_t idle, double least, int64_t *degrees)
{
    for (;;) {
        int64_t best = -1;
        double gain = least;
        for (int64_t i = 0; i < q->count; i++) {
            const weft_elastic_entry *e = &q->entries[i];
            int k = 0;
            while (1 << k < degrees[i])
                k++;
            if (e->busy || e->steps == 0 || degrees[i] == 0 || degrees[i] > idle ||
                k + 1 >= WEFT_ELASTIC_DEGREES || 2 << k > q->devices)
                continue;
            const double speedup = e->size->step[k] / e->size->step[k + 1];
            if (speedup >= gain &&
                weft_elastic_seconds_left(q, i, k + 1) <= weft_elastic_seconds_left(q, i, k)) {
                gain = speedup;
                best = i;
            }
        }
        if (best < 0)
            return;
        idle -= degrees[best];
        degrees[best] *= 2;
    }
}

/* ---- fixed degrees, and DDiT ---------------------------------------------------------------- */

static void choose_fixed(const weft_elastic_question *q, int64_t degree, int64_t *degrees)
{
    int64_t idle = q->idle;
    for (int64_t i = 0; i < q->count; i++) {
        degrees[i] = !q->entries[i].busy && q->entries[i].degree ? degree : 0;
        idle -= degrees[i];
    }
    for (int64_t i = 0; i < q->count; i++)
        if (!q->entries[i].busy && !degrees[i] && idle >= degree) {
            degrees[i] = degree;
            idle -= degree;
        }
}

/* A running job keeps its devices, and gets more up to its efficient degree. */
static void choose_ddit(const weft_elastic_question *q, int64_t *degrees)
{
    int64_t idle = give_decoders(q, q->idle, degrees);
    for (int64_t i = 0; i < q->count; i++)
        if (waits(q, i, degrees) && q->entries[i].degree) {
            degrees[i] = q->entries[i].degree;
            idle -= degrees[i];
        }
    for (int64_t i = 0; i < q->count; i++) {
        const weft_elastic_entry *e = &q->entries[i];
        if (e->busy || e->steps == 0)
            continue;
        int64_t want = 1 << efficient_degree(e->size, q->devices);
        while (want > degrees[i] && want - degrees[i] > idle)
            want /= 2;
        if (want > degrees[i]) {
            idle -= want - degrees[i];
            degrees[i] = want;
        }
    }
}

/* ---- orders --------------------------------------------------------------------------------- */

/* Sorts `order` by w->need: insertion, as queues are short and almost sorted. */
static void sort_by_need(weft_elastic_work *w, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        const int64_t job = w->order[i];
        int64_t at = i;
        for (; at > 0 && w->need[w->order[at - 1]] > w->need[job]; at--)
            w->order[at] = w->order[at - 1];
        w->order[at] = job;
    }
}

/* ---- TetriServe ----------------------------------------------------------------------------- */

static void choose_tetriserve(const weft_elastic_question *q, weft_elastic_work *w,
                              int64_t *degrees)
{
    int64_t idle = give_decoders(q, q->idle, degrees), count = 0;
    for (int64_t i = 0; i < q->count; i++) {
        if (!waits(q, i, degrees))
            continue;
        const int k = least_degree(q, i);
        /* slack at the least sufficient degree; jobs that are late come last, by arrival */
        w->need[i] =
            k < 0 ? INFINITY : q->entries[i].deadline - q->now - weft_elastic_seconds_left(q, i, k);
        if (q->entries[i].deadline <= 0)
            w->need[i] = 1e12;
        w->order[count++] = i;
    }
    sort_by_need(w, count);
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = w->order[n];
        const int k = least_degree(q, i);
        const int64_t want = 1 << (k < 0 ? smallest_degree(q->entries[i].size) : k);
        if (want <= idle) {
            degrees[i] = want;
            idle -= want;
        }
    }
    give_rest(q, idle, 1, degrees);
}

/* ---- GenServe ------------------------------------------------------------------------------- */

/* Worth of a degree: a deadline that is met is worth 1, less the device seconds, so that cheap
 * choices win. Progress of a job that is late is worth little. */
static double worth(const weft_elastic_question *q, int64_t i, int degree)
{
    const weft_elastic_entry *e = &q->entries[i];
    const double end = q->now + weft_elastic_seconds_left(q, i, degree);
    const bool met = e->deadline <= 0 || end <= e->deadline;
    return (met ? 1 : 0.01 * (degree + 1)) / (1 + 1e-3 * device_seconds(q, i, degree)) +
           (e->degree == 1 << degree ? 1e-3 : 0);
}

static void choose_genserve(const weft_elastic_question *q, weft_elastic_work *w, int64_t *degrees)
{
    enum { ROW = WEFT_ELASTIC_DEVICES + 1 };
    int64_t idle = give_decoders(q, q->idle, degrees), count = 0;
    for (int64_t d = 0; d < ROW; d++)
        w->value[d] = 0;
    for (int64_t i = 0; i < q->count; i++) {
        if (!waits(q, i, degrees))
            continue;
        const double *before = w->value + count * ROW;
        double *value = w->value + (count + 1) * ROW;
        int64_t *best = w->best + count * ROW;
        for (int64_t d = 0; d <= idle; d++) {
            value[d] = before[d];
            best[d] = 0;
            for (int k = 0; k < WEFT_ELASTIC_DEGREES && 1 << k <= d; k++) {
                const double with = before[d - (1 << k)] + worth(q, i, k);
                if (with > value[d]) {
                    value[d] = with;
                    best[d] = 1 << k;
                }
            }
        }
        w->order[count++] = i;
    }
    for (int64_t n = count - 1, d = idle; n >= 0; n--) {
        degrees[w->order[n]] = w->best[n * ROW + d];
        d -= degrees[w->order[n]];
        idle -= degrees[w->order[n]];
    }
    give_rest(q, idle, 1, degrees);
}

/* ---- weft ----------------------------------------------------------------------------------- */

/* Jobs of one priority, which share what the jobs of higher ones leave. */
typedef struct class
{
    int64_t priority;
    double before; /* device seconds of the jobs with higher priorities that are on time */
} class;

/* The highest priority below `below`. False: none. */
static bool next_class(const weft_elastic_question *q, int64_t below, class *c)
{
    bool found = false;
    for (int64_t i = 0; i < q->count; i++)
        if (q->entries[i].priority < below && (!found || q->entries[i].priority > c->priority)) {
            c->priority = q->entries[i].priority;
            found = true;
        }
    return found;
}

/* Lists the jobs of a class that can meet their deadlines alone, by deadline. */
static int64_t list_possible(const weft_elastic_question *q, const class *c, weft_elastic_work *w)
{
    int64_t count = 0;
    for (int64_t i = 0; i < q->count; i++) {
        if (q->entries[i].priority != c->priority)
            continue;
        w->chosen[i] = false;
        w->need[i] = q->entries[i].deadline > 0 ? q->entries[i].deadline : INFINITY;
        if (least_degree(q, i) >= 0)
            w->order[count++] = i;
    }
    sort_by_need(w, count);
    return count;
}

/* Marks the largest set of jobs of a class that the devices can end before their deadlines: by
 * deadline, and without the job with the most device seconds whenever the devices do not suffice.
 */
static int64_t find_on_time(const weft_elastic_question *q, class *c, weft_elastic_work *w)
{
    const int64_t count = list_possible(q, c, w);
    int64_t kept = 0;
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = w->order[n];
        w->chosen[i] = true;
        w->heap[kept++] = i;
        w->value[i] = device_seconds(q, i, least_degree(q, i));
        c->before += w->value[i];
        if (c->before <= (double)q->devices * (w->need[i] - q->now))
            continue;
        int64_t worst = 0;
        for (int64_t m = 1; m < kept; m++)
            if (w->value[w->heap[m]] > w->value[w->heap[worst]])
                worst = m;
        const int64_t late = w->heap[worst];
        w->chosen[late] = false;
        c->before -= w->value[late];
        w->heap[worst] = w->heap[--kept];
    }
    return count;
}

/* The first job of a class that needs several devices at once, and arrived longer ago than its own
 * seconds; -1: none. Includes jobs that run, or two such jobs would stop each other at every step.
 */
static int64_t find_starved(const weft_elastic_question *q, const class *c, const int64_t *degrees)
{
    int64_t best = -1;
    for (int64_t i = 0; i < q->count; i++) {
        const weft_elastic_entry *e = &q->entries[i];
        const int k = smallest_degree(e->size);
        if (e->priority == c->priority && waits(q, i, degrees) && k > 0 && 1 << k <= q->devices &&
            q->now - e->arrival > weft_elastic_seconds_left(q, i, k) &&
            (best < 0 || e->arrival < q->entries[best].arrival))
            best = i;
    }
    return best;
}

/* Gives devices to the jobs of find_starved in their order. False: the idle devices do not suffice,
 * and are kept for the next such job. */
static bool give_starved(const weft_elastic_question *q, const class *c, int64_t *idle,
                         int64_t *degrees)
{
    for (int64_t i; (i = find_starved(q, c, degrees)) >= 0;) {
        const weft_elastic_entry *e = &q->entries[i];
        int64_t needed = 1 << smallest_degree(e->size);
        if (e->degree > needed && e->degree <= *idle)
            needed = e->degree;
        if (needed > *idle)
            return false;
        degrees[i] = needed;
        *idle -= needed;
    }
    return true;
}

/* Gives devices to the jobs of a class. Returns the devices that stay idle, for lower classes. */
static int64_t give_class(const weft_elastic_question *q, class *c, weft_elastic_work *w,
                          int64_t idle, int64_t *degrees)
{
    int64_t count = find_on_time(q, c, w);
    if (!give_starved(q, c, &idle, degrees))
        return 0;
    for (int64_t n = 0; n < count; n++) { /* by deadline */
        const int64_t i = w->order[n];
        if (!w->chosen[i] || !waits(q, i, degrees))
            continue;
        const int64_t want = 1 << least_degree(q, i);
        if (want <= idle) {
            degrees[i] = want;
            idle -= want;
        }
    }
    count = 0;
    for (int64_t i = 0; i < q->count; i++) /* the shortest of the others */
        if (q->entries[i].priority == c->priority && !w->chosen[i] && waits(q, i, degrees)) {
            w->need[i] = device_seconds(q, i, smallest_degree(q->entries[i].size));
            w->order[count++] = i;
        }
    sort_by_need(w, count);
    for (int64_t n = 0; n < count && idle > 0; n++) {
        const int64_t i = w->order[n], want = 1 << smallest_degree(q->entries[i].size);
        if (want <= idle && isfinite(w->need[i])) {
            degrees[i] = want;
            idle -= want;
        }
    }
    return idle;
}

static void choose_weft(const weft_elastic_question *q, weft_elastic_work *w, double least,
                        int64_t *degrees)
{
    int64_t idle = give_decoders(q, q->idle, degrees);
    class c = {0};
    for (int64_t below = INT64_MAX; next_class(q, below, &c); below = c.priority)
        idle = give_class(q, &c, w, idle, degrees);
    give_rest(q, idle, least, degrees);
}

void weft_elastic_choose(weft_elastic_policy policy, const weft_elastic_question *q,
                         weft_elastic_work *w, int64_t *degrees)
{
    switch (policy) {
    case WEFT_ELASTIC_DDIT: choose_ddit(q, degrees); break;
    case WEFT_ELASTIC_TETRISERVE: choose_tetriserve(q, w, degrees); break;
    case WEFT_ELASTIC_GENSERVE: choose_genserve(q, w, degrees); break;
    case WEFT_ELASTIC_WEFT: choose_weft(q, w, 1, degrees); break;
    case WEFT_ELASTIC_START: choose_weft(q, w, EFFICIENT_TO_END, degrees); break;
    default: choose_fixed(q, 1 << (policy - WEFT_ELASTIC_FIXED_1), degrees);
    }
}
