/* Seconds of the running job by its price and the messages of its worker. All figures are exact in
 * binary. */
#include "serve/job_seconds.h"

#include <criterion/criterion.h>

/* 8 steps of 2 seconds and 4 seconds of decoding. */
Test(job_seconds, a_start_has_no_step)
{
    const weft_worker_progress fresh = {.done = 1, .total = 9, .first = 1},
                               resumed = {.done = 7, .total = 9, .first = 7};
    cr_assert_eq(weft_job_start_seconds(&fresh, 5, 20, 4), 3);
    cr_assert_eq(weft_job_start_seconds(&resumed, 5, 8, 4), 3, "2 steps of 2 seconds remain");
    cr_assert_eq(weft_job_start_seconds(&fresh, 1, 20, 4), 0, "never negative");
}

Test(job_seconds, a_pace_is_a_mean_of_jobs)
{
    cr_assert_eq(weft_job_pace(0, 4, 2, 0), 0.5);
    cr_assert_eq(weft_job_pace(0.5, 4, 8, 0), 1, "replaces the one of a worker's first job");
    cr_assert_eq(weft_job_pace(0.5, 4, 4, 3), 0.5, "as expected by this pace");
    cr_assert_eq(weft_job_pace(0.5, 2, 4, 1), 0.75);
    cr_assert_eq(weft_job_pace(0.5, 2, 4, 3), 0.625);
    cr_assert_eq(weft_job_pace(0.5, 2, 4, 100), 0.625, "of the last jobs");
    cr_assert_eq(weft_job_pace(0.5, 0, 4, 3), 0.5, "nothing was predicted");
}

Test(job_seconds, an_end_is_a_mean_of_jobs)
{
    cr_assert_eq(weft_job_finish(9, 2, 0), 2);
    cr_assert_eq(weft_job_finish(2, 4, 1), 3);
    cr_assert_eq(weft_job_finish(0, -2, 9), -0.5, "shorter than predicted");
}

Test(job_seconds, what_remains_has_the_decoding)
{
    weft_worker_progress p = {.done = 1, .total = 9, .first = 1, .seconds_left = 40};
    cr_assert_lt(weft_job_seconds_left(&p, 4), 0, "the first step includes one-time work");
    p = (weft_worker_progress){.done = 2, .total = 9, .first = 1, .seconds_left = 12};
    cr_assert_eq(weft_job_seconds_left(&p, 4), 16);
    p.seconds_left = -1;
    cr_assert_lt(weft_job_seconds_left(&p, 4), 0);
    p.done = 8; /* all steps; the seconds of the decoding are not measured yet */
    cr_assert_eq(weft_job_seconds_left(&p, 4), 4);
    cr_assert_lt(weft_job_seconds_left(&p, 0), 0);
    p.seconds_left = 1;
    cr_assert_eq(weft_job_seconds_left(&p, 4), 1);
    cr_assert_lt(weft_job_seconds_left(&(weft_worker_progress){.seconds_left = -1}, 4), 0);
}

/* 8 steps of 2 seconds for both videos, and 4 seconds of decoding for each. */
Test(job_seconds, a_batch_has_several_videos)
{
    weft_worker_progress p = {.done = 1, .total = 10, .videos = 2, .first = 1, .seconds_left = 14};
    cr_assert_eq(weft_job_steps(&p), 8);
    cr_assert_eq(weft_job_start_seconds(&p, 5, 24, 8), 3);
    p.done = 7;
    p.seconds_left = 2;
    cr_assert_eq(weft_job_seconds_left(&p, 8), 10, "both videos are decoded");
    p.done = 8;
    p.seconds_left = -1;
    cr_assert_eq(weft_job_seconds_left(&p, 8), 8);
    p.seconds_left = 1;
    cr_assert_eq(weft_job_seconds_left(&p, 8), 5, "the worker does not know the second video");
    p.done = 9;
    cr_assert_eq(weft_job_seconds_left(&p, 8), 1);
    p.seconds_left = -1;
    cr_assert_eq(weft_job_seconds_left(&p, 8), 4);
}

/* 6 steps of 2 seconds and 4 seconds of decoding remain; the message is half a second old. */
Test(job_seconds, seconds_pass_after_a_message)
{
    weft_worker_progress p = {.done = 2, .total = 9, .first = 1, .seconds_left = 12};
    double step;
    cr_assert_eq(weft_job_seconds_left_since(&p, 4, 0.5, &step), 15.5);
    cr_assert_eq(step, 1.5);
    cr_assert_eq(weft_job_seconds_left_since(&p, 4, 3, &step), 13);
    cr_assert_eq(step, 0, "the step lasts longer than the ones before");
    p.done = 8;
    p.seconds_left = 1;
    cr_assert_eq(weft_job_seconds_left_since(&p, 4, 2, &step), 0);
    cr_assert_eq(step, 0);
    cr_assert_lt(weft_job_seconds_left_since(&(weft_worker_progress){0}, 4, 1, &step), 0);
}
