#include "serve/job_seconds.h"

#include <math.h>

double weft_job_start_seconds(const weft_worker_progress *p, double elapsed, double seconds,
                              double decode)
{
    /* the video counts as one of p->total */
    const int64_t steps = p->total - p->first;
    return fmax(0, elapsed - fmax(0, seconds - decode) / (double)(steps > 0 ? steps : 1));
}

double weft_job_pace(double pace, double expected, double actual)
{
    /* a single job moves later forecasts little */
    enum { JOBS = 4 };
    if (expected <= 0 || actual <= 0)
        return pace;
    return pace > 0 ? pace + (pace * actual / expected - pace) / JOBS : actual / expected;
}

double weft_job_seconds_left(const weft_worker_progress *p, double decode)
{
    if (p->total == 0 || p->done <= p->first)
        return -1;
    if (p->done < p->total - 1)
        return p->seconds_left >= 0 ? p->seconds_left + decode : -1;
    return p->seconds_left >= 0 || decode == 0 ? p->seconds_left : decode;
}
