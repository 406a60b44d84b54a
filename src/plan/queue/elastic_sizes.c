#include "plan/queue/elastic_sizes.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>

double weft_elastic_latency(const weft_elastic_size *s, int64_t devices)
{
    double least = INFINITY;
    for (int i = 0; i < WEFT_ELASTIC_DEGREES && 1 << i <= devices; i++)
        least = fmin(least, (double)s->steps * s->step[i] + s->decode);
    return least;
}

/* Device seconds of a job at its cheapest degree. */
static double least_cost(const weft_elastic_size *s, int64_t devices)
{
    double least = INFINITY;
    for (int i = 0; i < WEFT_ELASTIC_DEGREES && 1 << i <= devices; i++)
        least = fmin(least, (double)(1 << i) * (double)s->steps * s->step[i] + s->decode);
    return least;
}

weft_status weft_elastic_trace_make(const weft_elastic_trace *o, const weft_elastic_table *t,
                                    weft_elastic_job **jobs)
{
    weft_rng rng = weft_rng_make(o->seed, WEFT_RNG_PLAN);
    double shares = 0, cost = 0, now = 0;
    WEFT_TRY(WEFT_NEW(*jobs, o->jobs, "a trace of %" PRId64 " jobs", o->jobs));
    for (int i = 0; i < t->count; i++) {
        shares += t->sizes[i].share;
        cost += t->sizes[i].share * least_cost(&t->sizes[i], o->devices);
    }
    const double gap = cost / shares / (o->load * (double)o->devices);
    for (int64_t i = 0; i < o->jobs; i++) {
        /* options do not change the number of values of a job */
        const double wait = -log(1 - weft_rng_f64(&rng)), deadline = weft_rng_f64(&rng);
        double at = weft_rng_f64(&rng) * shares;
        int size = 0;
        while (size + 1 < t->count && at >= t->sizes[size].share)
            at -= t->sizes[size++].share;
        now += gap * wait;
        (*jobs)[i] = (weft_elastic_job){.size = &t->sizes[size], .arrival = now};
        if (o->deadline_count)
            (*jobs)[i].deadline = now + weft_elastic_latency(&t->sizes[size], o->devices) *
                                            o->deadlines[(int)(deadline * o->deadline_count)];
    }
    return WEFT_OK;
}
