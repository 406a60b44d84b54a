/* Policies of a queue: the next job, and deadlines compared with all orders. */
#include "base/memory.h"
#include "base/rng.h"
#include "plan/queue/queue_replay.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Number of the job that has the worker next; 0: none. `held`: number of the running job. */
static int64_t next(weft_queue_rules rules, weft_queue_entry *e, int64_t count, int64_t held,
                    const double *used)
{
    weft_queue_question q = {&rules, e, count, -1, used, 100};
    int64_t chosen;
    qsort(e, (size_t)count, sizeof *e, weft_queue_deadlines_compare);
    for (int64_t i = 0; i < count; i++) {
        e[i].held = e[i].number == held;
        if (e[i].held)
            q.held = i;
    }
    cr_assert_eq(weft_queue_choose(&q, &chosen), WEFT_OK);
    return chosen < 0 ? 0 : e[chosen].number;
}

Test(queue_policy, names_are_unique)
{
    for (int p = 0; p < WEFT_QUEUE_POLICIES; p++)
        cr_assert_eq(weft_queue_policy_find(weft_queue_policy_name((weft_queue_policy)p)), p);
    cr_assert_eq(weft_queue_policy_find("sjf"), WEFT_QUEUE_POLICIES);
}

Test(queue_policy, fifo_and_priorities)
{
    const double used[1] = {0};
    weft_queue_entry e[] = {{.number = 1, .seconds = 50, .rank = 9},
                            {.number = 2, .seconds = 1, .rank = 2},
                            {.number = 3, .seconds = 9, .rank = 3, .priority = 1}};
    weft_queue_rules rules = {.workers = 1, .stop = 1, .start = 2};
    cr_assert_eq(next(rules, e, 3, 0, used), 3);
    cr_assert_eq(next(rules, e, 3, 1, used), 1); /* a running job is not stopped */
    e[0].priority = e[1].priority = e[2].priority = 0;
    cr_assert_eq(next(rules, e, 3, 0, used), 2);
    cr_assert_eq(next(rules, e, 0, 0, used), 0);
    rules.policy = WEFT_QUEUE_SRPT;
    for (int i = 0; i < 3; i++)
        e[i].priority = e[i].number == 3;
    cr_assert_eq(next(rules, e, 3, 0, used), 3);
    cr_assert_eq(next(rules, e, 3, 1, used), 3); /* a higher priority stops */
    for (int i = 0; i < 3; i++)
        e[i].seconds = e[i].number == 1 ? 3 : e[i].seconds;
    cr_assert_eq(next(rules, e, 3, 1, used), 1); /* but not for less than it costs */
    cr_assert_eq(next(rules, e, 3, 3, used), 3); /* and no lower one does */
}

Test(queue_policy, srpt_weighs_the_change)
{
    const double used[1] = {0};
    weft_queue_entry e[] = {{.number = 1, .seconds = 20, .arrival = 100},
                            {.number = 2, .seconds = 8, .arrival = 100}};
    weft_queue_rules rules = {WEFT_QUEUE_SRPT, 0, 0, 0, 1};
    cr_assert_eq(next(rules, e, 2, 0, used), 2);
    cr_assert_eq(next(rules, e, 2, 1, used), 2);
    cr_assert_eq(next(rules, e, 2, 2, used), 2);
    rules.start = rules.stop = 2; /* 20 - 2 seconds are gained, 2 + 10 + 2 are lost */
    cr_assert_eq(next(rules, e, 2, 1, used), 2);
    rules.start = rules.stop = 3; /* 17 and 17 */
    cr_assert_eq(next(rules, e, 2, 1, used), 1);
    cr_assert_eq(next(rules, e, 2, 0, used), 2);
    rules.ageing = 0.1; /* the longer job has waited 200 seconds more */
    for (int i = 0; i < 2; i++)
        e[i].arrival = e[i].number == 1 ? -100 : 100;
    cr_assert_eq(next(rules, e, 2, 0, used), 1);
}

Test(queue_policy, fair_shares_the_seconds)
{
    double used[] = {30, 10};
    weft_queue_entry e[] = {{.number = 1, .seconds = 5, .owner = 0},
                            {.number = 2, .seconds = 15, .owner = 1, .rank = 7},
                            {.number = 3, .seconds = 4, .owner = 1, .rank = 8}};
    const weft_queue_rules rules = {WEFT_QUEUE_FAIR, 0, 1, 1, 1};
    cr_assert_eq(next(rules, e, 3, 0, used), 2);
    cr_assert_eq(next(rules, e, 3, 1, used), 2); /* 10 + 15 + 3 are below 30 */
    used[1] = 12;
    cr_assert_eq(next(rules, e, 3, 1, used), 1);
    used[1] = 31;
    cr_assert_eq(next(rules, e, 3, 0, used), 1);
    cr_assert_eq(next(rules, e, 3, 2, used), 2);
}

Test(queue_policy, edf_protects_deadlines)
{
    const double used[1] = {0};
    weft_queue_entry e[] = {{.number = 1, .seconds = 30, .deadline = 140, .arrival = 100},
                            {.number = 2, .seconds = 8, .arrival = 100},
                            {.number = 3, .seconds = 20, .deadline = 110, .arrival = 100}};
    weft_queue_rules rules = {WEFT_QUEUE_EDF, 0, 0, 0, 1};
    cr_assert_eq(next(rules, e, 3, 0, used), 2); /* 8 + 30 seconds end before 140 */
    for (int i = 0; i < 3; i++)
        e[i].deadline = e[i].number == 1 ? 135 : e[i].number == 3 ? 110 : 0;
    cr_assert_eq(next(rules, e, 3, 0, used), 1); /* but not before 135 */
    cr_assert_eq(next(rules, e, 3, 2, used), 1); /* which is worth a stop without cost */
    rules.stop = 6;                              /* but not if the deadline is missed, too */
    cr_assert_eq(next(rules, e, 3, 2, used), 2);
    rules = (weft_queue_rules){WEFT_QUEUE_EDF, 1, 0, 0, 1};
    for (int i = 0; i < 3; i++)
        e[i].arrival = e[i].number == 2 ? 50 : 100;
    cr_assert_eq(next(rules, e, 3, 0, used), 2); /* has waited too long */
}

/* The largest number of jobs that can meet their deadlines, over all subsets. */
static int64_t most_on_time(const weft_queue_run *jobs, int count)
{
    int64_t most = 0;
    for (int set = 0; set < 1 << count; set++) {
        double now = 0;
        int64_t met = 0;
        bool ok = true;
        for (int i = 0; i < count && ok; i++) /* sorted by deadline */
            if (set >> i & 1) {
                now += jobs[i].actual;
                ok = now <= jobs[i].entry.deadline;
                met++;
            }
        if (ok && met > most)
            most = met;
    }
    return most;
}

static int compare_runs(const void *a, const void *b)
{
    const weft_queue_run *x = a, *y = b;
    return weft_queue_deadlines_compare(&x->entry, &y->entry);
}

Test(queue_policy, edf_meets_as_many_deadlines_as_any_order)
{
    enum { JOBS = 9, CASES = 200 };
    weft_rng rng = weft_rng_make(7, WEFT_RNG_TEST);
    for (int c = 0; c < CASES; c++) {
        weft_queue_run jobs[JOBS] = {0};
        double used[1] = {0};
        int64_t met = 0;
        for (int i = 0; i < JOBS; i++) {
            jobs[i].actual = jobs[i].entry.seconds = 1 + (double)weft_rng_below(&rng, 20);
            jobs[i].entry.deadline = 1 + (double)weft_rng_below(&rng, 90);
            jobs[i].entry.number = i + 1;
            jobs[i].steps = 4;
        }
        qsort(jobs, JOBS, sizeof *jobs, compare_runs);
        const weft_queue_rules rules = {WEFT_QUEUE_EDF, 0, 0, 0, 1};
        cr_assert_eq(weft_queue_replay(&rules, jobs, JOBS, used, 0), WEFT_OK);
        for (int i = 0; i < JOBS; i++)
            met += jobs[i].end <= jobs[i].entry.deadline;
        cr_assert_eq(met, most_on_time(jobs, JOBS), "case %d", c);
    }
}
