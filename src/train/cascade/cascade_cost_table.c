#include "train/cascade/cascade_cost_table.h"

#include <math.h>

typedef struct cost_entry {
    bool asked;
    weft_cascade_estimate estimate;
    double measured;
    int64_t count; /* number of measurements */
    bool cold;     /* the only measurement is a first run */
} cost_entry;

struct weft_cascade_cost_table {
    weft_cascade_facts facts;
    cost_entry *item; /* [modules][buckets][ranks] */
    /* sums and counts of log(measured / estimate), by module */
    double factor[WEFT_CASCADE_MODULES];
    int64_t factors[WEFT_CASCADE_MODULES];
    bool outliers_printed;
};

weft_status weft_cascade_cost_table_create(const weft_cascade_facts *facts,
                                           weft_cascade_cost_table **out)
{
    weft_cascade_cost_table *p = weft_alloc(sizeof *p);
    const int64_t count = WEFT_CASCADE_MODULES * (int64_t)facts->buckets * facts->ranks;
    if (p)
        p->item = weft_calloc(count + 1, sizeof *p->item);
    if (!p || !p->item) {
        weft_free(p);
        return weft_no_memory("the prices of cascades");
    }
    p->facts = *facts;
    *out = p;
    return WEFT_OK;
}

void weft_cascade_cost_table_free(weft_cascade_cost_table *p)
{
    if (p)
        weft_free(p->item);
    weft_free(p);
}

static cost_entry *at(const weft_cascade_cost_table *p, weft_cascade_module module, int bucket,
                      int degree)
{
    return &p->item[((int64_t)module * p->facts.buckets + bucket) * p->facts.ranks + degree - 1];
}

/* ---- interpolation --------------------------------------------------------------------------- */

/* Sums for the line measured = begin + slope * estimate, weighted by relative errors. */
typedef struct line {
    double w, x, y, xx, xy, least, most;
    int64_t count;
} line;

static void add_point(line *l, const cost_entry *of)
{
    const double x = of->estimate.seconds, y = of->measured, w = 1 / (y * y);
    l->w += w;
    l->x += w * x;
    l->y += w * y;
    l->xx += w * x * x;
    l->xy += w * x * y;
    l->least = l->count ? fmin(l->least, x) : x;
    l->most = fmax(l->most, x);
    l->count++;
}

/* Returns the value of the fitted line. The fit needs points whose estimates differ by a factor of
 * 2, because for close points the errors determine the slope. Otherwise, or with a negative begin,
 * the line passes through zero. */
static double on_line(const line *l, double estimate)
{
    const double det = l->w * l->xx - l->x * l->x;
    const double slope = (l->w * l->xy - l->x * l->y) / det;
    const double begin = (l->y - slope * l->x) / l->w;
    const bool apart = l->most >= 2 * l->least && det > 0;
    return apart && slope > 0 && begin > 0 ? begin + slope * estimate : estimate * l->xy / l->xx;
}

/* Returns the first measured degree from `degree` on, in steps of `step`; NULL: none. */
static const cost_entry *next_measured(const weft_cascade_cost_table *p, weft_cascade_module module,
                                       int bucket, int degree, int step, bool cold)
{
    for (int k = degree; k >= 1 && k <= p->facts.ranks; k += step) {
        const cost_entry *x = at(p, module, bucket, k);
        if (x->count && x->cold == cold && x->measured > 0 && x->estimate.seconds > 0)
            return x;
    }
    return NULL;
}

/* Interpolates between two measured degrees of one bucket, in proportion to the estimates. Outside
 * their range, scales by the geometric mean of both ratios. */
static double between(const cost_entry *a, const cost_entry *b, double estimate)
{
    const double from = a->estimate.seconds, to = b->estimate.seconds,
                 at = (estimate - from) / (to - from);
    if (at >= 0 && at <= 1) /* false if the estimates are equal */
        return a->measured + at * (b->measured - a->measured);
    return estimate * sqrt(a->measured / from * b->measured / to);
}

/* Interpolates between the nearest measured degrees of the bucket, else on a line through the
 * nearest degrees of the module's other buckets. A line has a begin, because kernels have a minimum
 * time. First runs count only if no other run exists. */
static double interpolate(const weft_cascade_cost_table *p, weft_cascade_module module, int bucket,
                          int degree)
{
    const double estimate = at(p, module, bucket, degree)->estimate.seconds;
    for (int cold = 0; cold < 2; cold++) {
        const cost_entry *below = next_measured(p, module, bucket, degree, -1, cold),
                         *above = next_measured(p, module, bucket, degree, 1, cold);
        if (below || above)
            return between(below ? below : above, above ? above : below, estimate);
    }
    for (int cold = 0; cold < 2; cold++) {
        line l = {0};
        for (int b = 0; b < p->facts.buckets; b++)
            for (int step = -1; step <= 1; step += 2) {
                const cost_entry *x = next_measured(p, module, b, degree, step, cold);
                if (x && (step < 0 || x != at(p, module, b, degree)))
                    add_point(&l, x);
            }
        if (l.count)
            return on_line(&l, estimate);
    }
    return estimate;
}

static weft_status ask(weft_cascade_cost_table *p, weft_cascade_module module, int bucket,
                       int degree, cost_entry **out)
{
    cost_entry *x = at(p, module, bucket, degree);
    if (!x->asked)
        WEFT_TRY(p->facts.estimate(p->facts.user, module, bucket, degree, &x->estimate));
    x->asked = true;
    *out = x;
    return WEFT_OK;
}

weft_status weft_cascade_cost_table_get(weft_cascade_cost_table *p, weft_cascade_module module,
                                        int bucket, int degree, double *seconds, double *bytes)
{
    cost_entry *x;
    WEFT_TRY(ask(p, module, bucket, degree, &x));
    *seconds = x->count ? x->measured : interpolate(p, module, bucket, degree);
    *bytes = x->estimate.bytes;
    return WEFT_OK;
}

/* ---- measurements --------------------------------------------------------------------------- */

static void measure(weft_cascade_cost_table *p, weft_cascade_module module, cost_entry *x,
                    double seconds, bool cold)
{
    enum { EVENLY = 3 };
    if (cold && x->count)
        return;
    if (x->cold)
        x->count = 0;
    const double share = x->count < EVENLY ? 1 / (double)(x->count + 1) : 0.3;
    if (x->count == 0 && x->estimate.seconds > 0) {
        const double before = x->cold ? log(x->measured / x->estimate.seconds) : 0;
        p->factor[module] += log(seconds / x->estimate.seconds) - before;
        p->factors[module] += !x->cold;
    }
    x->measured = x->count ? x->measured + share * (seconds - x->measured) : seconds;
    x->cold = cold;
    x->count++;
}

/* Returns |log(predicted / measured)|. */
static double apart(double predicted, double measured)
{
    return fabs(log(predicted / measured));
}

weft_status weft_cascade_cost_table_record(weft_cascade_cost_table *p,
                                           const weft_placed_iteration *plan, const double *seconds,
                                           const bool *cold, weft_cascade_fit *fit)
{
    double planned[WEFT_CASCADE_MODULES] = {0}, estimated[WEFT_CASCADE_MODULES] = {0}, all = 0;
    int64_t count[WEFT_CASCADE_MODULES] = {0}, counted = 0;
    for (int64_t i = 0; i < plan->cascades; i++) {
        const weft_placed_cascade *c = &plan->cascade[i];
        const int bucket = plan->sample[c->sample].bucket;
        cost_entry *x;
        if (!(seconds[i] > 0) || bucket < 0 || bucket >= p->facts.buckets ||
            c->at.degree > p->facts.ranks)
            continue;
        WEFT_TRY(ask(p, c->module, bucket, (int)c->at.degree, &x));
        if (c->at.seconds > 0 && x->estimate.seconds > 0) {
            planned[c->module] += apart(c->at.seconds, seconds[i]);
            estimated[c->module] += apart(x->estimate.seconds, seconds[i]);
            count[c->module]++;
        }
        measure(p, c->module, x, seconds[i], cold && cold[i]);
    }
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        fit->planned[m] = count[m] ? planned[m] / (double)count[m] : (double)NAN;
        fit->estimated[m] = count[m] ? estimated[m] / (double)count[m] : (double)NAN;
        all += p->factor[m];
        counted += p->factors[m];
    }
    fit->factor = counted ? exp(all / (double)counted) : 1;
    return WEFT_OK;
}

void weft_cascade_cost_table_format_outliers(weft_cascade_cost_table *p, weft_buf *out)
{
    const double far = log(3);
    if (p->outliers_printed)
        return;
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        if (!p->factors[m])
            continue;
        const double off = p->factor[m] / (double)p->factors[m];
        if (fabs(off) < far)
            continue;
        weft_buf_printf(out, "%s%s cascades take %.3g times their estimate",
                        p->outliers_printed ? ", " : "", weft_cascade_module_name(m), exp(off));
        p->outliers_printed = true;
    }
    if (p->outliers_printed)
        weft_buf_printf(out, "; further plans use measured times (`weft profile CONFIG --out "
                             "<out>/profile.json` measures the costs of this machine)");
}
