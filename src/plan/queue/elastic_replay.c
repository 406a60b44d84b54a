#include "plan/queue/elastic_replay.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lives as long as a replay. */
typedef struct replay {
    const weft_elastic_rules *rules;
    weft_elastic_job *jobs;
    int64_t count, arrived, wanted, open; /* open: of the wanted jobs */
    weft_elastic_entry *active;           /* by arrival */
    int64_t *job_of, *degrees;            /* of active */
    int64_t active_count, started;
    double now, used;
    double round; /* the next start of a round; 0: no rounds */
    weft_elastic_work work;
    int64_t idle[WEFT_ELASTIC_DEGREES]; /* workers without a job */
    double *slowness;                   /* by job: seconds per second alone; 0: not known yet */
    const weft_elastic_watch *watch;    /* NULL: none */
    weft_elastic_job *present;          /* of the watch, with sizes of their own */
    weft_elastic_size *sizes;
} replay;

static bool has_rounds(const replay *r)
{
    return r->rules->policy == WEFT_ELASTIC_TETRISERVE && r->rules->round > 0;
}

/* ---- workers -------------------------------------------------------------------------------- */

static int degree_index(int64_t degree)
{
    int k = 0;
    while (1 << k < degree)
        k++;
    return k;
}

/* Devices without a worker, before the job begins that is not busy yet. */
static int64_t free_devices(const replay *r)
{
    int64_t devices = r->rules->devices;
    for (int64_t i = 0; i < r->active_count; i++)
        devices -= r->active[i].busy ? r->active[i].degree : 0;
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++)
        devices -= r->idle[k] << k;
    return devices;
}

/* A job starts. Returns the seconds until its first step begins. */
static double start_worker(replay *r, int k)
{
    const weft_elastic_starts *s = r->rules->starts;
    if (!s)
        return r->rules->change;
    if (r->idle[k] > 0) {
        r->idle[k]--;
        return s->warm[k];
    }
    int64_t devices = free_devices(r);
    const double seconds = s->cold[k] + (devices < 1 << k ? s->retire : 0);
    for (int other = 0; other < WEFT_ELASTIC_DEGREES; other++)
        for (; devices < 1 << k && r->idle[other] > 0; devices += 1 << other)
            r->idle[other]--;
    return seconds;
}

/* ---- slowness ------------------------------------------------------------------------------- */

/* Seconds of a job per second alone, while others run. */
static double slowness_of(const replay *r, const weft_elastic_entry *e, int64_t busy)
{
    const int64_t others = r->rules->devices - e->degree;
    const double crowd = others > 0 ? (double)(busy - e->degree) / (double)others : 0;
    return 1 + crowd * (r->rules->crowded[degree_index(e->degree)] - 1);
}

/* Moves the ends of the steps that run to the present slowness. The ends of jobs that are held at
 * the begin have it already. */
static void set_slowness(replay *r)
{
    int64_t busy = 0;
    if (!r->rules->crowded)
        return;
    for (int64_t i = 0; i < r->active_count; i++)
        busy += r->active[i].busy ? r->active[i].degree : 0;
    for (int64_t i = 0; i < r->active_count; i++) {
        weft_elastic_entry *e = &r->active[i];
        double *known = &r->slowness[r->job_of[i]];
        if (!e->busy)
            continue;
        const double slowness = slowness_of(r, e, busy);
        if (*known > 0)
            e->until = r->now + (e->until - r->now) * slowness / *known;
        *known = slowness;
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static double next_event(const replay *r)
{
    double at = INFINITY;
    for (int64_t i = 0; i < r->active_count; i++)
        if (r->active[i].busy)
            at = fmin(at, r->active[i].until);
    if (r->arrived < r->count)
        at = fmin(at, r->jobs[r->arrived].arrival);
    if (has_rounds(r) && r->active_count)
        at = fmin(at, r->round);
    return at;
}

static void set_start(replay *r, weft_elastic_job *job)
{
    job->start = r->now;
    job->order = r->started++;
}

/* An active job with its remaining steps. The decoding counts to the last step, if it runs. */
static weft_elastic_job present_job(const replay *r, int64_t i, weft_elastic_size *size)
{
    const weft_elastic_entry *e = &r->active[i];
    weft_elastic_job job = r->jobs[r->job_of[i]];
    *size = *e->size;
    size->steps = e->steps > 0 ? e->steps : 0;
    job.size = size;
    job.waited = r->now - e->arrival;
    job.arrival = r->now;
    if (e->busy) {
        job.held = e->degree;
        job.busy = e->until - r->now + (e->steps == 0 ? size->decode : 0);
    }
    return job;
}

static weft_status show_arrival(const replay *r)
{
    for (int64_t i = 0; i < r->active_count; i++)
        r->present[i] = present_job(r, i, &r->sizes[i]);
    return r->watch->arrived(r->watch->context, r->present, r->active_count, r->active_count - 1,
                             r->now);
}

static weft_status arrive(replay *r)
{
    while (r->arrived < r->count && r->jobs[r->arrived].arrival <= r->now) {
        weft_elastic_job *j = &r->jobs[r->arrived];
        weft_elastic_entry *e = &r->active[r->active_count];
        *e = (weft_elastic_entry){.size = j->size,
                                  .arrival = j->arrival - j->waited,
                                  .deadline = j->deadline,
                                  .priority = j->priority,
                                  .steps = j->size->steps};
        if (j->held) {
            set_start(r, j);
            e->busy = true;
            e->degree = j->held;
            e->until = r->now + j->busy;
            e->steps = e->steps > 0 ? e->steps : -1;
            r->used += (double)j->held * j->busy;
        }
        r->job_of[r->active_count++] = r->arrived++;
        if (r->watch)
            WEFT_TRY(show_arrival(r));
    }
    return WEFT_OK;
}

/* Ends the steps whose time has come, and removes the jobs that are decoded. */
static void end_steps(replay *r)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < r->active_count; i++) {
        weft_elastic_entry *e = &r->active[i];
        bool ends = false;
        if (e->busy && e->until <= r->now) {
            e->busy = false;
            ends = e->steps < 0;
        }
        if (ends) {
            r->idle[degree_index(e->degree)] += r->rules->starts != NULL;
            r->jobs[r->job_of[i]].end = r->now;
            r->open -= r->job_of[i] < r->wanted;
            continue;
        }
        r->active[kept] = *e;
        r->job_of[kept++] = r->job_of[i];
    }
    r->active_count = kept;
}

/* Steps that a job does with its devices before the next decision. */
static int64_t steps_of(const replay *r, const weft_elastic_entry *e, double step, double change)
{
    int64_t steps = 1;
    if (weft_elastic_policy_keeps(r->rules->policy))
        return e->steps;
    if (has_rounds(r))
        steps = (int64_t)floor((r->round - r->now - change) / step + 1e-9);
    else if (r->rules->interval > 0)
        steps = (int64_t)ceil(r->rules->interval / step);
    return steps < 1 ? 1 : steps > e->steps ? e->steps : steps;
}

/* A job begins a step, or in rounds the steps of a round, or decodes. A job that keeps its devices
 * begins all steps, with the decoding. */
static void begin(replay *r, int64_t i, int64_t degree)
{
    weft_elastic_entry *e = &r->active[i];
    const int k = degree_index(degree);
    if (r->jobs[r->job_of[i]].order < 0)
        set_start(r, &r->jobs[r->job_of[i]]);
    if (e->degree && e->degree != degree && e->steps > 0)
        r->jobs[r->job_of[i]].resizes++;
    const double change = e->degree == degree || e->steps <= 0 ? 0
                          : e->degree                          ? r->rules->change
                                                               : start_worker(r, k);
    double seconds = e->size->decode;
    if (e->steps > 0) {
        const int64_t steps = steps_of(r, e, e->size->step[k], change);
        const bool ends =
            weft_elastic_policy_keeps(r->rules->policy) || (r->rules->whole && steps == e->steps);
        seconds = change + (double)steps * e->size->step[k] + (ends ? seconds : 0);
        e->steps = ends ? -1 : e->steps - steps;
    } else {
        e->steps = -1; /* decodes */
    }
    e->degree = degree;
    e->busy = true;
    e->until = r->now + seconds;
    r->slowness[r->job_of[i]] = 1;
    r->used += seconds * (double)degree;
}

static void decide(replay *r)
{
    weft_elastic_question q = {.entries = r->active,
                               .count = r->active_count,
                               .devices = r->rules->devices,
                               .idle = r->rules->devices,
                               .now = r->now,
                               .change = r->rules->change};
    bool waits = false;
    for (int64_t i = 0; i < r->active_count; i++) {
        q.idle -= r->active[i].busy ? r->active[i].degree : 0;
        waits = waits || !r->active[i].busy;
    }
    if (!waits)
        return;
    weft_elastic_choose(r->rules->policy, &q, &r->work, r->degrees);
    for (int64_t i = 0; i < r->active_count; i++) {
        weft_elastic_entry *e = &r->active[i];
        if (e->busy)
            continue;
        if (r->degrees[i] > 0) {
            begin(r, i, r->degrees[i]);
        } else if (e->degree) {
            r->jobs[r->job_of[i]].resizes++;
            e->degree = 0;
        }
    }
}

/* ---- rounds --------------------------------------------------------------------------------- */

/* Between rounds only decoding begins, on a device of its job. */
static bool may_decide(replay *r)
{
    if (!has_rounds(r))
        return true;
    if (r->now >= r->round) {
        r->round = r->now + r->rules->round;
        return true;
    }
    for (int64_t i = 0; i < r->active_count; i++)
        if (!r->active[i].busy && r->active[i].degree && r->active[i].steps == 0)
            begin(r, i, 1);
    return false;
}

static weft_status run(replay *r)
{
    while (r->open > 0) {
        r->now = next_event(r);
        WEFT_TRY(arrive(r));
        set_slowness(r);
        end_steps(r);
        if (may_decide(r))
            decide(r);
        set_slowness(r);
    }
    return WEFT_OK;
}

/* ---- scores --------------------------------------------------------------------------------- */

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median deviation from measured ends. errors: [count]. */
static double median_error(const replay *r, double *errors)
{
    int64_t count = 0;
    for (int64_t i = 0; i < r->count; i++) {
        const weft_elastic_job *j = &r->jobs[i];
        if (j->measured > j->arrival)
            errors[count++] = fabs(j->end - j->measured) / (j->measured - j->arrival);
    }
    qsort(errors, (size_t)count, sizeof *errors, compare_seconds);
    return count ? errors[count / 2] : -1;
}

static weft_status fill_score(const replay *r, weft_elastic_score *s)
{
    double *seconds, sum = 0;
    WEFT_TRY(WEFT_NEW(seconds, r->count, "the figures of %" PRId64 " jobs", r->count));
    *s = (weft_elastic_score){.policy = r->rules->policy, .jobs = r->count};
    for (int64_t i = 0; i < r->count; i++) {
        const weft_elastic_job *j = &r->jobs[i];
        seconds[i] = j->end - j->arrival;
        sum += seconds[i];
        s->resizes += j->resizes;
        s->deadlines += j->deadline > 0;
        s->met += j->deadline > 0 && j->end <= j->deadline;
    }
    qsort(seconds, (size_t)r->count, sizeof *seconds, compare_seconds);
    s->mean = sum / (double)r->count;
    s->p95 = seconds[(int64_t)ceil(0.95 * (double)r->count) - 1];
    s->p99 = seconds[(int64_t)ceil(0.99 * (double)r->count) - 1];
    s->error = median_error(r, seconds);
    s->used = r->used / ((double)r->rules->devices * r->now);
    weft_free(seconds);
    return WEFT_OK;
}

/* Runs the wanted jobs. `score`: NULL: no figures; `watch`: NULL: none. */
static weft_status replay_jobs(replay *r, weft_elastic_score *score)
{
    const int64_t count = r->count;
    weft_status_code status = WEFT_OK;
    if (r->rules->starts)
        memcpy(r->idle, r->rules->starts->idle, sizeof r->idle);
    for (int64_t i = 0; i < count; i++) {
        r->jobs[i].resizes = 0;
        r->jobs[i].order = -1;
    }
    WEFT_GO(WEFT_NEW(r->active, count, "a queue"));
    WEFT_GO(WEFT_NEW(r->job_of, count, "a queue"));
    WEFT_GO(WEFT_NEW(r->degrees, count, "a queue"));
    WEFT_GO(WEFT_NEW(r->slowness, count, "a queue"));
    WEFT_GO(weft_elastic_work_create(count, &r->work));
    if (r->watch) {
        WEFT_GO(WEFT_NEW(r->present, count, "a queue"));
        WEFT_GO(WEFT_NEW(r->sizes, count, "a queue"));
    }
    WEFT_GO(run(r));
    if (score)
        WEFT_GO(fill_score(r, score));
out:
    weft_free(r->active);
    weft_free(r->job_of);
    weft_free(r->degrees);
    weft_free(r->slowness);
    weft_free(r->present);
    weft_free(r->sizes);
    weft_elastic_work_free(&r->work);
    return status;
}

weft_status weft_elastic_replay(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                int64_t count, weft_elastic_score *score)
{
    replay r = {.rules = rules, .jobs = jobs, .count = count, .wanted = count, .open = count};
    return replay_jobs(&r, score);
}

weft_status weft_elastic_replay_first(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                      int64_t count, int64_t wanted,
                                      const weft_elastic_watch *watch)
{
    replay r = {.rules = rules,
                .jobs = jobs,
                .count = count,
                .wanted = wanted,
                .open = wanted,
                .watch = watch};
    return replay_jobs(&r, NULL);
}
