#include "serve/job_seconds.h"

#include <math.h>
#include <stdbool.h>

static int64_t videos_of(const weft_worker_progress *p)
{
    return p->videos > 0 ? p->videos : 1;
}

int64_t weft_job_steps(const weft_worker_progress *p)
{
    return p->total > 0 ? p->total - videos_of(p) : 0;
}

double weft_job_start_seconds(const weft_worker_progress *p, double elapsed, double seconds,
                              double decode)
{
    const int64_t steps = weft_job_steps(p) - p->first + 1;
    return fmax(0, elapsed - fmax(0, seconds - decode) / (double)(steps > 0 ? steps : 1));
}

/* The share of a job in the mean. A single job moves later forecasts little. */
static double share_of(int64_t jobs)
{
    return 1 / fmin(4, (double)jobs + 1);
}

double weft_job_pace(double pace, double expected, double actual, int64_t jobs)
{
    if (expected <= 0 || actual <= 0)
        return pace;
    const double before = pace > 0 ? pace : 1, found = before * actual / expected;
    return pace > 0 ? pace + (found - pace) * share_of(jobs) : found;
}

double weft_job_finish(double finish, double rest, int64_t jobs)
{
    return finish + (rest - finish) * share_of(jobs);
}

/* Seconds that remain while the worker decodes. */
static double decoding_left(const weft_worker_progress *p, double decode)
{
    const int64_t left = p->total - p->done;
    const bool first = left == videos_of(p);
    const double each = decode / (double)videos_of(p);
    if (p->seconds_left < 0)
        return decode > 0 ? each * (double)left : -1;
    return p->seconds_left + (first ? each * (double)(left - 1) : 0);
}

double weft_job_seconds_left(const weft_worker_progress *p, double decode)
{
    if (p->total == 0 || p->done <= p->first)
        return -1;
    if (p->done >= weft_job_steps(p))
        return decoding_left(p, decode);
    return p->seconds_left >= 0 ? p->seconds_left + decode : -1;
}

double weft_job_seconds_left_since(const weft_worker_progress *p, double decode, double since,
                                   double *step)
{
    const double left = weft_job_seconds_left(p, decode);
    const int64_t steps = weft_job_steps(p) - p->done;
    *step = 0;
    if (left < 0)
        return left;
    if (steps > 0)
        *step = fmax(0, p->seconds_left / (double)steps - since);
    return fmax(0, left - since);
}
