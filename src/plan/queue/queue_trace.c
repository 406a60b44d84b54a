#include "plan/queue/queue_trace.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>

static double mean_of(const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}

weft_status weft_queue_trace_make(const weft_queue_trace_options *o, weft_queue_run **jobs)
{
    const double gap = mean_of(o->sizes, o->size_count) / (o->load * (double)o->workers);
    weft_rng rng = weft_rng_make(o->seed, WEFT_RNG_PLAN);
    double now = 0;
    WEFT_TRY(WEFT_NEW(*jobs, o->jobs, "a trace of %" PRId64 " jobs", o->jobs));
    for (int64_t i = 0; i < o->jobs; i++) {
        /* options do not change the number of values of a job */
        const double wait = -log(1 - weft_rng_f64(&rng)), size = weft_rng_f64(&rng),
                     deadline = weft_rng_f64(&rng), owner = weft_rng_f64(&rng),
                     error = weft_rng_normal(&rng);
        const double seconds = o->sizes[(int)(size * o->size_count)];
        now += gap * wait;
        (*jobs)[i] = (weft_queue_run){.entry = {.number = i + 1,
                                                .seconds = seconds,
                                                .rank = i + 1,
                                                .arrival = now,
                                                .owner = (int64_t)(owner * (double)o->owners)},
                                      .actual = seconds * exp(o->error * error),
                                      .steps = o->steps};
        if (o->deadline_count)
            (*jobs)[i].entry.deadline =
                now + seconds * o->deadlines[(int)(deadline * o->deadline_count)];
    }
    return WEFT_OK;
}
