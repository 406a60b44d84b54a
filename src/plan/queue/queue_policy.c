#include "plan/queue/queue_policy.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[WEFT_QUEUE_POLICIES] = {"fifo", "srpt", "edf", "fair"};

const char *weft_queue_policy_name(weft_queue_policy policy)
{
    return names[policy];
}

weft_queue_policy weft_queue_policy_find(const char *name)
{
    int policy = 0;
    while (policy < WEFT_QUEUE_POLICIES && strcmp(names[policy], name) != 0)
        policy++;
    return (weft_queue_policy)policy;
}

static double deadline_of(const weft_queue_entry *e)
{
    return e->deadline > 0 ? e->deadline : INFINITY;
}

int weft_queue_deadlines_compare(const void *a, const void *b)
{
    const weft_queue_entry *x = a, *y = b;
    const double p = deadline_of(x), q = deadline_of(y);
    if (p != q)
        return p < q ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* ---- the jobs of a question ----------------------------------------------------------------- */

/* Jobs that the worker may have, all of the highest priority. */
typedef struct choice {
    const weft_queue_question *q;
    int64_t priority;
} choice;

static bool takes_part(const choice *c, int64_t i)
{
    const weft_queue_entry *e = &c->q->entries[i];
    return (!e->held || i == c->q->held) && e->priority == c->priority;
}

/* Seconds that the job needs from now, with the start of a worker. */
static double work_of(const weft_queue_question *q, int64_t i)
{
    return q->entries[i].seconds + (i == q->held ? 0 : q->rules->start);
}

/* Seconds between the decision and the start of the job's worker. */
static double stop_before(const weft_queue_question *q, int64_t i)
{
    return q->held >= 0 && i != q->held ? q->rules->stop : 0;
}

static bool is_earlier(const weft_queue_entry *a, const weft_queue_entry *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->number < b->number;
}

/* ---- policies ------------------------------------------------------------------------------- */

static int64_t choose_fifo(const choice *c)
{
    const weft_queue_question *q = c->q;
    int64_t best = q->held;
    for (int64_t i = 0; q->held < 0 && i < q->count; i++)
        if (takes_part(c, i) && (best < 0 || is_earlier(&q->entries[i], &q->entries[best])))
            best = i;
    return best;
}

static double srpt_key(const weft_queue_question *q, int64_t i)
{
    return work_of(q, i) - q->rules->ageing * (q->now - q->entries[i].arrival);
}

/* The worker leaves its job for the shorter ones, and resumes the job after the last of the shorter
 * ones. Returns the seconds by which jobs end earlier, in sum. */
static double gain_of_stopping(const choice *c)
{
    const weft_queue_question *q = c->q;
    const double key = srpt_key(q, q->held), stop = q->rules->stop, start = q->rules->start,
                 left = q->entries[q->held].seconds;
    double gain = 0, work = 0;
    for (int64_t i = 0; i < q->count; i++) {
        if (i == q->held || !takes_part(c, i))
            continue;
        const bool before = srpt_key(q, i) < key;
        gain += before ? left - stop : -(stop + start);
        work += before ? work_of(q, i) : 0;
    }
    return gain - (stop + work + start);
}

static int64_t choose_srpt(const choice *c)
{
    const weft_queue_question *q = c->q;
    int64_t best = -1;
    for (int64_t i = 0; i < q->count; i++) {
        if (!takes_part(c, i))
            continue;
        const double difference = best < 0 ? -1 : srpt_key(q, i) - srpt_key(q, best);
        if (difference < 0 || (difference == 0 && is_earlier(&q->entries[i], &q->entries[best])))
            best = i;
    }
    return q->held >= 0 && best != q->held && gain_of_stopping(c) <= 0 ? q->held : best;
}

static int64_t choose_fair(const choice *c)
{
    const weft_queue_question *q = c->q;
    const double *used = q->used;
    int64_t best = -1;
    for (int64_t i = 0; i < q->count; i++) {
        if (!takes_part(c, i) || i == q->held)
            continue;
        const weft_queue_entry *e = &q->entries[i], *other = best < 0 ? NULL : &q->entries[best];
        if (!other || used[e->owner] < used[other->owner] ||
            (used[e->owner] == used[other->owner] && is_earlier(e, other)))
            best = i;
    }
    if (q->held < 0 || best < 0)
        return q->held < 0 ? best : q->held;
    /* the other owner has used less even after its job and the change */
    const double after =
        used[q->entries[best].owner] + work_of(q, best) + q->rules->stop + q->rules->start;
    return used[q->entries[q->held].owner] > after ? best : q->held;
}

/* ---- deadlines ------------------------------------------------------------------------------ */

/* Memory of one question. */
typedef struct deadlines {
    int64_t *heap; /* jobs on time, the longest first */
    int64_t count;
    bool *on_time; /* by index of the entry */
} deadlines;

static void swap(int64_t *a, int64_t *b)
{
    const int64_t x = *a;
    *a = *b;
    *b = x;
}

static void push(const weft_queue_question *q, deadlines *d, int64_t job)
{
    int64_t at = d->count++;
    d->heap[at] = job;
    for (; at > 0 && work_of(q, d->heap[at]) > work_of(q, d->heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&d->heap[at], &d->heap[(at - 1) / 2]);
}

static int64_t pop(const weft_queue_question *q, deadlines *d)
{
    const int64_t longest = d->heap[0];
    d->heap[0] = d->heap[--d->count];
    for (int64_t at = 0, child; (child = 2 * at + 1) < d->count; at = child) {
        if (child + 1 < d->count && work_of(q, d->heap[child + 1]) > work_of(q, d->heap[child]))
            child++;
        if (work_of(q, d->heap[child]) <= work_of(q, d->heap[at]))
            break;
        swap(&d->heap[at], &d->heap[child]);
    }
    return longest;
}

/* The largest set of jobs that can end before their deadlines if they start at `start` (Moore and
 * Hodgson: by deadline, and without the longest one whenever a deadline is missed). The job `but`
 * is skipped. Returns the number of the jobs. */
static int64_t find_on_time(const choice *c, double start, int64_t but, deadlines *d)
{
    const weft_queue_question *q = c->q;
    const double workers = (double)q->rules->workers;
    double at = start;
    d->count = 0;
    memset(d->on_time, 0, (size_t)q->count * sizeof *d->on_time);
    for (int64_t i = 0; i < q->count && q->entries[i].deadline > 0; i++) {
        if (i == but || !takes_part(c, i))
            continue;
        push(q, d, i);
        d->on_time[i] = true;
        at += work_of(q, i) / workers;
        if (at > q->entries[i].deadline) {
            const int64_t late = pop(q, d);
            d->on_time[late] = false;
            at -= work_of(q, late) / workers;
        }
    }
    return d->count;
}

/* Whether all jobs that are on time stay on time if the worker has `first` before. */
static bool permits(const choice *c, int64_t first, const deadlines *d)
{
    const weft_queue_question *q = c->q;
    const double workers = (double)q->rules->workers;
    double at = q->now + stop_before(q, first) + work_of(q, first) / workers;
    if (d->on_time[first] && at > q->entries[first].deadline)
        return false;
    for (int64_t i = 0; i < q->count && q->entries[i].deadline > 0; i++) {
        if (i == first || !d->on_time[i])
            continue;
        at += work_of(q, i) / workers;
        if (at > q->entries[i].deadline)
            return false;
    }
    return true;
}

/* Whether more jobs end before their deadlines if the worker leaves its job. */
static bool stopping_pays(const choice *c, deadlines *d)
{
    const weft_queue_question *q = c->q;
    const weft_queue_entry *held = &q->entries[q->held];
    const double end = q->now + held->seconds;
    const int64_t with =
        (held->deadline > 0 && end <= held->deadline) + find_on_time(c, end, q->held, d);
    return find_on_time(c, q->now + q->rules->stop, -1, d) > with;
}

static int64_t first_on_time(const weft_queue_question *q, const deadlines *d)
{
    for (int64_t i = 0; i < q->count; i++)
        if (d->on_time[i])
            return i;
    return -1;
}

static int64_t choose_edf(const choice *c, deadlines *d)
{
    const weft_queue_question *q = c->q;
    const int64_t shortest = choose_srpt(c);
    (void)find_on_time(c, q->now, -1, d);
    const int64_t earliest = first_on_time(q, d);
    if (earliest < 0 || shortest < 0 || permits(c, shortest, d))
        return shortest;
    /* a job that has waited too long is not passed over any more */
    if (srpt_key(q, shortest) < 0 && (q->held < 0 || q->held == shortest))
        return shortest;
    if (q->held < 0)
        return earliest;
    if (permits(c, q->held, d) || earliest == q->held || !stopping_pays(c, d))
        return q->held;
    const int64_t first = first_on_time(q, d);
    return first < 0 ? q->held : first;
}

/* ---- choice --------------------------------------------------------------------------------- */

/* The priority of the jobs of which one is chosen; false: the answer is the held job, or none. */
static bool find_priority(const weft_queue_question *q, int64_t *priority)
{
    const weft_queue_entry *held = q->held < 0 ? NULL : &q->entries[q->held];
    bool found = false;
    for (int64_t i = 0; i < q->count; i++)
        if (!q->entries[i].held && (!found || q->entries[i].priority > *priority)) {
            *priority = q->entries[i].priority;
            found = true;
        }
    if (!found || !held || held->priority == *priority)
        return found;
    /* a job of a lower priority is stopped unless its end is near */
    return q->rules->policy != WEFT_QUEUE_FIFO && held->priority < *priority &&
           held->seconds > q->rules->stop + q->rules->start;
}

static weft_status choose_by_deadline(const choice *c, int64_t *chosen)
{
    deadlines d = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(d.heap, c->q->count, "the order of a queue"));
    WEFT_GO(WEFT_NEW(d.on_time, c->q->count, "the order of a queue"));
    *chosen = choose_edf(c, &d);
out:
    weft_free(d.heap);
    weft_free(d.on_time);
    return status;
}

weft_status weft_queue_choose(const weft_queue_question *question, int64_t *chosen)
{
    weft_queue_question q = *question;
    choice c = {.q = &q};
    *chosen = q.held;
    if (!find_priority(&q, &c.priority))
        return WEFT_OK;
    if (q.held >= 0 && q.entries[q.held].priority != c.priority)
        q.held = -1; /* only jobs of the higher priority compete */
    switch (q.rules->policy) {
    case WEFT_QUEUE_EDF: return choose_by_deadline(&c, chosen);
    case WEFT_QUEUE_SRPT: *chosen = choose_srpt(&c); break;
    case WEFT_QUEUE_FAIR: *chosen = choose_fair(&c); break;
    default: *chosen = choose_fifo(&c);
    }
    return WEFT_OK;
}
