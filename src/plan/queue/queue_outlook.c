#include "plan/queue/queue_outlook.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The relative error from which on a wait is not close; the compared waits are a future's, and
 * longer ones by multiples of a share. */
#define CLOSE          0.3
#define CANDIDATE_STEP 0.06
enum { CANDIDATES = 5 };

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const double *sorted, int64_t count, double share)
{
    const int64_t at = (int64_t)ceil(share * (double)count) - 1;
    return sorted[at < 0 ? 0 : at];
}

static bool is_near(double predicted, double wait)
{
    return fabs(predicted - wait) <= WEFT_QUEUE_NEAR * wait;
}

/* How close a predicted wait is to the waits of the futures: 1 for an equal one, less for others.
 * The seconds of jobs are predictions, too: a wait just within WEFT_QUEUE_NEAR counts little. */
static double closeness(const double *ends, int64_t count, double now, double wait)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = (wait / fmax(ends[i] - now, 1e-9) - 1) / CLOSE;
        sum += fmax(0, 1 - error * error);
    }
    return sum;
}

/* The end whose wait is closest to the waits of the futures: a wait, or somewhat longer. */
static void find_end(const double *ends, int64_t count, double now, weft_queue_outlook *o)
{
    double most = -1, best = 0;
    for (int64_t i = 0; i < CANDIDATES * count; i++) {
        const double wait =
            (ends[i / CANDIDATES] - now) * (1 + CANDIDATE_STEP * (double)(i % CANDIDATES));
        const double found = closeness(ends, count, now, wait);
        if (found > most) {
            most = found;
            best = wait;
        }
    }
    o->end = now + best;
}

/* The largest share of the waits that are near to one prediction: a wait is on its lower edge. */
static double most_near(const double *ends, int64_t count, double now)
{
    const double edge = (1 + WEFT_QUEUE_NEAR) * (1 - 1e-9);
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t near = 0;
        for (int64_t k = 0; k < count; k++)
            near += is_near((ends[i] - now) * edge, ends[k] - now);
        most = near > most ? near : most;
    }
    return (double)most / (double)count;
}

void weft_queue_outlook_of(double *starts, double *ends, int64_t count, double now,
                           weft_queue_outlook *o)
{
    qsort(starts, (size_t)count, sizeof *starts, compare);
    qsort(ends, (size_t)count, sizeof *ends, compare);
    find_end(ends, count, now, o);
    o->start = fmin(quantile(starts, count, 0.5), o->end);
    o->bound = most_near(ends, count, now);
    o->earliest = quantile(ends, count, 0.05);
    o->latest = quantile(ends, count, 0.95);
}

static int compare_errors(const void *a, const void *b)
{
    const weft_queue_judged *x = a, *y = b;
    return x->error < y->error ? -1 : x->error > y->error;
}

void weft_queue_judge(weft_queue_judged *list, int64_t count, weft_queue_prediction *p)
{
    *p = (weft_queue_prediction){.jobs = count};
    for (int64_t i = 0; i < count; i++) {
        weft_queue_judged *j = &list[i];
        const double wait = j->end - j->arrival, predicted = j->outlook.end - j->arrival,
                     slack = 1e-6 * wait;
        j->error = fabs(predicted / wait - 1);
        p->near += is_near(predicted, wait);
        p->in_range += j->end >= j->outlook.earliest - slack && j->end <= j->outlook.latest + slack;
        p->bound += j->bound;
    }
    qsort(list, (size_t)count, sizeof *list, compare_errors);
    const int64_t middle = (count + 1) / 2 - 1;
    p->error = count ? list[middle].error : 0;
    p->near /= (double)count;
    p->in_range /= (double)count;
    p->bound /= (double)count;
}
