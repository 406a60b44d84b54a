#include "plan/queue/queue_replay.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds that rounding may leave of a job. */
#define REST 1e-9

typedef struct worker {
    int64_t job;     /* -1: idle */
    double boundary; /* end of the step */
    double step;     /* seconds of the step's work */
    double passed;   /* seconds from the decision to the boundary */
} worker;

/* Lives as long as a replay. */
typedef struct replay {
    const weft_queue_rules *rules;
    weft_queue_run *jobs;
    int64_t count;
    double *used, now;
    int64_t *arrivals; /* jobs by arrival */
    int64_t arrived;
    weft_queue_entry *active; /* arrived and unfinished, by deadline */
    int64_t *job_of;          /* of active */
    int64_t active_count;
    double *left, *length; /* actual seconds that remain, and seconds of a step; by job */
    worker *workers;
    int64_t started;
    bool changed; /* jobs have arrived since the last decision */
    int64_t wanted, open;
    const weft_queue_watch *watch; /* NULL: none */
    weft_queue_run *present;       /* of the watch */
} replay;

/* ---- active jobs ---------------------------------------------------------------------------- */

static void add_active(replay *r, int64_t job)
{
    int64_t at = r->active_count++;
    const weft_queue_entry *e = &r->jobs[job].entry;
    while (at > 0 && weft_queue_deadlines_compare(&r->active[at - 1], e) > 0)
        at--;
    const size_t after = (size_t)(r->active_count - 1 - at);
    memmove(r->active + at + 1, r->active + at, after * sizeof *r->active);
    memmove(r->job_of + at + 1, r->job_of + at, after * sizeof *r->job_of);
    r->active[at] = *e;
    r->job_of[at] = job;
}

static int64_t find_active(const replay *r, int64_t job)
{
    int64_t at = 0;
    while (at < r->active_count && r->job_of[at] != job)
        at++;
    return at;
}

static void remove_active(replay *r, int64_t job)
{
    const int64_t at = find_active(r, job);
    const size_t after = (size_t)(--r->active_count - at);
    memmove(r->active + at, r->active + at + 1, after * sizeof *r->active);
    memmove(r->job_of + at, r->job_of + at + 1, after * sizeof *r->job_of);
}

/* ---- events --------------------------------------------------------------------------------- */

/* Without arrivals these policies continue a job until its end: its key falls faster than others,
 * and it was permitted to end. So one decision is enough. */
static bool decides_at_steps(const replay *r)
{
    return r->changed || r->arrived < r->count || r->rules->policy == WEFT_QUEUE_FAIR;
}

static void begin_step(replay *r, worker *w, double overhead)
{
    const weft_queue_run *j = &r->jobs[w->job];
    const double left = r->left[w->job],
                 step = j->first > 0 && left >= j->actual ? j->first : r->length[w->job];
    w->step = decides_at_steps(r) ? fmin(step, left) : left;
    w->passed = overhead + w->step;
    w->boundary = r->now + w->passed;
}

static void begin_job(replay *r, worker *w, int64_t job, double overhead)
{
    weft_queue_run *j = &r->jobs[job];
    w->job = job;
    r->active[find_active(r, job)].held = true;
    if (j->position < 0) {
        j->position = r->started++;
        j->start = r->now;
    }
    begin_step(r, w, overhead);
}

static weft_status ask(const replay *r, const worker *w, int64_t *job)
{
    const weft_queue_question q = {.rules = r->rules,
                                   .entries = r->active,
                                   .count = r->active_count,
                                   .held = w->job < 0 ? -1 : find_active(r, w->job),
                                   .used = r->used,
                                   .now = r->now};
    int64_t chosen;
    WEFT_TRY(weft_queue_choose(&q, &chosen));
    *job = chosen < 0 ? -1 : r->job_of[chosen];
    return WEFT_OK;
}

/* The end of a step: the job ends, continues, or is stopped for another. */
static weft_status end_step(replay *r, worker *w)
{
    weft_queue_run *j = &r->jobs[w->job];
    int64_t next = w->job;
    r->left[w->job] -= w->step;
    r->used[j->entry.owner] += w->passed;
    if (r->left[w->job] <= REST * (1 + j->actual)) {
        j->end = r->now;
        r->open -= w->job < r->wanted;
        remove_active(r, w->job);
        w->job = -1;
        return WEFT_OK;
    }
    weft_queue_entry *e = &r->active[find_active(r, w->job)];
    e->seconds = r->left[w->job]; /* a worker that steps is measured */
    if (r->changed || r->rules->policy == WEFT_QUEUE_FAIR)
        WEFT_TRY(ask(r, w, &next));
    if (next == w->job) {
        begin_step(r, w, 0);
        return WEFT_OK;
    }
    e->held = false;
    j->stops++;
    begin_job(r, w, next, r->rules->stop + r->rules->start);
    return WEFT_OK;
}

/* The job of an active entry with what remains: a worker's step ends at its boundary. */
static weft_queue_run present_run(const replay *r, int64_t at)
{
    const int64_t job = r->job_of[at];
    weft_queue_run run = r->jobs[job];
    double step = 0, rest = r->left[job];
    for (int64_t i = 0; i < r->rules->workers; i++)
        if (r->workers[i].job == job) {
            step = r->workers[i].boundary - r->now;
            rest -= r->workers[i].step;
        }
    run.entry = r->active[at];
    run.actual = step + rest;
    run.entry.seconds *= run.actual / r->left[job];
    run.first = step;
    run.steps = (step > 0) + (int64_t)round(rest / r->length[job]);
    run.steps += run.steps == 0;
    return run;
}

static weft_status show_arrival(replay *r, int64_t job)
{
    int64_t newest = find_active(r, job);
    for (int64_t i = 0; i < r->active_count; i++)
        r->present[i] = present_run(r, i);
    return r->watch->arrived(r->watch->context, r->present, r->active_count, newest, r->used,
                             r->now);
}

static weft_status admit(replay *r)
{
    while (r->arrived < r->count && r->jobs[r->arrivals[r->arrived]].entry.arrival <= r->now) {
        const int64_t job = r->arrivals[r->arrived++];
        add_active(r, job);
        r->changed = true;
        if (r->watch)
            WEFT_TRY(show_arrival(r, job));
    }
    return WEFT_OK;
}

static double next_event(const replay *r)
{
    double time = r->arrived < r->count ? r->jobs[r->arrivals[r->arrived]].entry.arrival : INFINITY;
    for (int64_t i = 0; i < r->rules->workers; i++)
        if (r->workers[i].job >= 0)
            time = fmin(time, r->workers[i].boundary);
    return time;
}

static weft_status fill_workers(replay *r)
{
    int64_t job = 0;
    for (int64_t i = 0; i < r->rules->workers && job >= 0; i++) {
        if (r->workers[i].job >= 0)
            continue;
        WEFT_TRY(ask(r, &r->workers[i], &job));
        if (job >= 0)
            begin_job(r, &r->workers[i], job, r->rules->start);
    }
    return WEFT_OK;
}

static weft_status run(replay *r)
{
    double time;
    WEFT_TRY(fill_workers(r));
    while (r->open > 0 && isfinite(time = next_event(r))) {
        r->now = time;
        WEFT_TRY(admit(r));
        bool all_asked = true;
        for (int64_t i = 0; i < r->rules->workers; i++) {
            worker *w = &r->workers[i];
            all_asked = all_asked && (w->job < 0 || w->boundary <= time);
            if (w->job >= 0 && w->boundary <= time)
                WEFT_TRY(end_step(r, w));
        }
        WEFT_TRY(fill_workers(r));
        r->changed = r->changed && !all_asked;
    }
    return WEFT_OK;
}

/* ---- start ---------------------------------------------------------------------------------- */

typedef struct arrival {
    double time;
    int64_t number, job;
} arrival;

static int compare_arrivals(const void *a, const void *b)
{
    const arrival *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static weft_status sort_arrivals(replay *r)
{
    arrival *list;
    WEFT_TRY(WEFT_NEW(list, r->count, "the order of %" PRId64 " jobs", r->count));
    for (int64_t i = 0; i < r->count; i++)
        list[i] = (arrival){r->jobs[i].entry.arrival, r->jobs[i].entry.number, i};
    qsort(list, (size_t)r->count, sizeof *list, compare_arrivals);
    for (int64_t i = 0; i < r->count; i++)
        r->arrivals[i] = list[i].job;
    weft_free(list);
    return WEFT_OK;
}

/* Jobs that a worker has already take their workers first. */
static weft_status start(replay *r)
{
    int64_t next = 0;
    for (int64_t i = 0; i < r->count; i++) {
        weft_queue_run *j = &r->jobs[i];
        r->left[i] = j->actual;
        r->length[i] = j->first > 0 && j->steps > 1
                           ? (j->actual - j->first) / (double)(j->steps - 1)
                           : j->actual / (double)(j->steps > 0 ? j->steps : 1);
        j->position = -1;
        j->stops = 0;
        j->start = j->end = r->now;
    }
    for (int64_t i = 0; i < r->rules->workers; i++)
        r->workers[i].job = -1;
    WEFT_TRY(sort_arrivals(r));
    WEFT_TRY(admit(r));
    for (int64_t i = 0; i < r->active_count && next < r->rules->workers; i++)
        if (r->active[i].held)
            begin_job(r, &r->workers[next++], r->job_of[i], 0);
    return WEFT_OK;
}

weft_status weft_queue_replay_first(const weft_queue_rules *rules, weft_queue_run *jobs,
                                    int64_t count, int64_t wanted, double *used, double now,
                                    const weft_queue_watch *watch)
{
    replay r = {.rules = rules,
                .jobs = jobs,
                .count = count,
                .used = used,
                .now = now,
                .wanted = wanted,
                .open = wanted,
                .watch = watch};
    weft_status_code status = WEFT_OK;
    if (count == 0)
        return WEFT_OK;
    WEFT_GO(WEFT_NEW(r.arrivals, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(r.active, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(r.job_of, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(r.left, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(r.length, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(r.workers, rules->workers, "%" PRId64 " workers", rules->workers));
    if (watch)
        WEFT_GO(WEFT_NEW(r.present, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(start(&r));
    WEFT_GO(run(&r));
out:
    weft_free(r.arrivals);
    weft_free(r.active);
    weft_free(r.job_of);
    weft_free(r.left);
    weft_free(r.length);
    weft_free(r.workers);
    weft_free(r.present);
    return status;
}

weft_status weft_queue_replay(const weft_queue_rules *rules, weft_queue_run *jobs, int64_t count,
                              double *used, double now)
{
    return weft_queue_replay_first(rules, jobs, count, count, used, now, NULL);
}

/* ---- bound ---------------------------------------------------------------------------------- */

/* Index of the job with the fewest seconds left; -1: all have ended. */
static int64_t find_shortest(const double *left, int64_t count)
{
    int64_t best = -1;
    for (int64_t i = 0; i < count; i++)
        if (left[i] > 0 && (best < 0 || left[i] < left[best]))
            best = i;
    return best;
}

weft_status weft_queue_least_mean(const weft_queue_run *jobs, int64_t count, double *mean)
{
    arrival *list;
    double *left, now = 0, sum = 0;
    int64_t arrived = 0, job = -1;
    weft_status_code status = WEFT_OK;
    *mean = 0;
    if (count == 0)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(list, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(left, count, "a queue of %" PRId64 " jobs", count));
    for (int64_t i = 0; i < count; i++)
        list[i] = (arrival){jobs[i].entry.arrival, jobs[i].entry.number, i};
    qsort(list, (size_t)count, sizeof *list, compare_arrivals);
    while (arrived < count || job >= 0) {
        const double next = arrived < count ? list[arrived].time : INFINITY;
        if (job >= 0 && now + left[job] <= next) {
            now += left[job];
            sum += now - list[job].time;
            left[job] = 0;
        } else {
            if (job >= 0)
                left[job] -= next - now;
            now = next;
            left[arrived] = jobs[list[arrived].job].actual;
            arrived++;
        }
        job = find_shortest(left, arrived);
    }
    *mean = sum / (double)count;
out:
    weft_free(left);
    weft_free(list);
    return status;
}
