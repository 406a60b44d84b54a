/* Forecasts of the queue for users: the same replay as of `weft simulate serve`. */
#include "serve/queue_view.h"

#include <criterion/criterion.h>

#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

static weft_queue_store *open_store(void)
{
    weft_queue_store *s = NULL;
    snprintf(folder, sizeof folder, "/tmp/weft-view-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert_eq(weft_queue_store_open(folder, &s), WEFT_OK, "%s", weft_error_message());
    return s;
}

static void close_store(weft_queue_store *s)
{
    weft_queue_store_close(s);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

static void add(weft_queue_store *s, const char *id, double seconds, double deadline)
{
    bool existing;
    weft_queue_job job = {.created = 990,
                          .seconds = seconds,
                          .deadline = deadline,
                          .request = weft_strdup("{\"steps\": 25}"),
                          .owner = weft_strdup(seconds > 50 ? "long" : "short"),
                          .fingerprint = weft_strdup(id)};
    snprintf(job.id, sizeof job.id, "%s", id);
    cr_assert_eq(weft_queue_store_add(s, &job, &existing), WEFT_OK, "%s", weft_error_message());
    weft_queue_job_free(&job);
}

/* A job of 100 seconds runs since 40 seconds; jobs of 20, 5 and 30 seconds wait. */
static void fill(weft_queue_store *s)
{
    weft_queue_state next;
    const weft_queue_change change = {.now = 960};
    add(s, "a", 100, 0);
    cr_assert_eq(weft_queue_store_apply(s, "a", WEFT_QUEUE_START, &change, &next), WEFT_OK);
    add(s, "b", 20, 0);
    add(s, "c", 5, 0);
    add(s, "d", 30, 1040);
}

static void check(const weft_queue_view *v, int64_t number, double start, double end)
{
    const weft_queue_forecast *f = weft_queue_view_find(v, number);
    cr_assert(f != NULL);
    cr_assert_float_eq(f->start, start, 1e-6, "job %d starts at %g", (int)number, f->start);
    cr_assert_float_eq(f->end, end, 1e-6, "job %d ends at %g", (int)number, f->end);
}

Test(queue_view, forecasts_follow_the_policy)
{
    weft_queue_store *s = open_store();
    weft_queue_view v = {0};
    weft_queue_rules rules = {WEFT_QUEUE_FIFO, 0, 2, 1, 1};
    weft_queue_moment m = {&rules, 1000, 42, -1, 30, 1}; /* 2 seconds were the start */
    weft_queue_forecast f;
    const weft_queue_entry last = {
        .number = INT64_MAX, .seconds = 7, .rank = INT64_MAX, .arrival = 1000.5};
    int64_t number;
    fill(s);
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK, "%s", weft_error_message());
    check(&v, 1, 1000, 1060);
    check(&v, 2, 1060, 1082);
    check(&v, 3, 1082, 1089);
    check(&v, 4, 1089, 1121);
    cr_assert_eq(weft_queue_view_predict(&v, &last, "new", NULL, &f), WEFT_OK);
    cr_assert(f.position == 4 && f.start == 1121 && f.end == 1130);
    cr_assert(weft_queue_view_choose(&v, &number) == WEFT_OK && number == 1);
    rules.policy = WEFT_QUEUE_SRPT; /* the running job is stopped for the three others */
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    cr_assert(weft_queue_view_choose(&v, &number) == WEFT_OK && number == 3);
    check(&v, 3, 1002, 1010); /* after a step of 2 seconds, the stop and the start */
    check(&v, 2, 1010, 1032);
    check(&v, 4, 1032, 1064);
    check(&v, 1, 1000, 1124);
    rules.policy = WEFT_QUEUE_EDF; /* the deadline of 1040 permits no job before */
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 4, 1002, 1035);
    check(&v, 3, 1035, 1042);
    rules.policy = WEFT_QUEUE_FAIR;
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    cr_assert_eq(v.owners.used[0], 42); /* of the running job */
    cr_assert(weft_queue_view_choose(&v, &number) == WEFT_OK && number == 2);
    weft_queue_view_free(&v);
    close_store(s);
}

/* Short jobs came every 10 seconds, and will overtake the long one. Batches use the end without later
 * jobs, which stays known. */
Test(queue_view, later_jobs_are_expected)
{
    weft_queue_store *s = open_store();
    weft_queue_view v = {0};
    weft_queue_rules rules = {WEFT_QUEUE_SRPT, 0, 0, 0, 1};
    weft_queue_moment m = {.rules = &rules, .now = 1080, .left = -1, .version = 1, .pace = 1};
    weft_queue_state next;
    const weft_queue_change change = {.now = 1080};
    char id[8];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof id, "j%d", i);
        add(s, id, 5, 0);
        cr_assert_eq(weft_queue_store_apply(s, id, WEFT_QUEUE_CANCEL, &change, &next), WEFT_OK);
    }
    add(s, "long", 100, 0);
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK, "%s", weft_error_message());
    const weft_queue_forecast *f = weft_queue_view_find(&v, 10);
    cr_assert_eq(v.past_count, 10);
    cr_assert_float_eq(f->end, 1180, 1e-6);
    cr_assert(f->likely.end > 1190 && f->likely.earliest <= f->likely.end &&
                  f->likely.end <= f->likely.latest,
              "%g in %g to %g", f->likely.end, f->likely.earliest, f->likely.latest);
    const weft_queue_entry last = {.seconds = 100, .arrival = 1080, .steps = 30};
    weft_queue_forecast other;
    cr_assert_eq(weft_queue_view_predict(&v, &last, "", NULL, &other), WEFT_OK);
    cr_assert(other.position == 1 && other.likely.end > f->likely.end);
    rules.policy = WEFT_QUEUE_FIFO; /* nothing overtakes */
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    f = weft_queue_view_find(&v, 10);
    cr_assert_float_eq(f->likely.end, 1180, 1e-6);
    cr_assert(f->likely.earliest == f->likely.latest);
    weft_queue_view_free(&v);
    close_store(s);
}

/* The pace of finished jobs scales the seconds of jobs without progress. */
Test(queue_view, the_pace_scales_predictions)
{
    weft_queue_store *s = open_store();
    weft_queue_view v = {0};
    const weft_queue_rules rules = {WEFT_QUEUE_FIFO, 0, 2, 1, 1};
    weft_queue_moment m = {&rules, 1000, 42, -1, 30, 1, 0.5};
    const weft_queue_entry last = {
        .number = INT64_MAX, .seconds = 8, .rank = INT64_MAX, .arrival = 1000.5};
    weft_queue_forecast f;
    fill(s);
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK, "%s", weft_error_message());
    check(&v, 1, 1000, 1010);
    check(&v, 2, 1010, 1022);
    check(&v, 4, 1026.5, 1043.5);
    cr_assert_eq(weft_queue_view_predict(&v, &last, "new", NULL, &f), WEFT_OK);
    cr_assert_float_eq(f.end, 1049.5, 1e-6);
    m.left = 30; /* measured */
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 1, 1000, 1030);
    weft_queue_view_free(&v);
    close_store(s);
}

/* The seconds of an end are added to each job once, and not scaled. */
Test(queue_view, each_video_has_an_end)
{
    weft_queue_store *s = open_store();
    weft_queue_view v = {0};
    const weft_queue_rules rules = {WEFT_QUEUE_FIFO, 0, 2, 1, 1};
    weft_queue_moment m = {.rules = &rules,
                           .now = 1000,
                           .elapsed = 42,
                           .left = -1,
                           .steps = 30,
                           .version = 1,
                           .pace = 0.5,
                           .finish = 3};
    const weft_queue_entry last = {
        .number = INT64_MAX, .seconds = 8, .rank = INT64_MAX, .arrival = 1000.5};
    weft_queue_forecast f;
    fill(s);
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK, "%s", weft_error_message());
    check(&v, 1, 1000, 1013);
    check(&v, 2, 1013, 1028); /* 2 + 10 + 3 */
    cr_assert_eq(weft_queue_view_predict(&v, &last, "new", NULL, &f), WEFT_OK);
    cr_assert_float_eq(f.end, 1049.5 + 5 * 3, 1e-6);
    m.left = 30; /* measured, and without the end */
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 1, 1000, 1033);
    m.finish = -100;
    m.now = 1002;
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 1, 1002, 1002);
    weft_queue_view_free(&v);
    close_store(s);
}

/* The measured progress replaces the prediction. A moment without news changes nothing for a
 * second. */
Test(queue_view, progress_moves_the_forecasts)
{
    weft_queue_store *s = open_store();
    weft_queue_view v = {0};
    const weft_queue_rules rules = {WEFT_QUEUE_FIFO, 0, 0, 0, 1};
    weft_queue_moment m = {&rules, 1000, 40, 10, 30, 1};
    fill(s);
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 2, 1010, 1030);
    m.now = 1000.5;
    m.left = 70;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 2, 1010, 1030);
    m.version++;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 2, 1070.5, 1090.5);
    m.version++; /* the job ends about as predicted: for a second nothing changes */
    m.now = 1001;
    m.left = 69;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 2, 1070.5, 1090.5);
    m.now = 1001.5;
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK);
    check(&v, 2, 1070.5, 1090.5);
    weft_queue_view_free(&v);
    close_store(s);
}

/* The worker has two jobs: both end together, and the waiting ones follow. */
Test(queue_view, jobs_of_a_batch_end_together)
{
    weft_queue_store *s = open_store();
    weft_queue_view v = {0};
    weft_queue_state next;
    const weft_queue_change change = {.now = 960};
    const weft_queue_rules rules = {.policy = WEFT_QUEUE_SRPT, .workers = 1};
    const weft_queue_moment m = {
        .rules = &rules, .now = 1000, .elapsed = 40, .first = 150, .left = -1};
    int64_t number;
    fill(s);
    cr_assert_eq(weft_queue_store_apply(s, "b", WEFT_QUEUE_START, &change, &next), WEFT_OK);
    cr_assert_eq(weft_queue_view_update(&v, s, &m), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(v.count, 3); /* the batch, and two that wait */
    cr_expect_float_eq(weft_queue_view_find(&v, 1)->end, weft_queue_view_find(&v, 2)->end, 1e-9);
    cr_expect_float_eq(v.entries[0].seconds, 110, 1e-6); /* of the batch, not of its first job */
    cr_assert_eq(weft_queue_view_choose(&v, &number), WEFT_OK);
    cr_expect_neq(number, 2);
    weft_queue_view_free(&v);
    close_store(s);
}
