#include "serve/share_view.h"

#include "base/memory.h"
#include "plan/queue/elastic_futures.h"
#include "serve/job_layout.h"
#include "serve/queue_view.h"

#include <math.h>
#include <string.h>

/* Seconds between two decisions about a job whose ranks can change: the time between two reports
 * of its worker. */
#define DECISION_SECONDS 0.25

int weft_share_degree(int64_t ranks)
{
    int k = 0;
    while (k + 1 < WEFT_ELASTIC_DEGREES && 1 << k < ranks)
        k++;
    return k;
}

static double steps_of(const json_t *request)
{
    const double given = json_number_value(json_object_get(request, "steps"));
    return given >= 1 ? given : 1;
}

/* Predicted seconds of the steps of a request on ranks; 0: not known. */
static double seconds_on(const json_t *request, int64_t ranks, double *decode)
{
    const json_t *degree = weft_job_layout_degree(request, ranks);
    const double all = json_number_value(json_object_get(degree, "seconds"));
    *decode = json_number_value(json_object_get(degree, "decode_seconds"));
    return all > *decode ? all - *decode : all;
}

double weft_share_step_price(const weft_queue_job *job, int64_t ranks)
{
    json_t *request = json_loads(job->request, 0, NULL);
    double decode;
    const double step = seconds_on(request, ranks, &decode) / steps_of(request);
    json_decref(request);
    return step;
}

/* The ranks that the job must have; 0: any of its degrees. */
static int64_t ranks_to_keep(const weft_queue_job *job, const json_t *request, bool elastic)
{
    return job->started > 0 && !elastic ? json_integer_value(json_object_get(request, "ranks")) : 0;
}

void weft_share_size(const weft_queue_job *job, bool elastic, const weft_rank_table *table,
                     int64_t all, weft_elastic_size *size)
{
    static const weft_rank_table unknown;
    json_t *request = json_loads(job->request, 0, NULL);
    const double steps = steps_of(request),
                 left = job->remaining > 0 && job->seconds > 0 ? job->remaining / job->seconds : 1;
    const int64_t kept = ranks_to_keep(job, request, elastic);
    const int largest = weft_share_degree(all / 2 + 1); /* that fits in `all` */
    bool found = false;
    *size = (weft_elastic_size){.steps = (int64_t)fmax(1, round(steps * left))};
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++) {
        double decode;
        const double price = seconds_on(request, 1 << k, &decode);
        const bool can = price > 0 && 1 << k <= all && (!kept || kept == 1 << k);
        const weft_rank_seconds s = weft_rank_table_of(table ? table : &unknown, k);
        size->step[k] = can ? weft_rank_seconds_of(&s, price, steps, 0) / steps : INFINITY;
        if (can && !found)
            size->decode = decode * s.ending;
        found = found || can;
    }
    if (!found) {
        const weft_rank_seconds s = weft_rank_table_of(table ? table : &unknown, largest);
        size->step[largest] = weft_rank_seconds_of(&s, fmax(job->seconds, 1e-9), steps, 0) / steps;
    }
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

/* Seconds of the steps of a job per second alone, while the other jobs run. */
static double slowness_beside(const weft_share_moment *m, const weft_share_held *held)
{
    const double slowness = m->slowness[weft_share_degree(held->ranks)];
    int64_t busy = 0;
    for (int i = 0; i < m->count; i++)
        busy += m->held[i].ranks;
    const int64_t others = m->ranks - held->ranks;
    return slowness > 1 && others > 0
               ? 1 + (slowness - 1) * (double)(busy - held->ranks) / (double)others
               : 1;
}

/* A running job whose ranks can change: its steps remain. *size: of the job; receives its measured
 * pace. */
static void set_elastic(const weft_share_moment *m, const weft_share_held *held,
                        weft_elastic_job *job, weft_elastic_size *size)
{
    const double alone = size->step[weft_share_degree(held->ranks)];
    if (held->steps > 0 && isfinite(alone)) {
        const double step = fmax(0, held->left - size->decode) / (double)held->steps,
                     ratio = step / (alone * slowness_beside(m, held));
        for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++)
            size->step[k] *= ratio > 0.1 ? ratio : 1;
        size->steps = held->steps;
        job->busy = 0;
    } else if (held->steps == 0 && isfinite(alone)) {
        job->busy = fmax(0, held->left - (double)size->steps * alone - size->decode);
    } else {
        size->steps = 0;
    }
}

/* *size: of the job; a held one ends with its step, unless its ranks can change. */
static weft_elastic_job job_of(const weft_queue_view *v, const weft_queue_entry *e,
                               weft_elastic_size *size)
{
    const weft_share_moment *m = v->moment.share;
    const weft_share_held *held = held_of(m, e->number);
    weft_elastic_job job = {
        .size = size, .arrival = v->moment.now, .deadline = e->deadline, .priority = e->priority};
    job.waited = fmax(0, v->moment.now - e->arrival);
    if (!held && !e->held)
        return job;
    job.held = held ? held->ranks : 1;
    job.busy = held ? held->left : 0;
    if (held && m->elastic)
        set_elastic(m, held, &job, size);
    else
        size->steps = 0;
    return job;
}

static weft_elastic_rules rules_of(const weft_share_moment *m)
{
    return (weft_elastic_rules){.policy = m->elastic ? WEFT_ELASTIC_WEFT : WEFT_ELASTIC_START,
                                .devices = m->ranks,
                                .change = m->change,
                                .starts = &m->starts,
                                .interval = DECISION_SECONDS,
                                .whole = true};
}

/* Replays the jobs, and predicts each by its futures. outlooks: [count]. */
static weft_status foresee(const weft_queue_view *v, weft_elastic_job *jobs, int64_t count,
                           weft_queue_outlook *outlooks)
{
    const weft_share_moment *m = v->moment.share;
    weft_elastic_rules rules = rules_of(m);
    weft_elastic_past past = {v->past_jobs, v->past_count, 0};
    double crowded[WEFT_ELASTIC_DEGREES];
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++)
        crowded[k] = m->slowness[k] > 1 ? m->slowness[k] : 1;
    rules.crowded = crowded;
    if (past.jobs && past.count)
        past.gap = weft_elastic_past_gap(past.jobs, past.count, past.jobs[past.count - 1].arrival,
                                         v->moment.now, m->ranks);
    const int64_t futures = weft_elastic_futures_of(&rules, count, &past);
    if (futures)
        WEFT_TRY(
            weft_elastic_foresee(&rules, jobs, count, v->moment.now, &past, futures, outlooks));
    WEFT_TRY(weft_elastic_replay(&rules, jobs, count, NULL));
    for (int64_t i = 0; i < count && !futures; i++)
        outlooks[i] = (weft_queue_outlook){jobs[i].start, jobs[i].end, jobs[i].end, jobs[i].end, 1};
    return WEFT_OK;
}

/* A forecast without a future. */
static weft_queue_forecast sure(int64_t position, double start, double end)
{
    return (weft_queue_forecast){position, start, end, {start, end, end, end, 1}};
}

weft_status weft_share_predict(const weft_queue_view *v, const weft_queue_entry *last,
                               const weft_elastic_size *size, weft_queue_forecast *forecasts)
{
    const int64_t exact = count_of(v), all = v->count + (last != NULL),
                  count = last && exact == v->count ? exact + 1 : exact;
    weft_elastic_job *jobs;
    weft_elastic_size *sizes = NULL;
    weft_queue_outlook *outlooks = NULL;
    double end = v->moment.now;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(jobs, count, "the forecast of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(sizes, count, "the forecast of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(outlooks, count, "the forecast of %" PRId64 " jobs", count));
    for (int64_t i = 0; i < count; i++) {
        sizes[i] = i < exact ? v->sizes[i] : *size;
        jobs[i] = job_of(v, i < exact ? &v->entries[i] : last, &sizes[i]);
    }
    WEFT_GO(foresee(v, jobs, count, outlooks));
    for (int64_t i = 0; i < all; i++) {
        if (i < count) {
            forecasts[i] =
                (weft_queue_forecast){jobs[i].order, jobs[i].start, jobs[i].end, outlooks[i]};
            end = fmax(end, jobs[i].end);
            continue;
        }
        const double start = end; /* after the last exact one, on all ranks */
        end += i < v->count ? v->entries[i].seconds : last->seconds;
        forecasts[i] = sure(i, start, end);
    }
out:
    weft_free(outlooks);
    weft_free(sizes);
    weft_free(jobs);
    return status;
}
