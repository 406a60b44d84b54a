#include "plan/queue/queue_futures.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Largest load of a future: with more work than workers, waits would have no end. */
#define MOST_LOAD 0.95
/* Later jobs of a future. */
#define LATER(count) (4 * (count) + 32)
/* Most pairs of jobs, which are the cost of a replay, of one prediction; and fewest futures. */
enum { PAIRS = 400000, LEAST = 4 };
/* Decisions of the policy fair, which decides after each step, per decision of another policy. */
enum { FAIR_DECISIONS = 15 };

double weft_queue_past_gap(const weft_queue_run *jobs, int64_t count, double first, double now,
                           int64_t workers)
{
    double work = 0;
    for (int64_t i = 0; i < count; i++)
        work += jobs[i].entry.seconds;
    if (count < WEFT_QUEUE_PAST_LEAST)
        return 0;
    return fmax(now - first, work / ((double)workers * MOST_LOAD)) / (double)count;
}

int64_t weft_queue_futures_of(const weft_queue_rules *rules, int64_t count,
                              const weft_queue_past *past)
{
    const int64_t all = count + LATER(count) / 2,
                  decisions = rules->policy == WEFT_QUEUE_FAIR ? FAIR_DECISIONS : 1,
                  most = PAIRS / decisions / (all * all);
    if (past->count < WEFT_QUEUE_PAST_LEAST || past->gap <= 0 || most < LEAST)
        return 0;
    return most > WEFT_QUEUE_FUTURES ? WEFT_QUEUE_FUTURES : most;
}

/* ---- futures -------------------------------------------------------------------------------- */

/* Memory of the futures of one prediction. */
typedef struct futures {
    weft_queue_run *runs; /* [count + later] present jobs, and later ones */
    double *used;
    double *starts, *ends; /* [count][number] */
    int64_t number, later; /* futures, and later jobs of each */
} futures;

static void free_futures(futures *f)
{
    weft_free(f->runs);
    weft_free(f->used);
    weft_free(f->starts);
    weft_free(f->ends);
}

static weft_status make_futures(int64_t count, int64_t owners, int64_t number, futures *f)
{
    *f = (futures){.number = number ? number : 1, .later = number ? LATER(count) : 0};
    WEFT_TRY(WEFT_NEW(f->runs, count + f->later, "a future of %" PRId64 " jobs", count));
    WEFT_TRY(WEFT_NEW(f->used, owners, "%" PRId64 " owners", owners));
    WEFT_TRY(WEFT_NEW(f->starts, count * f->number, "futures of %" PRId64 " jobs", count));
    return WEFT_NEW(f->ends, count * f->number, "futures of %" PRId64 " jobs", count);
}

/* Later job `i`, like a past one. */
static weft_queue_run later_job(const weft_queue_run *like, int64_t i, double arrival)
{
    weft_queue_run run = *like;
    run.entry.number = run.entry.rank = WEFT_QUEUE_LATER + i;
    run.entry.held = false;
    run.entry.arrival = arrival;
    run.actual = like->entry.seconds;
    if (like->entry.deadline > 0)
        run.entry.deadline = arrival + like->entry.deadline - like->entry.arrival;
    return run;
}

/* Replays future `k`. Future k draws equal values at every time, so that a prediction changes by
 * what happens, and not by chance. */
static weft_status replay_future(const weft_queue_rules *rules, const weft_queue_run *jobs,
                                 int64_t count, const double *used, int64_t owners, double now,
                                 const weft_queue_past *past, int64_t k, futures *f)
{
    weft_rng rng = weft_rng_make((uint64_t)k, WEFT_RNG_PLAN);
    double arrival = now;
    memcpy(f->runs, jobs, (size_t)count * sizeof *jobs);
    if (owners)
        memcpy(f->used, used, (size_t)owners * sizeof *used);
    for (int64_t i = 0; i < f->later; i++) {
        arrival -= past->gap * log(1 - weft_rng_f64(&rng));
        f->runs[count + i] =
            later_job(&past->jobs[weft_rng_below(&rng, (uint64_t)past->count)], i, arrival);
    }
    WEFT_TRY(weft_queue_replay_first(rules, f->runs, count + f->later, count, f->used, now, NULL));
    for (int64_t i = 0; i < count; i++) {
        f->starts[i * f->number + k] = f->runs[i].start;
        f->ends[i * f->number + k] = f->runs[i].end;
    }
    return WEFT_OK;
}

static void summarize(futures *f, int64_t job, double now, weft_queue_outlook *o)
{
    weft_queue_outlook_of(f->starts + job * f->number, f->ends + job * f->number, f->number, now,
                          o);
}

weft_status weft_queue_foresee(const weft_queue_rules *rules, const weft_queue_run *jobs,
                               int64_t count, const double *used, int64_t owners, double now,
                               const weft_queue_past *past, int64_t number,
                               weft_queue_outlook *outlooks)
{
    futures f;
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_futures(count, owners, number, &f));
    for (int64_t k = 0; k < f.number; k++)
        WEFT_GO(replay_future(rules, jobs, count, used, owners, now, past, k, &f));
    for (int64_t i = 0; i < count; i++)
        summarize(&f, i, now, &outlooks[i]);
out:
    free_futures(&f);
    return status;
}

/* ---- traces --------------------------------------------------------------------------------- */

/* Futures of the bound. */
enum { BOUND_FUTURES = 100 };
/* Most pairs of jobs, which are the cost of a replay, of all predictions of a trace: minutes. */
#define TRACE_PAIRS 1e11

/* Lives as long as the replay of a trace. */
typedef struct trace {
    const weft_queue_rules *rules;
    weft_queue_run *jobs; /* by arrival; they receive the actual ends */
    int64_t count, owners, arrived;
    double pairs;
    weft_queue_past all;
    weft_queue_outlook *outlooks; /* [count] of the jobs at their arrivals, */
    double *bounds;               /* and the share of the futures of the bound that are near */
} trace;

/* The present jobs as a server knows them: the predicted seconds. */
static weft_status foresee_newest(const trace *t, const weft_queue_run *present, int64_t count,
                                  int64_t newest, const double *used, double now,
                                  const weft_queue_past *past, int64_t number,
                                  weft_queue_outlook *outlook)
{
    weft_queue_run *runs;
    weft_queue_outlook *outlooks = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(runs, count, "a queue of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(outlooks, count, "a queue of %" PRId64 " jobs", count));
    for (int64_t i = 0; i < count; i++) {
        runs[i] = present[i];
        runs[i].first *= present[i].entry.seconds / present[i].actual;
        runs[i].actual = present[i].entry.seconds;
    }
    WEFT_GO(
        weft_queue_foresee(t->rules, runs, count, used, t->owners, now, past, number, outlooks));
    *outlook = outlooks[newest];
out:
    weft_free(outlooks);
    weft_free(runs);
    return status;
}

static weft_status predict_arrival(void *context, const weft_queue_run *present, int64_t count,
                                   int64_t newest, const double *used, double now)
{
    trace *t = context;
    const int64_t at = t->arrived++, first = at > WEFT_QUEUE_PAST ? at - WEFT_QUEUE_PAST : 0;
    weft_queue_past past = {t->jobs + first, at - first, 0};
    weft_queue_outlook bound;
    if (past.count)
        past.gap = weft_queue_past_gap(past.jobs, past.count, past.jobs->entry.arrival, now,
                                       t->rules->workers);
    const int64_t number = weft_queue_futures_of(t->rules, count, &past);
    WEFT_TRY(foresee_newest(t, present, count, newest, used, now, &past, number, &t->outlooks[at]));
    WEFT_TRY(foresee_newest(t, present, count, newest, used, now, &t->all, BOUND_FUTURES, &bound));
    t->bounds[at] = bound.bound;
    return WEFT_OK;
}

/* Counts the cost of a prediction. A queue that grows without end is refused before it is
 * predicted. */
static weft_status count_pairs(void *context, const weft_queue_run *present, int64_t count,
                               int64_t newest, const double *used, double now)
{
    (void)present, (void)newest, (void)used, (void)now;
    trace *t = context;
    const double all = (double)(count + LATER(count) / 2),
                 decisions = t->rules->policy == WEFT_QUEUE_FAIR ? FAIR_DECISIONS : 1;
    t->arrived++;
    t->pairs += BOUND_FUTURES * all * all * decisions;
    if (t->pairs <= TRACE_PAIRS)
        return WEFT_OK;
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--predictions", WEFT_NUMBER(count)),
                      "under %s, %" PRId64 " jobs wait or run when job %" PRId64 " of %" PRId64
                      " arrives. Predictions would take hours; give a trace with less load or "
                      "fewer jobs, or remove the option.",
                      weft_queue_policy_name(t->rules->policy), count, t->arrived, t->count);
}

static weft_status replay_trace(trace *t, const weft_queue_watch *watch)
{
    double *used;
    WEFT_TRY(WEFT_NEW(used, t->owners, "%" PRId64 " owners", t->owners));
    t->arrived = 0;
    const weft_status_code status =
        weft_queue_replay_first(t->rules, t->jobs, t->count, t->count, used, 0, watch);
    weft_free(used);
    return status;
}

static int compare_arrivals(const void *a, const void *b)
{
    const weft_queue_run *x = a, *y = b;
    if (x->entry.arrival != y->entry.arrival)
        return x->entry.arrival < y->entry.arrival ? -1 : 1;
    return x->entry.number < y->entry.number ? -1 : x->entry.number > y->entry.number;
}

static weft_status judge(const trace *t, weft_queue_prediction *p)
{
    weft_queue_judged *list;
    WEFT_TRY(WEFT_NEW(list, t->count, "the figures of %" PRId64 " jobs", t->count));
    for (int64_t i = 0; i < t->count; i++)
        list[i] = (weft_queue_judged){t->jobs[i].entry.arrival, t->jobs[i].end, t->outlooks[i],
                                      t->bounds[i], 0};
    weft_queue_judge(list, t->count, p);
    weft_free(list);
    return WEFT_OK;
}

weft_status weft_queue_predict_trace(const weft_queue_rules *rules, const weft_queue_run *jobs,
                                     int64_t count, int64_t owners, weft_queue_prediction *p)
{
    trace t = {.rules = rules, .count = count, .owners = owners};
    const weft_queue_watch counted = {count_pairs, &t}, watch = {predict_arrival, &t};
    weft_status_code status = WEFT_OK;
    *p = (weft_queue_prediction){0};
    if (count < 2)
        return WEFT_OK;
    WEFT_GO(WEFT_NEW(t.jobs, count, "a trace of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(t.outlooks, count, "a trace of %" PRId64 " jobs", count));
    WEFT_GO(WEFT_NEW(t.bounds, count, "a trace of %" PRId64 " jobs", count));
    memcpy(t.jobs, jobs, (size_t)count * sizeof *jobs);
    qsort(t.jobs, (size_t)count, sizeof *t.jobs, compare_arrivals);
    t.all = (weft_queue_past){t.jobs, count,
                              (t.jobs[count - 1].entry.arrival - t.jobs->entry.arrival) /
                                  (double)(count - 1)};
    WEFT_GO(replay_trace(&t, &counted));
    WEFT_GO(replay_trace(&t, &watch));
    WEFT_GO(judge(&t, p));
out:
    weft_free(t.bounds);
    weft_free(t.outlooks);
    weft_free(t.jobs);
    return status;
}
