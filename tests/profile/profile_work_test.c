/* Seconds of a program from the times of its rounds. */
#include "profile/profile_work.h"

#include <criterion/criterion.h>
#include <string.h>

static double seconds_of(const double *run, int rounds)
{
    weft_timed t = {.rounds = rounds};
    memcpy(t.run, run, (size_t)rounds * sizeof *run);
    return weft_timed_run(&t);
}

/* The mean of the fastest quarter of the rounds, rounded up; equal rounds count together. */
Test(timed, a_run_takes_the_mean_of_the_fastest_quarter)
{
    const double eight[] = {9, 3, 70, 8, 1, 9, 8, 50}, five[] = {6, 40, 4, 90, 7},
                 equal[] = {5, 2, 2, 2, 9, 8, 7, 6}, one[] = {3};
    cr_expect_float_eq(seconds_of(eight, 8), 2, 1e-12, "%g", seconds_of(eight, 8));
    cr_expect_float_eq(seconds_of(five, 5), 5, 1e-12, "%g", seconds_of(five, 5));
    cr_expect_float_eq(seconds_of(equal, 8), 2, 1e-12, "%g", seconds_of(equal, 8));
    cr_expect_float_eq(seconds_of(one, 1), 3, 1e-12, "%g", seconds_of(one, 1));
}
