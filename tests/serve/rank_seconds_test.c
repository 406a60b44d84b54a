/* Seconds of jobs by their ranks, learned from jobs whose seconds follow a known law. */
#include "serve/rank_seconds.h"

#include <criterion/criterion.h>

#include <math.h>

/* Jobs of several sizes that take exactly predicted * (pace + crowded * crowd) + step * steps. */
static weft_rank_seconds learn(double pace, double crowded, double step, int count)
{
    static const double prices[] = {0.2, 0.6, 1.2}, steps[] = {30, 60, 40}, crowds[] = {0, 1, 0.5};
    weft_rank_seconds s = {0};
    for (int i = 0; i < count; i++) {
        weft_rank_run r = {
            .predicted = prices[i % 3], .steps = steps[i % 3], .crowd = crowds[(i / 3) % 3]};
        r.actual = r.predicted * (pace + crowded * r.crowd) + r.steps * step;
        weft_rank_seconds_add(&s, &r);
    }
    return s;
}

/* A law that was learned predicts other sizes; the prior leaves a percent. */
Test(rank_seconds, a_law_is_learned)
{
    const double laws[][3] = {{1, 0, 0}, {0.9, 0.4, 0}, {1.1, 0, 0.008}, {2, 1, 0.004}};
    for (int i = 0; i < 4; i++) {
        const double *law = laws[i];
        const weft_rank_seconds s = learn(law[0], law[1], law[2], 27);
        for (int crowd = 0; crowd < 2; crowd++) {
            const double actual = 0.3 * (law[0] + law[1] * crowd) + 50 * law[2],
                         found = weft_rank_seconds_of(&s, 0.3, 50, crowd);
            cr_assert(fabs(found / actual - 1) < 0.05, "law %d: %g, not %g", i, found, actual);
        }
    }
    cr_assert_float_eq(learn(1, 0.5, 0, 27).slowness, 1.5, 0.05);
    cr_assert_eq(learn(1, 0, 0, 27).slowness, 1);
}

/* Jobs of one size determine neither the time of a step nor of a crowd: seconds follow the price. */
Test(rank_seconds, one_size_is_a_pace)
{
    weft_rank_seconds s = {0};
    for (int i = 0; i < 30; i++)
        weft_rank_seconds_add(&s, &(weft_rank_run){0.5, 20, 0, 1});
    cr_assert_float_eq(weft_rank_seconds_of(&s, 0.5, 20, 0), 1, 1e-6);
    cr_assert_eq(s.slowness, 1);
    weft_rank_seconds_add(&s, &(weft_rank_run){0.5, 20, 0, 0}); /* not a measurement */
    cr_assert_eq(s.count, 30);
}

/* The first job of a worker is slower: it counts until another job is known. */
Test(rank_seconds, cold_jobs_are_slower)
{
    weft_rank_seconds s = {0};
    for (int i = 0; i < 3; i++)
        weft_rank_seconds_add(&s, &(weft_rank_run){0.5, 20, 0, 2, .cold = true});
    cr_assert_float_eq(weft_rank_seconds_of(&s, 0.5, 20, 0), 2, 1e-6);
    weft_rank_seconds_add(&s, &(weft_rank_run){0.5, 20, 0, 1});
    weft_rank_seconds_add(&s, &(weft_rank_run){0.5, 20, 0, 2, .cold = true});
    cr_assert_float_eq(weft_rank_seconds_of(&s, 0.5, 20, 0), 1, 1e-6);
}

/* The newest jobs determine the seconds. */
Test(rank_seconds, a_machine_changes)
{
    weft_rank_seconds s = learn(1, 0, 0, 30);
    for (int i = 0; i < WEFT_RANK_RUNS; i++)
        weft_rank_seconds_add(
            &s, &(weft_rank_run){0.5 + 0.1 * (i % 3), 20 + i % 7, 0, 1.5 * (0.5 + 0.1 * (i % 3))});
    cr_assert_float_eq(weft_rank_seconds_of(&s, 0.6, 20, 0), 0.9, 0.01);
}

Test(rank_seconds, what_is_unknown_is_like_other_ranks)
{
    weft_rank_table t = {0};
    weft_rank_seconds s = weft_rank_table_of(&t, 2);
    cr_assert(s.count == 0 && s.pace == 1 && s.slowness == 1 && s.warm == 0 && s.cold == 0);
    t.at[1] = learn(1, 0.5, 0.01, 9);
    weft_rank_mean_add(&t.at[1].cold, &t.at[1].colds, 3);
    weft_rank_mean_add(&t.at[0].warm, &t.at[0].warms, 2);
    weft_rank_mean_add(&t.at[0].warm, &t.at[0].warms, 1);
    s = weft_rank_table_of(&t, 3);
    cr_assert(s.pace > 1 && s.step == 0 && s.slowness == 1, "a pace alone");
    cr_assert_eq(s.ending, s.pace);
    cr_assert(s.cold == 3 && s.warm == 1.5);
    t.at[1] = (weft_rank_seconds){0};
    weft_rank_seconds_add(&t.at[1], &(weft_rank_run){0.5, 20, 0, 4.5});
    cr_assert_float_eq(weft_rank_table_of(&t, 0).pace, 3, 1e-9);
    cr_assert_float_eq(weft_rank_seconds_of(&t.at[1], 0.5, 20, 0), 4.5, 1e-6);
    t.at[1] = learn(1, 0.5, 0.01, 9);
    s = weft_rank_table_of(&t, 1);
    cr_assert(s.step == t.at[1].step && s.slowness == t.at[1].slowness);
}
