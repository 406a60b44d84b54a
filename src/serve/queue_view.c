#include "serve/queue_view.h"

#include "plan/queue/queue_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds after which forecasts are computed again, and by which a progress may deviate. */
#define FORECAST_SECONDS 1.0

/* ---- forecasts ------------------------------------------------------------------------------ */

/* Jobs of a queue whose forecast has a decision after each step; others are predicted as if every
 * job had one step. */
enum { STEPPED_JOBS = 128 };

/* All jobs have arrived, also one that was accepted after the moment. */
static weft_queue_run run_of(const weft_queue_view *v, const weft_queue_entry *e)
{
    const int64_t waits = v->count < STEPPED_JOBS ? e->steps : 1,
                  steps = e->held && v->moment.steps > 0 ? v->moment.steps : waits;
    weft_queue_run run = {.entry = *e, .actual = e->seconds, .steps = steps > 0 ? steps : 1};
    if (e->held && v->moment.step > 0)
        run.first = fmin(v->moment.step, run.actual);
    run.entry.arrival = fmin(e->arrival, v->moment.now);
    return run;
}

/* Jobs like the past ones come as often as these did. */
static weft_queue_past past_of(const weft_queue_view *v)
{
    const int64_t count = v->past_count;
    weft_queue_past past = {v->past, count, 0};
    if (count)
        past.gap = weft_queue_past_gap(v->past, count, v->past[count - 1].entry.arrival,
                                       v->moment.now, v->moment.rules->workers);
    return past;
}

/* Replays the queue, and predicts each job by its futures. runs, outlooks: [count]. */
static weft_status foresee(const weft_queue_view *v, weft_queue_run *runs, int64_t count,
                           weft_queue_outlook *outlooks)
{
    const weft_queue_rules *rules = v->moment.rules;
    const weft_queue_past past = past_of(v);
    const int64_t owners = v->owners.count + 1,
                  futures = weft_queue_futures_of(rules, count, &past);
    double *used;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(used, owners, "%" PRId64 " owners", owners));
    if (v->owners.count)
        memcpy(used, v->owners.used, (size_t)v->owners.count * sizeof *used);
    if (futures)
        WEFT_GO(weft_queue_foresee(rules, runs, count, used, owners, v->moment.now, &past, futures,
                                   outlooks));
    WEFT_GO(weft_queue_replay(rules, runs, count, used, v->moment.now));
    for (int64_t i = 0; i < count && !futures; i++)
        outlooks[i] = (weft_queue_outlook){runs[i].start, runs[i].end, runs[i].end, runs[i].end, 1};
out:
    weft_free(used);
    return status;
}

/* Predicts the queue, with one more job if `last` is not NULL. forecasts: [count], and one more
 * with `last`. */
static weft_status predict_all(const weft_queue_view *v, const weft_queue_entry *last,
                               int64_t owner, weft_queue_forecast *forecasts)
{
    const int64_t count = v->count + (last != NULL);
    weft_queue_run *runs;
    weft_queue_outlook *outlooks = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(runs, count, "the forecast of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(outlooks, count, "the forecast of %" PRId64 " jobs", count));
    for (int64_t i = 0; i < v->count; i++)
        runs[i] = run_of(v, &v->entries[i]);
    if (last) {
        runs[v->count] = run_of(v, last);
        runs[v->count].entry.owner = owner;
    }
    WEFT_GO(foresee(v, runs, count, outlooks));
    for (int64_t i = 0; i < count; i++)
        forecasts[i] =
            (weft_queue_forecast){runs[i].position, runs[i].start, runs[i].end, outlooks[i]};
out:
    weft_free(outlooks);
    weft_free(runs);
    return status;
}

/* ---- view ----------------------------------------------------------------------------------- */

/* Moves the jobs of a batch but the first from the entries to the mates: one worker has them. */
static weft_status take_mates(weft_queue_view *v)
{
    int64_t held = 0;
    while (held < v->count && v->entries[held].held)
        held++;
    if (held < 2)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(v->mates, held - 1, "a batch of %" PRId64 " jobs", held));
    for (int64_t i = 1; i < held; i++)
        v->mates[v->mate_count++] = v->entries[i].number;
    memmove(v->entries + 1, v->entries + held, (size_t)(v->count - held) * sizeof *v->entries);
    v->count -= held - 1;
    return WEFT_OK;
}

/* The past jobs, with the seconds that the server expects of such a job now. */
static weft_status read_past(weft_queue_view *v, weft_queue_store *store,
                             const weft_queue_moment *m)
{
    weft_queue_entry past[WEFT_QUEUE_PAST];
    WEFT_TRY(weft_queue_store_past(store, m->now - WEFT_QUEUE_DAY, WEFT_QUEUE_PAST, past,
                                   &v->past_count));
    WEFT_TRY(WEFT_NEW(v->past, WEFT_QUEUE_PAST, "the past of the queue"));
    for (int64_t i = 0; i < v->past_count; i++) {
        past[i].seconds = fmax(0, past[i].seconds * v->pace + m->finish);
        v->past[i] = (weft_queue_run){.entry = past[i],
                                      .actual = past[i].seconds,
                                      .steps = past[i].steps > 0 ? past[i].steps : 1};
    }
    return WEFT_OK;
}

/* The seconds of the first jobs by their ranks. */
static weft_status read_sizes(weft_queue_view *v, weft_queue_store *store,
                              const weft_share_moment *m)
{
    weft_queue_job job;
    bool found;
    WEFT_TRY(WEFT_NEW(v->sizes, WEFT_SHARE_JOBS, "the forecast of %d jobs", WEFT_SHARE_JOBS));
    for (int64_t i = 0; i < v->count && i < WEFT_SHARE_JOBS; i++) {
        WEFT_TRY(weft_queue_store_at(store, v->entries[i].number, &job, &found));
        if (!found)
            continue;
        weft_share_size(&job, m->elastic, m->table, m->ranks, &v->sizes[i]);
        weft_queue_job_free(&job);
    }
    return WEFT_OK;
}

/* The past jobs, which could have any ranks. A job that was deleted since is missing. */
static weft_status read_past_sizes(weft_queue_view *v, weft_queue_store *store,
                                   const weft_share_moment *m)
{
    weft_queue_job job;
    bool found;
    int64_t count = 0;
    WEFT_TRY(WEFT_NEW(v->past_sizes, WEFT_QUEUE_PAST, "the past of the queue"));
    WEFT_TRY(WEFT_NEW(v->past_jobs, WEFT_QUEUE_PAST, "the past of the queue"));
    for (int64_t i = 0; i < v->past_count; i++) {
        const weft_queue_entry *e = &v->past[i].entry;
        WEFT_TRY(weft_queue_store_at(store, e->number, &job, &found));
        if (!found)
            continue;
        job.remaining = 0; /* as it was accepted */
        weft_share_size(&job, true, m->table, m->ranks, &v->past_sizes[count]);
        weft_queue_job_free(&job);
        v->past_jobs[count] = (weft_elastic_job){.size = &v->past_sizes[count],
                                                 .arrival = e->arrival,
                                                 .deadline = e->deadline,
                                                 .priority = e->priority};
        count++;
    }
    v->past_count = count;
    return WEFT_OK;
}

static weft_status read_jobs(weft_queue_view *v, weft_queue_store *store,
                             const weft_queue_moment *m)
{
    const int64_t version = weft_queue_store_version(store);
    weft_queue_view_free(v);
    WEFT_TRY(weft_queue_store_waiting(store, &v->entries, &v->count));
    if (!m->share)
        WEFT_TRY(take_mates(v));
    WEFT_TRY(weft_queue_store_owners(store, m->now - WEFT_QUEUE_DAY, &v->owners));
    WEFT_TRY(WEFT_NEW(v->forecasts, v->count, "the forecast of %" PRId64 " jobs", v->count));
    v->pace = m->pace > 0 ? m->pace : 1;
    for (int64_t i = 0; i < v->count; i++)
        v->entries[i].seconds *= v->pace;
    if (v->count) {
        v->first_seconds = m->first > 0 ? m->first * v->pace : v->entries->seconds;
        v->first_used = v->owners.used[v->entries->owner];
    }
    for (int64_t i = 0; i < v->count; i++)
        v->entries[i].seconds = fmax(0, v->entries[i].seconds + m->finish);
    WEFT_TRY(read_past(v, store, m));
    if (m->share) {
        WEFT_TRY(read_sizes(v, store, m->share));
        WEFT_TRY(read_past_sizes(v, store, m->share));
    }
    v->version = version;
    return WEFT_OK;
}

/* Whether the running job ends when its last progress said, within FORECAST_SECONDS. */
static bool confirms(const weft_queue_moment *m, const weft_queue_moment *last)
{
    return m->left >= 0 && last->left >= 0 &&
           fabs(m->now + m->left - last->now - last->left) < FORECAST_SECONDS;
}

weft_status weft_queue_view_update(weft_queue_view *v, weft_queue_store *store,
                                   const weft_queue_moment *m)
{
    if (!v->version || v->version != weft_queue_store_version(store))
        WEFT_TRY(read_jobs(v, store, m));
    else if ((m->share || v->moment.version == m->version || confirms(m, &v->moment)) &&
             m->now < v->moment.now + FORECAST_SECONDS && m->now >= v->moment.now)
        return WEFT_OK;
    v->moment = *m;
    if (v->count && v->entries->held && !m->share) {
        const double finish = m->finish * (double)(1 + v->mate_count),
                     rest = m->rules->start + v->first_seconds - m->elapsed;
        v->entries->seconds = fmax(0, (m->left >= 0 ? m->left : rest) + finish);
        v->owners.used[v->entries->owner] = v->first_used + m->elapsed;
    }
    if (!v->count)
        return WEFT_OK;
    return m->share ? weft_share_predict(v, NULL, NULL, v->forecasts)
                    : predict_all(v, NULL, 0, v->forecasts);
}

const weft_queue_forecast *weft_queue_view_find(const weft_queue_view *v, int64_t number)
{
    for (int64_t i = 0; i < v->count; i++)
        if (v->entries[i].number == number)
            return &v->forecasts[i];
    for (int64_t i = 0; i < v->mate_count; i++)
        if (v->mates[i] == number)
            return &v->forecasts[0];
    return NULL;
}

static weft_status predict_shared(const weft_queue_view *v, const weft_queue_entry *last,
                                  const weft_elastic_size *size, weft_queue_forecast *forecast)
{
    weft_queue_forecast *all;
    WEFT_TRY(WEFT_NEW(all, v->count + 1, "the forecast of %" PRId64 " jobs", v->count + 1));
    const weft_status_code status = weft_share_predict(v, last, size, all);
    *forecast = all[v->count];
    weft_free(all);
    return status;
}

weft_status weft_queue_view_predict(const weft_queue_view *v, const weft_queue_entry *last,
                                    const char *owner, const weft_elastic_size *size,
                                    weft_queue_forecast *forecast)
{
    if (v->moment.share)
        return predict_shared(v, last, size, forecast);
    weft_queue_forecast *forecasts;
    int64_t at = 0;
    while (at < v->owners.count && strcmp(v->owners.name[at], owner) != 0)
        at++; /* a further owner has used nothing */
    WEFT_TRY(WEFT_NEW(forecasts, v->count + 1, "the forecast of %" PRId64 " jobs", v->count + 1));
    weft_queue_entry paced = *last;
    paced.number = paced.rank = WEFT_QUEUE_LATER - 1;
    paced.seconds = fmax(0, paced.seconds * v->pace + v->moment.finish);
    const weft_status_code status = predict_all(v, &paced, at, forecasts);
    *forecast = forecasts[v->count];
    weft_free(forecasts);
    return status;
}

weft_status weft_queue_view_choose(const weft_queue_view *v, int64_t *number)
{
    weft_queue_entry *sorted;
    int64_t chosen = -1;
    *number = 0;
    if (!v->count)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(sorted, v->count, "the order of %" PRId64 " jobs", v->count));
    memcpy(sorted, v->entries, (size_t)v->count * sizeof *sorted);
    qsort(sorted, (size_t)v->count, sizeof *sorted, weft_queue_deadlines_compare);
    weft_queue_question q = {v->moment.rules, sorted, v->count, -1, v->owners.used, v->moment.now};
    for (int64_t i = 0; i < v->count; i++)
        q.held = sorted[i].held ? i : q.held;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_queue_choose(&q, &chosen));
    if (chosen >= 0)
        *number = sorted[chosen].number;
out:
    weft_free(sorted);
    return status;
}

void weft_queue_view_free(weft_queue_view *v)
{
    weft_free(v->entries);
    weft_free(v->forecasts);
    weft_free(v->mates);
    weft_free(v->past);
    weft_free(v->sizes);
    weft_free(v->past_sizes);
    weft_free(v->past_jobs);
    weft_queue_owners_free(&v->owners);
    *v = (weft_queue_view){0};
}
