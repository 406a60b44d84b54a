/* Videos on shared devices: hand-made cases, limits of every decision, and conservation. */
#include "base/config.h"
#include "base/fs.h"
#include "base/rng.h"
#include "plan/queue/elastic_report.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* A small video gains little from devices, a large one almost all. */
static const weft_elastic_table mixed = {
    .sizes = {{"small", 10, {1, 0.7, 0.6, 0.6}, 0.5, 2}, {"large", 20, {8, 4.1, 2.1, 1.1}, 2, 1}},
    .count = 2};
static const double factors[] = {1.5, 2, 3, 5};

static weft_elastic_job *make(int64_t jobs, double load)
{
    const weft_elastic_trace o = {jobs, 8, 3, load, factors, 4};
    weft_elastic_job *made;
    cr_assert_eq(weft_elastic_trace_make(&o, &mixed, &made), WEFT_OK);
    return made;
}

static weft_elastic_score run(weft_elastic_policy policy, weft_elastic_job *jobs, int64_t count)
{
    const weft_elastic_rules rules = {policy, 8, 0.1, 0.5};
    weft_elastic_score s;
    cr_assert_eq(weft_elastic_replay(&rules, jobs, count, &s), WEFT_OK);
    return s;
}

/* A job alone has exactly the seconds of its degree; elastic policies decode on one device. */
Test(elastic, a_job_alone)
{
    for (int p = 0; p < WEFT_ELASTIC_POLICIES; p++) {
        weft_elastic_job job = {.size = &mixed.sizes[1], .arrival = 5, .deadline = 1000};
        const int degree = p == WEFT_ELASTIC_FIXED_1   ? 0
                           : p == WEFT_ELASTIC_FIXED_2 ? 1
                           : p == WEFT_ELASTIC_FIXED_4 ? 2
                                                       : 3;
        const double steps = 20 * mixed.sizes[1].step[degree];
        const weft_elastic_score s = run((weft_elastic_policy)p, &job, 1);
        if (p == WEFT_ELASTIC_TETRISERVE) /* waits for rounds */
            cr_assert(job.end >= 5 + 0.1 + steps + 2);
        else
            cr_assert_float_eq(job.end, 5 + 0.1 + steps + 2, 1e-9, "%s: %g",
                               weft_elastic_policy_name((weft_elastic_policy)p), job.end);
        cr_assert(s.met == 1 && s.deadlines == 1 && s.mean == job.end - 5);
    }
}

/* No decision gives away more devices than are idle, or changes a busy job; devices do not idle
 * while a job waits that could have one. */
Test(elastic, decisions_fit)
{
    enum { JOBS = 12 };
    weft_rng rng = weft_rng_make(1, WEFT_RNG_PLAN);
    weft_elastic_work work;
    cr_assert_eq(weft_elastic_work_create(JOBS, &work), WEFT_OK);
    for (int round = 0; round < 2000; round++) {
        weft_elastic_entry e[JOBS] = {0};
        int64_t degrees[JOBS], idle = 8, waiting = 0;
        for (int i = 0; i < JOBS; i++) {
            e[i] = (weft_elastic_entry){.size = &mixed.sizes[weft_rng_f64(&rng) < 0.5],
                                        .deadline = 100 + 100 * weft_rng_f64(&rng),
                                        .steps = (int64_t)(10 * weft_rng_f64(&rng))};
            const int64_t degree = 1 << (int)(3 * weft_rng_f64(&rng));
            if (weft_rng_f64(&rng) < 0.4 && degree <= idle) {
                e[i].busy = true;
                e[i].degree = degree;
                e[i].until = 100 + weft_rng_f64(&rng);
                idle -= degree;
            }
        }
        const weft_elastic_question q = {e, JOBS, 8, idle, 100, 0.1};
        for (int p = WEFT_ELASTIC_DDIT; p < WEFT_ELASTIC_POLICIES; p++) {
            int64_t sum = 0;
            waiting = 0;
            weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
            for (int i = 0; i < JOBS; i++) {
                cr_assert(degrees[i] >= 0 && (degrees[i] & (degrees[i] - 1)) == 0);
                cr_assert(!e[i].busy || degrees[i] == 0);
                cr_assert(e[i].steps > 0 || degrees[i] <= 1); /* decoding */
                sum += degrees[i];
                waiting += !e[i].busy && degrees[i] == 0;
            }
            cr_assert_leq(sum, idle);
            if (p >= WEFT_ELASTIC_WEFT || p == WEFT_ELASTIC_DDIT)
                cr_assert(waiting == 0 || sum == idle);
        }
    }
    weft_elastic_work_free(&work);
}

/* Two large videos of which one can meet its deadline: weft ends the one, and the fixed order and
 * an even split neither. */
Test(elastic, a_late_job_yields)
{
    weft_elastic_job jobs[] = {{.size = &mixed.sizes[1], .arrival = 0, .deadline = 20},
                               {.size = &mixed.sizes[1], .arrival = 1, .deadline = 27}};
    const weft_elastic_score s = run(WEFT_ELASTIC_WEFT, jobs, 2);
    cr_assert(s.met == 1 && jobs[1].end <= 27 && jobs[0].end > 27, "%g %g", jobs[0].end,
              jobs[1].end);
    cr_assert_eq(run(WEFT_ELASTIC_FIXED_8, jobs, 2).met, 0);
    cr_assert_eq(run(WEFT_ELASTIC_FIXED_4, jobs, 2).met, 0);
}

/* Every job ends after its least latency, equal seeds give equal results, and weft meets more
 * deadlines than the other policies. */
Test(elastic, traces)
{
    enum { JOBS = 400 };
    int64_t met[WEFT_ELASTIC_POLICIES], best = 0;
    weft_elastic_job *jobs = make(JOBS, 0.8), *again = make(JOBS, 0.8);
    for (int p = 0; p < WEFT_ELASTIC_POLICIES; p++) {
        const weft_elastic_score s = run((weft_elastic_policy)p, jobs, JOBS);
        const weft_elastic_score other = run((weft_elastic_policy)p, again, JOBS);
        cr_assert(!memcmp(&s, &other, sizeof s));
        cr_assert(s.used > 0 && s.used <= 1 && s.mean <= s.p99 && s.p95 <= s.p99);
        for (int i = 0; i < JOBS; i++)
            cr_assert_geq(jobs[i].end - jobs[i].arrival,
                          weft_elastic_latency(jobs[i].size, 8) - 1e-9);
        met[p] = s.met;
        if (p != WEFT_ELASTIC_WEFT && met[p] > best)
            best = met[p];
    }
    cr_assert_gt(met[WEFT_ELASTIC_WEFT], best);
    weft_free(jobs);
    weft_free(again);
}

/* A job of a higher priority gets its devices first, although the deadline of the other one is
 * earlier and can be met. */
Test(elastic, a_priority_comes_first)
{
    const weft_elastic_size wide = {"wide", 10, {4, 2, 1, 0.5}, 0, 1};
    weft_elastic_entry e[] = {{.size = &wide, .deadline = 6, .steps = 10},
                              {.size = &wide, .deadline = 9, .steps = 10, .priority = 1}};
    const weft_elastic_question q = {e, 2, 8, 8, 0, 0.1};
    int64_t degrees[2];
    weft_elastic_work work;
    cr_assert_eq(weft_elastic_work_create(2, &work), WEFT_OK);
    for (int p = WEFT_ELASTIC_WEFT; p <= WEFT_ELASTIC_START; p++) {
        weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
        cr_assert(degrees[0] == 0 && degrees[1] == 8, "%d %d", (int)degrees[0], (int)degrees[1]);
    }
    e[1].priority = -1;
    weft_elastic_choose(WEFT_ELASTIC_WEFT, &q, &work, degrees);
    cr_assert(degrees[0] == 8 && degrees[1] == 0);
    weft_elastic_work_free(&work);
}

/* A degree without seconds does not fit the memory, and is never chosen. */
Test(elastic, a_degree_that_does_not_fit)
{
    const weft_elastic_size large = {"large", 10, {INFINITY, INFINITY, 1, INFINITY}, 0, 1},
                            none = {"none", 10, {INFINITY, INFINITY, INFINITY, INFINITY}, 0, 1};
    const weft_elastic_entry e[] = {{.size = &none, .steps = 10},
                                    {.size = &large, .steps = 10, .deadline = 1},
                                    {.size = &large, .steps = 10},
                                    {.size = &large, .steps = 10, .deadline = 100}};
    int64_t degrees[4];
    weft_elastic_work work;
    cr_assert_eq(weft_elastic_work_create(4, &work), WEFT_OK);
    for (int64_t idle = 0; idle <= 8; idle++) {
        const weft_elastic_question q = {e, 4, 8, idle, 0, 0.1};
        for (int p = WEFT_ELASTIC_WEFT; p <= WEFT_ELASTIC_START; p++) {
            weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
            cr_assert(degrees[0] == 0 && degrees[1] == 0);
            cr_assert(degrees[3] == (idle >= 4 ? 4 : 0) && degrees[2] == (idle == 8 ? 4 : 0));
        }
    }
    weft_elastic_work_free(&work);
}

/* Jobs of one device would take each device that becomes idle. The job of 8 waits for its own seconds,
 * and then the devices are kept for the job; not against a higher priority. */
Test(elastic, a_wide_job_does_not_starve)
{
    const weft_elastic_size large = {"large", 10, {INFINITY, INFINITY, INFINITY, 1}, 0, 1},
                            small = {"small", 10, {1, INFINITY, INFINITY, INFINITY}, 0, 1};
    weft_elastic_entry e[] = {{.size = &large, .steps = 10},
                              {.size = &small, .steps = 10, .arrival = 4, .deadline = 40}};
    int64_t degrees[2];
    weft_elastic_work work;
    cr_assert_eq(weft_elastic_work_create(2, &work), WEFT_OK);
    for (int p = WEFT_ELASTIC_WEFT; p <= WEFT_ELASTIC_START; p++) {
        weft_elastic_question q = {e, 2, 8, 7, 9, 0};
        weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
        cr_assert(degrees[0] == 0 && degrees[1] == 1);
        q.now = 11;
        weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
        cr_assert(degrees[0] == 0 && degrees[1] == 0, "the devices are kept");
        q.idle = 8;
        weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
        cr_assert(degrees[0] == 8 && degrees[1] == 0);
        q.idle = 7;
        e[1].priority = 1;
        weft_elastic_choose((weft_elastic_policy)p, &q, &work, degrees);
        cr_assert(degrees[0] == 0 && degrees[1] == 1);
        e[1].priority = 0;
    }
    weft_elastic_work_free(&work);
}

/* A stream of small jobs on all devices: the wide job ends, and long before the stream does. */
Test(elastic, a_wide_job_ends_before_a_stream)
{
    enum { SMALL = 200 };
    const weft_elastic_size large = {"large", 10, {INFINITY, INFINITY, INFINITY, 1}, 0, 1},
                            small = {"small", 10, {1, INFINITY, INFINITY, INFINITY}, 0, 1};
    weft_elastic_job jobs[SMALL + 1];
    for (int i = 0; i <= SMALL; i++) /* 10 seconds each, a new one as soon as one ends */
        jobs[i] = (weft_elastic_job){.size = &small, .arrival = 10 * (i / 8) + i % 8};
    jobs[8] = (weft_elastic_job){.size = &large, .arrival = 10};
    const weft_elastic_rules rules = {WEFT_ELASTIC_START, 8, 0, 0};
    cr_assert_eq(weft_elastic_replay(&rules, jobs, SMALL + 1, NULL), WEFT_OK);
    cr_assert(jobs[8].start >= 20 && jobs[8].start <= 40, "%g", jobs[8].start);
    jobs[8].waited = 10; /* before the replay */
    cr_assert_eq(weft_elastic_replay(&rules, jobs, SMALL + 1, NULL), WEFT_OK);
    cr_assert(jobs[8].start < 25, "%g", jobs[8].start);
}

/* Jobs that can change at each step: a wide job that has begun is not stopped for a later wide job, nor
 * for small jobs. */
Test(elastic, wide_jobs_do_not_stop_each_other)
{
    const weft_elastic_size large = {"large", 50, {INFINITY, INFINITY, INFINITY, 1}, 0, 1},
                            small = {"small", 10, {1, INFINITY, INFINITY, INFINITY}, 0, 1};
    weft_elastic_job jobs[] = {{.size = &large},
                               {.size = &large, .arrival = 1},
                               {.size = &large, .arrival = 2},
                               {.size = &small, .arrival = 3}};
    const weft_elastic_rules rules = {WEFT_ELASTIC_WEFT, 8, 0, 1};
    cr_assert_eq(weft_elastic_replay(&rules, jobs, 4, NULL), WEFT_OK);
    for (int i = 0; i < 4; i++)
        cr_assert_leq(jobs[i].resizes, 1, "job %d: %d", i, (int)jobs[i].resizes);
    cr_assert_leq(jobs[2].end, 170, "%g", jobs[2].end);
}

/* The forecast of a queue: a held job ends first, on its devices, and other jobs start
 * at the same time or later. */
Test(elastic, a_replay_begins_with_held_jobs)
{
    const weft_elastic_size wide = {"wide", 10, {4, 2, 1, 0.5}, 0, 1},
                            rest = {"rest", 0, {0, 0, 0, 0}, 0, 1},
                            two = {"two", 2, {4, 2, 1, 0.5}, 0, 1};
    for (int elastic = 0; elastic < 2; elastic++) {
        weft_elastic_job jobs[] = {
            {.size = elastic ? &two : &rest, .arrival = 5, .held = 4, .busy = elastic ? 1 : 3},
            {.size = &wide, .arrival = 5},
            {.size = &wide, .arrival = 5}};
        const weft_elastic_rules rules = {elastic ? WEFT_ELASTIC_WEFT : WEFT_ELASTIC_START, 8, 0,
                                          0};
        cr_assert_eq(weft_elastic_replay(&rules, jobs, 3, NULL), WEFT_OK);
        cr_assert(jobs[0].start == 5 && jobs[0].order == 0);
        cr_assert(jobs[1].order == 1 && jobs[2].order == 2 && jobs[1].start == 5);
        const double last = fmax(fmax(jobs[0].end, jobs[1].end), jobs[2].end);
        if (elastic) /* 92 device seconds on 8 devices, which idle at the end alone */
            cr_assert(jobs[0].end >= 7 && last >= 16.5 && last <= 18, "%g %g", jobs[0].end, last);
        else
            cr_assert(jobs[0].end == 8 && jobs[1].end == 25 && jobs[2].end == 25, "%g %g",
                      jobs[1].end, jobs[2].end);
    }
}

/* weft-start: no job changes its devices, and more deadlines are met than with any fixed degree. */
Test(elastic, devices_are_kept)
{
    enum { JOBS = 400 };
    weft_elastic_job *jobs = make(JOBS, 0.7);
    const weft_elastic_score s = run(WEFT_ELASTIC_START, jobs, JOBS);
    cr_assert_eq(s.resizes, 0);
    for (int p = WEFT_ELASTIC_FIXED_1; p <= WEFT_ELASTIC_FIXED_8; p++)
        cr_assert_gt(s.met, run((weft_elastic_policy)p, jobs, JOBS).met);
    weft_free(jobs);
}

Test(elastic, tables_are_checked)
{
    weft_elastic_table t;
    char path[] = "/tmp/weft_elastic_XXXXXX";
    static const char *const texts[] = {
        "{\"sizes\": []}",
        "{\"sizes\": [{\"name\": \"a\", \"steps\": 3, \"step_seconds\": [], "
        "\"decode_seconds\": 1, \"share\": 1}]}",
        "{\"sizes\": [{\"name\": \"a\", \"steps\": 0, \"step_seconds\": [1, 1, 1, 1], "
        "\"decode_seconds\": 1, \"share\": 1}]}"};
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    close(file);
    for (int i = 0; i < WEFT_COUNT(texts); i++) {
        cr_assert_eq(weft_file_write_atomic(path, texts[i], (int64_t)strlen(texts[i])), WEFT_OK);
        cr_assert_neq(weft_elastic_table_read(path, &t), WEFT_OK);
        cr_assert_eq(weft_error_class(), WEFT_MSG_FORMAT_DAMAGED);
        weft_error_clear();
    }
    unlink(path);
}

/* A start on an idle worker of the same devices takes `warm` seconds; another start takes `cold`
 * seconds, and first ends idle workers if it needs their devices. */
Test(elastic, idle_workers_start_fast)
{
    enum { JOBS = 4 };
    static const weft_elastic_size narrow = {"narrow", 1, {1, INFINITY, INFINITY, INFINITY}, 0, 1},
                                   wide = {"wide", 1, {INFINITY, 1, INFINITY, INFINITY}, 0, 1};
    const weft_elastic_starts starts = {
        .idle = {2}, .warm = {0.125, 0.25}, .cold = {0.5, 1}, .retire = 0.0625};
    const weft_elastic_rules rules = {
        .policy = WEFT_ELASTIC_START, .devices = 2, .change = 9, .starts = &starts};
    weft_elastic_job jobs[JOBS] = {{.size = &narrow, .arrival = 1},
                                   {.size = &wide, .arrival = 10},
                                   {.size = &wide, .arrival = 20},
                                   {.size = &narrow, .arrival = 30}};
    cr_assert_eq(weft_elastic_replay(&rules, jobs, JOBS, NULL), WEFT_OK);
    const double ends[JOBS] = {1 + 0.125 + 1, 10 + 1.0625 + 1, 20 + 0.25 + 1, 30 + 0.5625 + 1};
    for (int i = 0; i < JOBS; i++)
        cr_assert_eq(jobs[i].end, ends[i], "job %d: %g", i, jobs[i].end);
    const weft_elastic_rules cold = {.policy = WEFT_ELASTIC_START, .devices = 2, .change = 0.5};
    cr_assert_eq(weft_elastic_replay(&cold, jobs, JOBS, NULL), WEFT_OK);
    cr_assert(jobs[0].end == 2.5 && jobs[2].end == 21.5);
}

/* A job is slower while another one runs, and only then. */
Test(elastic, jobs_slow_each_other)
{
    static const weft_elastic_size narrow = {"narrow", 4, {1, INFINITY, INFINITY, INFINITY}, 0, 1};
    const double crowded[WEFT_ELASTIC_DEGREES] = {2, 1, 1, 1};
    const weft_elastic_rules rules = {
        .policy = WEFT_ELASTIC_START, .devices = 2, .crowded = crowded};
    weft_elastic_job jobs[] = {{.size = &narrow, .arrival = 0}, {.size = &narrow, .arrival = 2}};
    cr_assert_eq(weft_elastic_replay(&rules, jobs, 2, NULL), WEFT_OK);
    cr_assert_eq(jobs[0].end, 2 + 2 * 2, "%g", jobs[0].end);
    cr_assert_eq(jobs[1].end, 6 + 2, "%g", jobs[1].end);
    /* the seconds of a job that is held have its present slowness */
    weft_elastic_job held[] = {{.size = &narrow, .held = 1, .busy = 2}, {.size = &narrow}};
    weft_elastic_size none = narrow;
    none.steps = 0;
    held[0].size = &none;
    cr_assert_eq(weft_elastic_replay(&rules, held, 2, NULL), WEFT_OK);
    cr_assert(held[0].end == 4 && held[1].end == 4 + 2, "%g %g", held[0].end, held[1].end);
}

/* Steps between two decisions, and the decoding on the devices of the last step. */
Test(elastic, decisions_are_rare)
{
    static const weft_elastic_size size = {"a", 8, {1, 0.5, INFINITY, INFINITY}, 3, 1};
    weft_elastic_rules rules = {
        .policy = WEFT_ELASTIC_WEFT, .devices = 2, .interval = 2, .whole = true};
    weft_elastic_job jobs[] = {{.size = &size, .arrival = 0}, {.size = &size, .arrival = 0.5}};
    cr_assert_eq(weft_elastic_replay(&rules, jobs, 2, NULL), WEFT_OK);
    /* the second job waits for four steps of 0.5 s, and then each has one device */
    cr_assert(jobs[1].start == 2 && jobs[0].end == 2 + 4 + 3, "%g %g", jobs[1].start, jobs[0].end);
    rules.interval = 0;
    cr_assert_eq(weft_elastic_replay(&rules, jobs, 2, NULL), WEFT_OK);
    cr_assert_eq(jobs[1].start, 0.5, "%g", jobs[1].start);
}
