#include "serve/share_view.h"

#include "base/memory.h"
#include "plan/queue/elastic_replay.h"
#include "serve/job_layout.h"
#include "serve/queue_view.h"

#include <math.h>
#include <string.h>

/* Predicted seconds of a request on ranks; 0: not known. */
static double seconds_on(const json_t *request, int64_t ranks)
{
    const json_t *degree = weft_job_layout_degree(request, ranks);
    return json_number_value(json_object_get(degree, "seconds"));
}

/* The ranks that the job must have; 0: any of its degrees. */
static int64_t ranks_to_keep(const weft_queue_job *job, const json_t *request, bool elastic)
{
    return job->started > 0 && !elastic ? json_integer_value(json_object_get(request, "ranks")) : 0;
}

void weft_share_size(const weft_queue_job *job, bool elastic, double pace, double finish,
                     int64_t all, weft_elastic_size *size)
{
    json_t *request = json_loads(job->request, 0, NULL);
    const double given = json_number_value(json_object_get(request, "steps")),
                 steps = given >= 1 ? given : 1,
                 left = job->remaining > 0 && job->seconds > 0 ? job->remaining / job->seconds : 1;
    const int64_t kept = ranks_to_keep(job, request, elastic);
    bool found = false;
    *size = (weft_elastic_size){.steps = (int64_t)fmax(1, round(steps * left)),
                                .decode = fmax(0, finish)};
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++) {
        const double seconds = seconds_on(request, 1 << k);
        const bool can = seconds > 0 && 1 << k <= all && (!kept || kept == 1 << k);
        size->step[k] = can ? pace * seconds / steps : INFINITY;
        found = found || can;
    }
    int largest = 0;
    while (largest + 1 < WEFT_ELASTIC_DEGREES && 2 << largest <= all)
        largest++;
    if (!found)
        size->step[largest] = pace * fmax(job->seconds, 1e-9) / steps;
    json_decref(request);
}

/* ---- entries -------------------------------------------------------------------------------- */

/* The state of a job that a worker has; NULL: it waits. */
static const weft_share_held *held_of(const weft_share_moment *m, int64_t number)
{
    for (int i = 0; i < m->count; i++)
        if (m->held[i].number == number)
            return &m->held[i];
    return NULL;
}

/* Jobs of a decision. */
static int64_t count_of(const weft_queue_view *v)
{
    return v->count < WEFT_SHARE_JOBS ? v->count : WEFT_SHARE_JOBS;
}

static weft_elastic_entry entry_of(const weft_queue_view *v, int64_t i)
{
    const weft_queue_entry *e = &v->entries[i];
    const weft_share_held *held = held_of(v->moment.share, e->number);
    weft_elastic_entry made = {.size = &v->sizes[i],
                               .arrival = e->arrival,
                               .deadline = e->deadline,
                               .priority = e->priority,
                               .steps = v->sizes[i].steps};
    if (held || e->held) {
        made.busy = true;
        made.steps = -1;
        made.degree = held ? held->ranks : 0;
        made.until = v->moment.share->now + (held ? held->left : 0);
    }
    return made;
}

/* Memory of a decision. */
typedef struct decision {
    weft_elastic_entry *entries;
    int64_t *degrees;
    weft_elastic_work work;
    weft_elastic_question question;
} decision;

static void free_decision(decision *d)
{
    weft_free(d->entries);
    weft_free(d->degrees);
    weft_elastic_work_free(&d->work);
}

static weft_status make_decision(const weft_queue_view *v, decision *d)
{
    const weft_share_moment *m = v->moment.share;
    const int64_t count = count_of(v);
    int64_t idle = m->ranks;
    *d = (decision){0};
    WEFT_TRY(WEFT_NEW(d->entries, count, "the order of %" PRId64 " jobs", count));
    WEFT_TRY(WEFT_NEW(d->degrees, count, "the order of %" PRId64 " jobs", count));
    WEFT_TRY(weft_elastic_work_create(count, &d->work));
    for (int64_t i = 0; i < count; i++)
        d->entries[i] = entry_of(v, i);
    for (int i = 0; i < m->count; i++)
        idle -= m->held[i].ranks;
    d->question = (weft_elastic_question){.entries = d->entries,
                                          .count = count,
                                          .devices = m->ranks,
                                          .idle = idle > 0 ? idle : 0,
                                          .now = m->now,
                                          .change = m->change};
    return WEFT_OK;
}

static void decide(const weft_share_moment *m, decision *d)
{
    weft_elastic_choose(m->elastic ? WEFT_ELASTIC_WEFT : WEFT_ELASTIC_START, &d->question, &d->work,
                        d->degrees);
}

weft_status weft_share_choose(const weft_queue_view *v, weft_share_choice *choices, int *count)
{
    decision d = {0};
    weft_status_code status = WEFT_OK;
    *count = 0;
    if (!v->count)
        return WEFT_OK;
    WEFT_GO(make_decision(v, &d));
    decide(v->moment.share, &d);
    for (int64_t i = 0; i < d.question.count && *count < WEFT_SHARE_RANKS; i++)
        if (d.degrees[i] > 0)
            choices[(*count)++] = (weft_share_choice){v->entries[i].number, d.degrees[i]};
out:
    free_decision(&d);
    return status;
}

weft_status weft_share_resize(const weft_queue_view *v, int64_t number, int64_t *ranks)
{
    const weft_share_held *held = held_of(v->moment.share, number);
    decision d = {0};
    weft_status_code status = WEFT_OK;
    *ranks = held ? held->ranks : 0;
    if (!held || held->steps < 1)
        return WEFT_OK;
    WEFT_GO(make_decision(v, &d));
    weft_elastic_size size;
    for (int64_t i = 0; i < d.question.count; i++) {
        if (v->entries[i].number != number)
            continue;
        size = v->sizes[i];
        size.steps = held->steps;
        d.entries[i].size = &size;
        d.entries[i].busy = false;
        d.entries[i].steps = held->steps;
        d.question.idle += held->ranks;
        decide(v->moment.share, &d);
        *ranks = d.degrees[i];
        break;
    }
out:
    free_decision(&d);
    return status;
}

/* ---- forecasts ------------------------------------------------------------------------------ */

/* No steps remain: a held job ends with its step. */
static const weft_elastic_size no_steps = {.steps = 0};

static weft_elastic_job job_of(const weft_queue_view *v, const weft_queue_entry *e,
                               const weft_elastic_size *size)
{
    const weft_share_held *held = held_of(v->moment.share, e->number);
    weft_elastic_job job = {
        .size = size, .arrival = v->moment.now, .deadline = e->deadline, .priority = e->priority};
    job.waited = fmax(0, v->moment.now - e->arrival);
    if (held || e->held) {
        job.size = &no_steps;
        job.held = held ? held->ranks : 1;
        job.busy = held ? held->left : 0;
    }
    return job;
}

/* A forecast without a future. */
static weft_queue_forecast sure(int64_t position, double start, double end)
{
    return (weft_queue_forecast){position, start, end, {start, end, end, end, 1}};
}

weft_status weft_share_predict(const weft_queue_view *v, const weft_queue_entry *last,
                               const weft_elastic_size *size, weft_queue_forecast *forecasts)
{
    const weft_share_moment *m = v->moment.share;
    const int64_t exact = count_of(v), all = v->count + (last != NULL),
                  count = last && exact == v->count ? exact + 1 : exact;
    const weft_elastic_rules rules = {.policy = WEFT_ELASTIC_START,
                                      .devices = m->ranks,
                                      .change = m->change,
                                      .workers = m->idle,
                                      .warm = m->warm};
    weft_elastic_job *jobs;
    double end = v->moment.now;
    WEFT_TRY(WEFT_NEW(jobs, count, "the forecast of %" PRId64 " jobs", count));
    for (int64_t i = 0; i < count; i++)
        jobs[i] = i < exact ? job_of(v, &v->entries[i], &v->sizes[i]) : job_of(v, last, size);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_elastic_replay(&rules, jobs, count, NULL));
    for (int64_t i = 0; i < all; i++) {
        if (i < count) {
            forecasts[i] = sure(jobs[i].order, jobs[i].start, jobs[i].end);
            end = fmax(end, jobs[i].end);
            continue;
        }
        const double start = end; /* after the last exact one, on all ranks */
        end += i < v->count ? v->entries[i].seconds : last->seconds;
        forecasts[i] = sure(i, start, end);
    }
out:
    weft_free(jobs);
    return status;
}
