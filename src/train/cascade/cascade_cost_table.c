#include "train/cascade_cost.h"

#include <math.h>

typedef struct price {
    bool asked;
    weft_cascade_told told;
    double measured;
    int64_t count; /* of measurements */
    bool cold;     /* the only one was the first run of a program */
} price;

struct weft_cascade_prices {
    weft_cascade_facts facts;
    price *item; /* [modules][buckets][ranks] */
    /* sums of logarithms of measured over told, by module and over all */
    double factor[WEFT_CASCADE_MODULES];
    int64_t factors[WEFT_CASCADE_MODULES];
    bool odd_told;
};

weft_status weft_cascade_prices_create(const weft_cascade_facts *facts, weft_cascade_prices **out)
{
    weft_cascade_prices *p = weft_alloc(sizeof *p);
    const int64_t count = WEFT_CASCADE_MODULES * (int64_t)facts->buckets * facts->ranks;
    if (p)
        p->item = weft_alloc((count + 1) * (int64_t)sizeof *p->item);
    if (!p || !p->item) {
        weft_free(p);
        return weft_fail(WEFT_E_MEMORY, "out of memory for the prices of cascades");
    }
    p->facts = *facts;
    *out = p;
    return WEFT_OK;
}

void weft_cascade_prices_free(weft_cascade_prices *p)
{
    if (p)
        weft_free(p->item);
    weft_free(p);
}

static price *at(const weft_cascade_prices *p, weft_cascade_module module, int bucket, int degree)
{
    return &p->item[((int64_t)module * p->facts.buckets + bucket) * p->facts.ranks + degree - 1];
}

/* Measured over told, of the bucket's other degrees, else of the module. */
static double factor_of(const weft_cascade_prices *p, weft_cascade_module module, int bucket)
{
    double sum = 0;
    int64_t count = 0;
    for (int k = 1; k <= p->facts.ranks; k++) {
        const price *x = at(p, module, bucket, k);
        if (x->count && x->measured > 0 && x->told.seconds > 0) {
            sum += log(x->measured / x->told.seconds);
            count++;
        }
    }
    if (count)
        return exp(sum / (double)count);
    return p->factors[module] ? exp(p->factor[module] / (double)p->factors[module]) : 1;
}

static weft_status ask(weft_cascade_prices *p, weft_cascade_module module, int bucket, int degree,
                       price **out)
{
    price *x = at(p, module, bucket, degree);
    if (!x->asked)
        WEFT_TRY(p->facts.tell(p->facts.user, module, bucket, degree, &x->told));
    x->asked = true;
    *out = x;
    return WEFT_OK;
}

weft_status weft_cascade_prices_get(weft_cascade_prices *p, weft_cascade_module module, int bucket,
                                    int degree, double *seconds, double *bytes)
{
    price *x;
    WEFT_TRY(ask(p, module, bucket, degree, &x));
    *seconds = x->count ? x->measured : x->told.seconds * factor_of(p, module, bucket);
    *bytes = x->told.bytes;
    return WEFT_OK;
}

/* ---- what was measured ---------------------------------------------------------------------- */

static void measure(weft_cascade_prices *p, weft_cascade_module module, price *x, double seconds,
                    bool cold)
{
    enum { EVENLY = 3 };
    if (cold && x->count)
        return;
    if (x->cold)
        x->count = 0;
    const double share = x->count < EVENLY ? 1 / (double)(x->count + 1) : 0.3;
    if (x->count == 0 && x->told.seconds > 0) {
        const double before = x->cold ? log(x->measured / x->told.seconds) : 0;
        p->factor[module] += log(seconds / x->told.seconds) - before;
        p->factors[module] += !x->cold;
    }
    x->measured = x->count ? x->measured + share * (seconds - x->measured) : seconds;
    x->cold = cold;
    x->count++;
}

/* How far apart two seconds are, whichever is longer. */
static double apart(double predicted, double measured)
{
    return fabs(log(predicted / measured));
}

weft_status weft_cascade_prices_note(weft_cascade_prices *p, const weft_placed_iteration *plan,
                                     const double *seconds, const bool *cold, weft_cascade_fit *fit)
{
    double planned[WEFT_CASCADE_MODULES] = {0}, told[WEFT_CASCADE_MODULES] = {0}, all = 0;
    int64_t count[WEFT_CASCADE_MODULES] = {0}, counted = 0;
    for (int64_t i = 0; i < plan->cascades; i++) {
        const weft_placed_cascade *c = &plan->cascade[i];
        const int bucket = plan->sample[c->sample].bucket;
        price *x;
        if (!(seconds[i] > 0) || bucket < 0 || bucket >= p->facts.buckets ||
            c->at.degree > p->facts.ranks)
            continue;
        WEFT_TRY(ask(p, c->module, bucket, (int)c->at.degree, &x));
        if (c->at.seconds > 0 && x->told.seconds > 0) {
            planned[c->module] += apart(c->at.seconds, seconds[i]);
            told[c->module] += apart(x->told.seconds, seconds[i]);
            count[c->module]++;
        }
        measure(p, c->module, x, seconds[i], cold && cold[i]);
    }
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        fit->planned[m] = count[m] ? planned[m] / (double)count[m] : (double)NAN;
        fit->told[m] = count[m] ? told[m] / (double)count[m] : (double)NAN;
        all += p->factor[m];
        counted += p->factors[m];
    }
    fit->factor = counted ? exp(all / (double)counted) : 1;
    return WEFT_OK;
}

void weft_cascade_prices_odd(weft_cascade_prices *p, weft_buf *out)
{
    const double far = log(3);
    if (p->odd_told)
        return;
    for (int m = 0; m < WEFT_CASCADE_MODULES; m++) {
        if (!p->factors[m])
            continue;
        const double off = p->factor[m] / (double)p->factors[m];
        if (fabs(off) < far)
            continue;
        weft_buf_printf(out, "%s%s cascades take %.3g times what their costs say",
                        p->odd_told ? ", " : "", weft_cascade_module_name(m), exp(off));
        p->odd_told = true;
    }
    if (p->odd_told)
        weft_buf_printf(out, "; plans go by what is measured from here on (`weft profile "
                             "CONFIG --out <out>/profile.json` makes costs of this machine)");
}
