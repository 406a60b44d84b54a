/* Replays of a queue: conservation, the bound, costs of a change, forecasts, and traces. */
#include "base/fs.h"
#include "base/memory.h"
#include "plan/queue/queue_report.h"
#include "plan/queue/queue_trace.h"
#include "plan/queue/queue_trace_file.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const weft_queue_trace_options mixed = {.jobs = 300,
                                               .owners = 3,
                                               .steps = 20,
                                               .workers = 1,
                                               .seed = 3,
                                               .load = 0.9,
                                               .sizes = {10, 30, 60, 240},
                                               .size_count = 4,
                                               .deadlines = {1.5, 2, 3, 5},
                                               .deadline_count = 4};

static weft_queue_run *make(weft_queue_trace_options o)
{
    weft_queue_run *jobs;
    cr_assert_eq(weft_queue_trace_make(&o, &jobs), WEFT_OK);
    return jobs;
}

static weft_queue_score score(const weft_queue_rules *rules, weft_queue_run *jobs)
{
    weft_queue_score s;
    cr_assert_eq(weft_queue_score_replay(rules, jobs, mixed.jobs, mixed.owners, &s), WEFT_OK);
    return s;
}

/* A job needs its own seconds. One worker does one thing at a time. No policy is below the bound. */
Test(queue_replay, work_is_conserved)
{
    weft_queue_run *jobs = make(mixed);
    for (int p = 0; p < WEFT_QUEUE_POLICIES; p++) {
        const weft_queue_rules rules = {(weft_queue_policy)p, 0.02, 1, 0.5, 1};
        const weft_queue_score s = score(&rules, jobs);
        double work = 0, last = 0;
        for (int64_t i = 0; i < mixed.jobs; i++) {
            const weft_queue_run *j = &jobs[i];
            cr_assert(j->start >= j->entry.arrival);
            cr_assert(j->end >= j->start + j->actual + rules.start - 1e-6);
            work += j->actual + rules.start + (double)j->stops * (rules.start + rules.stop);
            last = fmax(last, j->end);
        }
        cr_assert(work <= last + 1e-6 && s.mean >= s.bound);
        cr_assert((s.stops > 0) == (p != WEFT_QUEUE_FIFO));
    }
    weft_free(jobs);
}

Test(queue_replay, policies_do_what_they_are_for)
{
    weft_queue_run *jobs = make(mixed);
    weft_queue_score s[WEFT_QUEUE_POLICIES];
    for (int p = 0; p < WEFT_QUEUE_POLICIES; p++) {
        const weft_queue_rules rules = {(weft_queue_policy)p, 0.02, 0, 0, 1};
        s[p] = score(&rules, jobs);
    }
    cr_assert(s[WEFT_QUEUE_SRPT].mean < 1.05 * s[WEFT_QUEUE_SRPT].bound);
    cr_assert(s[WEFT_QUEUE_EDF].mean < 1.05 * s[WEFT_QUEUE_EDF].bound);
    cr_assert(s[WEFT_QUEUE_EDF].met > s[WEFT_QUEUE_SRPT].met);
    cr_assert(s[WEFT_QUEUE_SRPT].met > s[WEFT_QUEUE_FIFO].met);
    const weft_queue_rules costly = {WEFT_QUEUE_SRPT, 0.02, 1e4, 0, 1};
    cr_assert_eq(score(&costly, jobs).stops, 0);
    weft_free(jobs);
}

/* All at once: the shortest first is the bound. */
Test(queue_replay, the_bound_is_reached_without_arrivals)
{
    weft_queue_run jobs[20] = {0};
    double used[1] = {0}, sum = 0, work = 0, mean;
    for (int i = 0; i < 20; i++)
        jobs[i] = (weft_queue_run){.entry = {.number = i, .seconds = 1 + i * 7 % 11},
                                   .actual = 1 + i * 7 % 11,
                                   .steps = 3};
    const weft_queue_rules rules = {WEFT_QUEUE_SRPT, 0, 0, 0, 1};
    cr_assert_eq(weft_queue_replay(&rules, jobs, 20, used, 0), WEFT_OK);
    for (int i = 0; i < 20; i++) {
        sum += jobs[i].end;
        work += jobs[i].actual;
    }
    cr_assert_eq(weft_queue_least_mean(jobs, 20, &mean), WEFT_OK);
    cr_assert_float_eq(sum / 20, mean, 1e-9);
    cr_assert_float_eq(used[0], work, 1e-9);
}

Test(queue_replay, owners_get_equal_seconds)
{
    weft_queue_run jobs[40] = {0};
    double used[2] = {0};
    for (int i = 0; i < 40; i++) /* the first owner has sent all its jobs before the second one */
        jobs[i] =
            (weft_queue_run){.entry = {.number = i, .rank = i, .seconds = 10, .owner = i / 20},
                             .actual = 10,
                             .steps = 5};
    const weft_queue_rules rules = {WEFT_QUEUE_FAIR, 0, 0, 0, 1};
    cr_assert_eq(weft_queue_replay(&rules, jobs, 40, used, 0), WEFT_OK);
    for (int i = 0; i < 20; i++)
        cr_assert(fabs(jobs[i].end - jobs[20 + i].end) <= 10, "pair %d", i);
}

Test(queue_replay, a_forecast_begins_with_the_running_job)
{
    weft_queue_run jobs[] = {
        {.entry = {.number = 1, .seconds = 30, .rank = 1}, .actual = 30, .steps = 1},
        {.entry = {.number = 2, .held = true, .seconds = 5, .rank = 2}, .actual = 5, .steps = 5},
        {.entry = {.number = 3, .seconds = 4, .rank = 3, .priority = 1}, .actual = 4, .steps = 1}};
    double used[1] = {0};
    const weft_queue_rules rules = {WEFT_QUEUE_FIFO, 0, 2, 1, 1};
    cr_assert_eq(weft_queue_replay(&rules, jobs, 3, used, 1000), WEFT_OK);
    cr_assert(jobs[1].position == 0 && jobs[1].start == 1000 && jobs[1].end == 1005);
    cr_assert(jobs[2].position == 1 && jobs[2].start == 1005 && jobs[2].end == 1011);
    cr_assert(jobs[0].position == 2 && jobs[0].start == 1011 && jobs[0].end == 1043);
    /* a running job that will be stopped at the end of its step */
    const weft_queue_rules srpt = {WEFT_QUEUE_SRPT, 0, 0.5, 0.5, 1};
    jobs[1].entry.seconds = jobs[1].actual = 100;
    cr_assert_eq(weft_queue_replay(&srpt, jobs, 3, used, 0), WEFT_OK);
    cr_assert(jobs[2].start == 20 && jobs[2].end == 25 && jobs[1].stops == 1);
}

Test(queue_replay, workers_share_the_queue)
{
    weft_queue_run *one = make(mixed);
    weft_queue_trace_options o = mixed;
    o.workers = 4;
    weft_queue_run *four = make(o);
    const weft_queue_rules rules = {WEFT_QUEUE_EDF, 0.02, 0, 0, 1},
                           more = {WEFT_QUEUE_EDF, 0.02, 0, 0, 4};
    const weft_queue_score a = score(&rules, one), b = score(&more, four);
    cr_assert(b.met > a.met && b.bound == 0 && a.bound > 0); /* the same load is easier to share */
    weft_free(one);
    weft_free(four);
}

Test(queue_replay, a_trace_is_written_and_read)
{
    weft_queue_run *jobs = make(mixed), *again, *more;
    int64_t count, owners;
    cr_assert_eq(weft_queue_trace_write("queue-trace.jsonl", jobs, mixed.jobs), WEFT_OK);
    cr_assert_eq(weft_queue_trace_read("queue-trace.jsonl", &again, &count, &owners), WEFT_OK, "%s",
                 weft_error_message());
    unlink("queue-trace.jsonl");
    cr_assert(count == mixed.jobs && owners == mixed.owners);
    weft_queue_trace_options o = mixed;
    o.jobs++;
    more = make(o);
    for (int64_t i = 0; i < count; i++) {
        const weft_queue_entry *x = &jobs[i].entry, *y = &again[i].entry;
        cr_assert(x->arrival == y->arrival && x->seconds == y->seconds &&
                  x->deadline == y->deadline && jobs[i].steps == again[i].steps);
        cr_assert_eq(more[i].entry.arrival, x->arrival);
    }
    weft_free(jobs);
    weft_free(again);
    weft_free(more);
}

Test(queue_replay, a_failed_allocation_is_reported)
{
    weft_queue_run *jobs = make(mixed);
    weft_queue_score s;
    const weft_queue_rules rules = {WEFT_QUEUE_EDF, 0.02, 0, 0, 1};
    for (int64_t n = 1; n < 12; n++) {
        weft_alloc_fail_at(n);
        cr_assert_eq(weft_queue_score_replay(&rules, jobs, mixed.jobs, mixed.owners, &s),
                     WEFT_E_MEMORY, "allocation %d", (int)n);
    }
    weft_alloc_fail_at(0);
    weft_free(jobs);
}
