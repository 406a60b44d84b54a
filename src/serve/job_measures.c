#include "serve/job_measures.h"

#include "base/log.h"

#include <math.h>

/* ---- shared ranks --------------------------------------------------------------------------- */

/* Fewest steps that are measured. */
enum { LEAST_STEPS = 6 };

static weft_rank_seconds *seconds_of(const weft_supervisor *v)
{
    return &v->server->learned.ranks.at[weft_share_degree(v->group->ranks)];
}

double weft_job_measure_expected_start(const weft_supervisor *v)
{
    const weft_rank_seconds known =
        weft_rank_table_of(&v->server->learned.ranks, weft_share_degree(v->group->ranks));
    return v->cold ? known.cold : known.warm;
}

/* The start of a job whose first step has ended. */
static void measure_shared_start(const weft_supervisor *v, double elapsed)
{
    const weft_served_group *g = v->group;
    const int64_t steps = weft_job_steps(&g->progress) - g->progress.first + 1;
    weft_rank_seconds *r = seconds_of(v);
    const double seconds = fmax(0, elapsed - g->stepping / (double)(steps > 0 ? steps : 1));
    weft_rank_mean_add(v->cold ? &r->cold : &r->warm, v->cold ? &r->colds : &r->warms, seconds);
}

void weft_job_measure_steps(weft_supervisor *v)
{
    const weft_served_group *g = v->group;
    const int64_t steps = weft_job_steps(&g->progress),
                  done = g->progress.done < steps ? g->progress.done : steps;
    const double now = weft_now(),
                 crowd_seconds = g->crowd_seconds + g->crowd * (now - g->crowd_at);
    if (v->reports[0].done == done)
        return;
    v->reports[1] = (struct weft_step_report){now, crowd_seconds, done};
    if (!v->reports[0].done)
        v->reports[0] = v->reports[1];
}

void weft_job_measure_shared_end(const weft_supervisor *v)
{
    const struct weft_step_report *first = &v->reports[0], *last = &v->reports[1];
    weft_rank_seconds *r = seconds_of(v);
    const double seconds = last->at - first->at;
    const int64_t steps = last->done - first->done;
    if (!first->done || seconds <= 0)
        return;
    if (steps >= LEAST_STEPS)
        weft_rank_seconds_add(
            r, &(weft_rank_run){.predicted = v->group->step_price * (double)steps,
                                .steps = (double)steps,
                                .crowd = (last->crowd_seconds - first->crowd_seconds) / seconds,
                                .actual = seconds,
                                .cold = v->cold});
    if (v->denoised > 0 && v->group->decode > 0)
        weft_rank_mean_add(&r->ending, &r->endings, (weft_now() - v->denoised) / v->group->decode);
}

void weft_job_measure_retired(const weft_supervisor *v)
{
    weft_rank_mean_add(&v->server->learned.retire, &v->server->learned.retires,
                       weft_now() - v->retiring);
}

/* ---- one worker --------------------------------------------------------------------------- */

double weft_job_measure_remaining(const weft_supervisor *v)
{
    const weft_server *s = v->server;
    const weft_served_group *g = v->group;
    const double pace = s->learned.pace > 0 ? s->learned.pace : 1,
                 scale = g->scale > 0 ? g->scale : 1;
    if (s->shares && g->progress.total > 0)
        return scale *
               (fmax(0, (double)(weft_job_steps(&g->progress) - g->progress.done)) * g->step_price +
                g->decode);
    const double left = fmax(0, weft_job_seconds_left(&g->progress, pace * g->decode));
    return scale * left / pace / g->batch.count;
}

/* Seconds that the running jobs were expected to take, by the pace. */
static double expected_of(const weft_supervisor *v)
{
    const double pace = v->server->learned.pace;
    return v->group->batch.seconds * (pace > 0 ? pace : 1);
}

/* Compares the measured seconds of finished jobs with the predicted ones. The steps have a pace,
 * and the end has seconds that hardly depend on the number of steps. Only a run with all steps,
 * which has a measured start, is compared. The first job of a worker is slower, and counts only
 * while no other one is measured. */
void weft_job_measure_end(const weft_supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    const double now = weft_now(), decode = (s->learned.pace > 0 ? s->learned.pace : 1) * g->decode;
    if (v->start < 0 || g->progress.first != 1 || v->denoised <= 0 || decode <= 0 ||
        (v->cold && s->learned.paced))
        return;
    s->learned.pace = weft_job_pace(s->learned.pace, expected_of(v) - decode,
                                    v->denoised - g->since - v->start, s->learned.paced);
    if (s->learned.pace > 0)
        s->learned.finish = weft_job_finish(
            s->learned.finish, (now - v->denoised - s->learned.pace * g->decode) / g->batch.count,
            s->learned.paced);
    s->learned.paced += !v->cold;
}

/* Seconds from the start of a job to its first step, as the mean of this start and the ones before.
 * The first job of a worker also waits for the process and the weights: its seconds count only
 * while no other start is known. */
void weft_job_measure_start(weft_supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    if (g->progress.total <= 0)
        return;
    if (s->shares)
        measure_shared_start(v, weft_now() - g->since);
    const double found =
        weft_job_start_seconds(&g->progress, weft_now() - g->since, expected_of(v), g->decode);
    v->start = found;
    if (!v->cold)
        s->learned.start = s->learned.starts++ ? 0.5 * (s->learned.start + found) : found;
    else if (!s->learned.starts)
        s->learned.start = found;
    if (v->cold)
        s->learned.cold = s->learned.cold > 0 ? 0.5 * (s->learned.cold + found) : found;
}

/* ---- batches -------------------------------------------------------------------------------- */

void weft_job_measure_batch(const weft_supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    weft_queue_job job;
    bool found = false;
    if (v->end.event != WEFT_QUEUE_FINISHED || g->progress.first != 1 || v->start < 0 ||
        weft_queue_store_find(s->store, g->running, &job, &found) != WEFT_OK || !found)
        return;
    json_t *request = json_loads(job.request, 0, NULL);
    if (request)
        weft_batch_measured(s, request, g->batch.count,
                            v->change.spent * g->batch.count - v->start);
    json_decref(request);
    weft_queue_job_free(&job);
}
