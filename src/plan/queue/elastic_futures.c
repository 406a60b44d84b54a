#include "plan/queue/elastic_futures.h"

#include "base/memory.h"
#include "base/rng.h"
#include "plan/queue/queue_futures.h"

#include <math.h>
#include <string.h>

/* Largest load of a future: with more work than devices, waits would have no end. */
#define MOST_LOAD 0.95
/* Later jobs of a future. */
#define LATER(count) (4 * (count) + 32)
/* Most pairs of jobs, which are the cost of a replay, of one prediction; and fewest futures. */
enum { PAIRS = 400000, LEAST = 4 };
/* Decisions about a job if its degree can change. */
enum { DECISIONS = 15 };
/* Futures of the bound of a trace. */
enum { BOUND_FUTURES = 100 };
/* Most pairs of jobs of all predictions of a trace: minutes. */
#define TRACE_PAIRS 1e11

/* Device seconds at the degree that needs the fewest. */
static double least_work(const weft_elastic_size *s)
{
    double least = INFINITY;
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++)
        least = fmin(least, (double)(1 << k) * ((double)s->steps * s->step[k] + s->decode));
    return least;
}

double weft_elastic_past_gap(const weft_elastic_job *jobs, int64_t count, double first, double now,
                             int64_t devices)
{
    double work = 0;
    for (int64_t i = 0; i < count; i++)
        work += least_work(jobs[i].size);
    if (count < WEFT_QUEUE_PAST_LEAST)
        return 0;
    return fmax(now - first, work / ((double)devices * MOST_LOAD)) / (double)count;
}

int64_t weft_elastic_futures_of(const weft_elastic_rules *rules, int64_t count,
                                const weft_elastic_past *past)
{
    const int64_t all = count + LATER(count) / 2,
                  decisions = weft_elastic_policy_keeps(rules->policy) ? 1 : DECISIONS,
                  most = PAIRS / decisions / (all * all);
    if (past->count < WEFT_QUEUE_PAST_LEAST || past->gap <= 0 || most < LEAST)
        return 0;
    return most > WEFT_QUEUE_FUTURES ? WEFT_QUEUE_FUTURES : most;
}

/* ---- futures -------------------------------------------------------------------------------- */

/* Memory of the futures of one prediction. */
typedef struct futures {
    weft_elastic_job *jobs; /* [count + later] present jobs, and later ones */
    double *starts, *ends;  /* [count][number] */
    int64_t number, later;  /* futures, and later jobs of each */
} futures;

static void free_futures(futures *f)
{
    weft_free(f->jobs);
    weft_free(f->starts);
    weft_free(f->ends);
}

static weft_status make_futures(int64_t count, int64_t number, futures *f)
{
    *f = (futures){.number = number ? number : 1, .later = number ? LATER(count) : 0};
    WEFT_TRY(WEFT_NEW(f->jobs, count + f->later, "a future of %" PRId64 " jobs", count));
    WEFT_TRY(WEFT_NEW(f->starts, count * f->number, "futures of %" PRId64 " jobs", count));
    return WEFT_NEW(f->ends, count * f->number, "futures of %" PRId64 " jobs", count);
}

/* A later job, like a past one. */
static weft_elastic_job later_job(const weft_elastic_job *like, double arrival)
{
    weft_elastic_job job = {.size = like->size, .arrival = arrival, .priority = like->priority};
    if (like->deadline > 0)
        job.deadline = arrival + like->deadline - like->arrival;
    return job;
}

/* Replays future `k`. Future k draws equal values at every time, so that a prediction changes by
 * what happens, and not by chance. */
static weft_status replay_future(const weft_elastic_rules *rules, const weft_elastic_job *jobs,
                                 int64_t count, double now, const weft_elastic_past *past,
                                 int64_t k, futures *f)
{
    weft_rng rng = weft_rng_make((uint64_t)k, WEFT_RNG_PLAN);
    double arrival = now;
    memcpy(f->jobs, jobs, (size_t)count * sizeof *jobs);
    for (int64_t i = 0; i < f->later; i++) {
        arrival -= past->gap * log(1 - weft_rng_f64(&rng));
        f->jobs[count + i] =
            later_job(&past->jobs[weft_rng_below(&rng, (uint64_t)past->count)], arrival);
    }
    WEFT_TRY(weft_elastic_replay_first(rules, f->jobs, count + f->later, count, NULL));
    for (int64_t i = 0; i < count; i++) {
        f->starts[i * f->number + k] = f->jobs[i].start;
        f->ends[i * f->number + k] = f->jobs[i].end;
    }
    return WEFT_OK;
}

weft_status weft_elastic_foresee(const weft_elastic_rules *rules, const weft_elastic_job *jobs,
                                 int64_t count, double now, const weft_elastic_past *past,
                                 int64_t number, weft_queue_outlook *outlooks)
{
    futures f;
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_futures(count, number, &f));
    for (int64_t k = 0; k < f.number; k++)
        WEFT_GO(replay_future(rules, jobs, count, now, past, k, &f));
    for (int64_t i = 0; i < count; i++)
        weft_queue_outlook_of(f.starts + i * f.number, f.ends + i * f.number, f.number, now,
                              &outlooks[i]);
out:
    free_futures(&f);
    return status;
}

/* ---- traces --------------------------------------------------------------------------------- */

/* Lives as long as the replay of a trace. */
typedef struct trace {
    const weft_elastic_rules *rules;
    const weft_elastic_job *jobs;
    int64_t arrived;
    double pairs;
    weft_elastic_past all;
    weft_queue_outlook *outlooks; /* [all.count] of the present jobs */
    weft_queue_judged *judged;    /* [all.count] of the jobs at their arrivals */
} trace;

static weft_status predict_arrival(void *context, const weft_elastic_job *present, int64_t count,
                                   int64_t newest, double now)
{
    trace *t = context;
    const int64_t at = t->arrived++, first = at > WEFT_QUEUE_PAST ? at - WEFT_QUEUE_PAST : 0;
    weft_elastic_past past = {t->jobs + first, at - first, 0};
    if (past.count)
        past.gap = weft_elastic_past_gap(past.jobs, past.count, past.jobs->arrival, now,
                                         t->rules->devices);
    const int64_t number = weft_elastic_futures_of(t->rules, count, &past);
    WEFT_TRY(weft_elastic_foresee(t->rules, present, count, now, &past, number, t->outlooks));
    t->judged[at].outlook = t->outlooks[newest];
    WEFT_TRY(
        weft_elastic_foresee(t->rules, present, count, now, &t->all, BOUND_FUTURES, t->outlooks));
    t->judged[at].bound = t->outlooks[newest].bound;
    return WEFT_OK;
}

/* Counts the cost of a prediction. A queue that grows without end is refused before it is
 * predicted. */
static weft_status count_pairs(void *context, const weft_elastic_job *present, int64_t count,
                               int64_t newest, double now)
{
    (void)present, (void)newest, (void)now;
    trace *t = context;
    const double all = (double)(count + LATER(count) / 2),
                 decisions = weft_elastic_policy_keeps(t->rules->policy) ? 1 : DECISIONS;
    t->pairs += BOUND_FUTURES * all * all * decisions;
    if (t->pairs <= TRACE_PAIRS)
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--predictions", WEFT_NUMBER(count)),
        "under %s, %" PRId64 " jobs wait or run at the same time. Predictions would "
        "take hours; give a trace with less load or fewer jobs, or remove the option.",
        weft_elastic_policy_name(t->rules->policy), count);
}

weft_status weft_elastic_predict_trace(const weft_elastic_rules *rules, weft_elastic_job *jobs,
                                       int64_t count, weft_queue_prediction *p)
{
    trace t = {.rules = rules, .jobs = jobs, .all = {jobs, count, 0}};
    const weft_elastic_watch counted = {count_pairs, &t}, watch = {predict_arrival, &t};
    weft_status_code status = WEFT_OK;
    *p = (weft_queue_prediction){0};
    if (count < 2)
        return WEFT_OK;
    t.all.gap = (jobs[count - 1].arrival - jobs->arrival) / (double)(count - 1);
    WEFT_GO(WEFT_NEW(t.outlooks, count, "a trace of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(t.judged, count, "a trace of %" PRId64 " jobs", count));
    WEFT_GO(weft_elastic_replay_first(rules, jobs, count, count, &counted));
    WEFT_GO(weft_elastic_replay_first(rules, jobs, count, count, &watch));
    for (int64_t i = 0; i < count; i++) {
        t.judged[i].arrival = jobs[i].arrival;
        t.judged[i].end = jobs[i].end;
    }
    weft_queue_judge(t.judged, count, p);
out:
    weft_free(t.outlooks);
    weft_free(t.judged);
    return status;
}
