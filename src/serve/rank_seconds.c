#include "serve/rank_seconds.h"

#include <math.h>

/* The weight of a run, per newer run. */
#define KEPT 0.85
/* Weights of assumptions, that jobs do not slow each other and that a price lacks nothing, in runs
 * with a deviation of 100 %. Otherwise runs of one size would determine neither. */
static const double priors[] = {0, 0.05, 0.05};
/* A job is not slowed to more than this many times its seconds. */
#define MOST_SLOWNESS 4

double weft_rank_seconds_of(const weft_rank_seconds *s, double predicted, double steps,
                            double crowd)
{
    return fmax(0, predicted * (s->pace + s->crowded * crowd) + steps * s->step);
}

void weft_rank_mean_add(double *mean, int64_t *count, double value)
{
    const double share = 1 / fmin(4, (double)++*count);
    *mean += (value - *mean) * share;
}

/* ---- fit ------------------------------------------------------------------------------------ */

enum { UNKNOWNS = 3 };

/* Solves a[i] x = b[i] by Gauss and Jordan; a is symmetric and positive definite. */
static void solve(double a[UNKNOWNS][UNKNOWNS], double b[UNKNOWNS])
{
    for (int i = 0; i < UNKNOWNS; i++)
        for (int k = 0; k < UNKNOWNS; k++) {
            if (k == i)
                continue;
            const double factor = a[k][i] / a[i][i];
            for (int n = 0; n < UNKNOWNS; n++)
                a[k][n] -= factor * a[i][n];
            b[k] -= factor * b[i];
        }
    for (int i = 0; i < UNKNOWNS; i++)
        b[i] /= a[i][i];
}

/* Least squares of the relative errors over the last runs, where `uses` marks the unknowns. */
static void fit(const weft_rank_seconds *s, const bool uses[UNKNOWNS], double found[UNKNOWNS])
{
    double a[UNKNOWNS][UNKNOWNS] = {{0}}, weight = 1, unit[UNKNOWNS] = {0}, sum = 0;
    for (int i = 0; i < UNKNOWNS; i++)
        found[i] = 0;
    for (int64_t n = 0; n < s->count && n < WEFT_RANK_RUNS; n++, weight *= KEPT) {
        const weft_rank_run *r = &s->runs[(s->count - 1 - n) % WEFT_RANK_RUNS];
        const double x[UNKNOWNS] = {r->predicted / r->actual,
                                    uses[1] ? r->predicted * r->crowd / r->actual : 0,
                                    uses[2] ? r->steps / r->actual : 0};
        for (int i = 0; i < UNKNOWNS; i++) {
            for (int k = 0; k < UNKNOWNS; k++)
                a[i][k] += weight * x[i] * x[k];
            found[i] += weight * x[i];
        }
        unit[1] += weight * x[0] * x[0];
        unit[2] += weight * (r->steps / r->actual) * (r->steps / r->actual);
        sum += weight;
    }
    for (int i = 1; i < UNKNOWNS; i++)
        a[i][i] += priors[i] * unit[i] / sum + (uses[i] ? 0 : 1);
    solve(a, found);
}

/* Mean seconds with a crowd of 1, per second alone. */
static double slowness_of(const weft_rank_seconds *s)
{
    double alone = 0, beside = 0;
    for (int64_t n = 0; n < s->count && n < WEFT_RANK_RUNS; n++) {
        const weft_rank_run *r = &s->runs[n];
        alone += weft_rank_seconds_of(s, r->predicted, r->steps, 0);
        beside += weft_rank_seconds_of(s, r->predicted, r->steps, 1);
    }
    return alone > 0 ? fmin(fmax(1, beside / alone), MOST_SLOWNESS) : 1;
}

void weft_rank_seconds_add(weft_rank_seconds *s, const weft_rank_run *run)
{
    bool uses[UNKNOWNS] = {true, true, true};
    double found[UNKNOWNS];
    if (!(run->predicted > 0 && run->actual > 0 && run->steps > 0) || (run->cold && s->is_warm))
        return;
    if (!run->cold && !s->is_warm)
        s->count = 0; /* forgets the cold ones */
    s->is_warm = !run->cold;
    s->runs[s->count++ % WEFT_RANK_RUNS] = *run;
    fit(s, uses, found);
    uses[1] = found[1] > 0;
    uses[2] = found[2] > 0;
    if (!uses[1] || !uses[2])
        fit(s, uses, found);
    s->pace = found[0];
    s->crowded = fmax(0, found[1]);
    s->step = fmax(0, found[2]);
    s->slowness = slowness_of(s);
}

/* ---- table ---------------------------------------------------------------------------------- */

/* The nearest number of ranks with a count; -1: none. */
static int nearest(const int64_t counts[WEFT_ELASTIC_DEGREES], int degree)
{
    for (int distance = 0; distance < WEFT_ELASTIC_DEGREES; distance++)
        for (int side = -1; side <= 1; side += 2) {
            const int k = degree + side * distance;
            if (k >= 0 && k < WEFT_ELASTIC_DEGREES && counts[k])
                return k;
        }
    return -1;
}

/* Measured seconds per predicted second, of all known runs. */
static double mean_pace(const weft_rank_seconds *s)
{
    double predicted = 0, actual = 0;
    for (int64_t n = 0; n < s->count && n < WEFT_RANK_RUNS; n++) {
        predicted += s->runs[n].predicted;
        actual += s->runs[n].actual;
    }
    return predicted > 0 ? actual / predicted : 1;
}

weft_rank_seconds weft_rank_table_of(const weft_rank_table *t, int degree)
{
    int64_t runs[WEFT_ELASTIC_DEGREES], warms[WEFT_ELASTIC_DEGREES], colds[WEFT_ELASTIC_DEGREES],
        ends[WEFT_ELASTIC_DEGREES];
    weft_rank_seconds s = {.pace = 1, .slowness = 1};
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++) {
        runs[k] = t->at[k].count;
        warms[k] = t->at[k].warms;
        colds[k] = t->at[k].colds;
        ends[k] = t->at[k].endings;
    }
    const int run = nearest(runs, degree), warm = nearest(warms, degree),
              cold = nearest(colds, degree), end = nearest(ends, degree);
    if (run == degree) {
        s.pace = t->at[run].pace;
        s.crowded = t->at[run].crowded;
        s.step = t->at[run].step;
        s.slowness = t->at[run].slowness;
    } else if (run >= 0) {
        s.pace = sqrt(mean_pace(&t->at[run]));
    }
    s.count = run >= 0;
    s.warm = warm >= 0 ? t->at[warm].warm : 0;
    s.cold = cold >= 0 ? t->at[cold].cold : s.warm;
    s.ending = end >= 0 ? t->at[end].ending : s.pace;
    return s;
}
