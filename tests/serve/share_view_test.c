/* Jobs that share ranks: sizes from requests, the jobs that start, changes of ranks, and forecasts
 * by the same decision. */
#include "serve/share_view.h"

#include "base/fs.h"
#include "serve/queue_view.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* 10 steps of 1 s on one rank, 0.6 s on two, 0.5 s on four. */
#define DEGREES                                                                                    \
    "\"steps\": 10, \"degrees\": [{\"ranks\": 1, \"seconds\": 10}, {\"ranks\": 2, \"seconds\": "   \
    "6}, {\"ranks\": 4, \"seconds\": 5}]"
/* 20 steps that gain all of the ranks. */
#define WIDE                                                                                       \
    "{\"steps\": 20, \"degrees\": [{\"ranks\": 1, \"seconds\": 80}, {\"ranks\": 2, \"seconds\": "  \
    "41}, {\"ranks\": 4, \"seconds\": 21}]}"

static char folder[64];
static weft_queue_store *store;
static weft_queue_rules rules = {.policy = WEFT_QUEUE_EDF, .workers = 1};
static weft_share_moment share;

static void open_store(void)
{
    snprintf(folder, sizeof folder, "/tmp/weft-share-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    cr_assert_eq(weft_queue_store_open(folder, &store), WEFT_OK, "%s", weft_error_message());
    share = (weft_share_moment){.now = 1000, .ranks = 4};
}

static void close_store(void)
{
    weft_queue_store_close(store);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

static void add(const char *id, const char *request, double seconds, double deadline)
{
    bool existing;
    weft_queue_job job = {.created = 990,
                          .seconds = seconds,
                          .deadline = deadline,
                          .request = weft_strdup(request),
                          .fingerprint = weft_strdup(id)};
    snprintf(job.id, sizeof job.id, "%s", id);
    cr_assert_eq(weft_queue_store_add(store, &job, &existing), WEFT_OK);
    weft_queue_job_free(&job);
}

/* The job `id`, of this number, gets ranks until `left` seconds from now. */
static void hold(const char *id, int64_t number, int64_t ranks, double left, int64_t steps)
{
    weft_queue_state next;
    const weft_queue_change change = {.now = 995};
    cr_assert_eq(weft_queue_store_apply(store, id, WEFT_QUEUE_START, &change, &next), WEFT_OK);
    share.held[share.count++] = (weft_share_held){number, ranks, left, steps};
}

static void update(weft_queue_view *v)
{
    const weft_queue_moment m = {.rules = &rules, .now = 1000, .left = -1, .share = &share};
    cr_assert_eq(weft_queue_view_update(v, store, &m), WEFT_OK, "%s", weft_error_message());
}

static void expect_starts(const weft_queue_view *v, int count, const weft_share_choice *expected)
{
    weft_share_choice choices[WEFT_SHARE_RANKS];
    int found;
    cr_assert_eq(weft_share_choose(v, choices, &found), WEFT_OK);
    cr_assert_eq(found, count, "%d jobs start", found);
    for (int i = 0; i < count; i++)
        cr_assert(choices[i].number == expected[i].number && choices[i].ranks == expected[i].ranks,
                  "job %d on %d ranks", (int)choices[i].number, (int)choices[i].ranks);
}

Test(share_view, a_size_has_the_steps_that_remain)
{
    static const weft_rank_table twice = {.at = {{.count = 1, .pace = 2},
                                                 {.count = 1, .pace = 2},
                                                 {.count = 1, .pace = 2}}},
                                 ends = {.at = {{.ending = 1.125, .endings = 1}}};
    weft_elastic_size s;
    weft_queue_job job = {.request = (char *)(uintptr_t)("{" DEGREES ", \"ranks\": 2}"),
                          .seconds = 5};
    weft_share_size(&job, false, &twice, 4, &s);
    cr_assert(s.steps == 10 && s.step[0] == 2 && s.step[1] == 1.2 && s.step[2] == 1 &&
              isinf(s.step[3]) && s.decode == 0);
    weft_share_size(&job, false, NULL, 2, &s);
    cr_assert(s.step[1] == 0.6 && isinf(s.step[2])); /* more ranks than the server has */
    job.started = 900;
    job.remaining = 2; /* of 5 seconds: 4 of 10 steps */
    weft_share_size(&job, false, NULL, 4, &s);
    cr_assert(s.steps == 4 && isinf(s.step[0]) && s.step[1] == 0.6 && isinf(s.step[2]));
    weft_share_size(&job, true, NULL, 4, &s);
    cr_assert(s.steps == 4 && s.step[0] == 1 && s.step[2] == 0.5);
    job.request = (char *)(uintptr_t) "{\"steps\": 5}"; /* of a server without shared ranks */
    weft_share_size(&job, false, NULL, 4, &s);
    cr_assert(s.steps == 2 && isinf(s.step[0]) && isinf(s.step[1]) && s.step[2] == 1);
    job = (weft_queue_job){
        .request = (char *)(uintptr_t) "{\"steps\": 5, \"degrees\": [{\"ranks\": 1, \"seconds\": "
                                       "12, \"decode_seconds\": 2}]}",
        .seconds = 12};
    weft_share_size(&job, false, &ends, 4, &s); /* without the decoding */
    cr_assert(s.steps == 5 && s.step[0] == 2 && s.decode == 2.25);
    cr_assert_eq(weft_share_step_price(&job, 1), 2);
    cr_assert_eq(weft_share_step_price(&job, 2), 0);
}

Test(share_view, jobs_start_on_free_ranks)
{
    weft_queue_view v = {0};
    open_store();
    add("a", WIDE, 21, 0);
    add("b", "{" DEGREES "}", 5, 0);
    add("c", "{" DEGREES "}", 5, 0);
    update(&v); /* one rank each, and the wide one has a gain of the last */
    expect_starts(&v, 3, (const weft_share_choice[]){{1, 2}, {2, 1}, {3, 1}});
    hold("a", 1, 2, 40, 0);
    update(&v);
    expect_starts(&v, 2, (const weft_share_choice[]){{2, 1}, {3, 1}});
    hold("b", 2, 2, 3, 0);
    update(&v);
    expect_starts(&v, 0, NULL);
    weft_queue_view_free(&v);
    close_store();
}

Test(share_view, a_deadline_determines_the_ranks)
{
    weft_queue_view v = {0};
    open_store();
    add("a", "{" DEGREES "}", 5, 1005.5); /* needs four ranks */
    add("b", "{" DEGREES "}", 5, 0);
    update(&v);
    expect_starts(&v, 1, (const weft_share_choice[]){{1, 4}});
    weft_queue_view_free(&v);
    close_store();
}

/* The forecast is the replay of the decision: `c` follows `b` on its rank. */
Test(share_view, forecasts)
{
    weft_queue_view v = {0};
    weft_queue_forecast f;
    weft_elastic_size size;
    open_store();
    add("a", WIDE, 21, 0);
    hold("a", 1, 2, 30, 0);
    for (int i = 0; i < 3; i++) {
        const char id[] = {(char)('b' + i), '\0'};
        add(id, "{" DEGREES "}", 5, 0);
    }
    update(&v);
    const double ends[] = {1030, 1010, 1010, 1016}, starts[] = {1000, 1000, 1000, 1010};
    for (int i = 0; i < 4; i++) {
        const weft_queue_forecast *at = weft_queue_view_find(&v, i + 1);
        cr_assert(at && at->position == i && fabs(at->end - ends[i]) < 1e-9 &&
                      fabs(at->start - starts[i]) < 1e-9,
                  "%d: %g to %g", i, at->start, at->end);
    }
    const weft_queue_job job = {.request = (char *)(uintptr_t)("{" DEGREES "}"), .seconds = 5};
    const weft_queue_entry last = {.number = 9, .seconds = 5, .rank = 9, .arrival = 1000};
    weft_share_size(&job, false, NULL, 4, &size);
    cr_assert_eq(weft_queue_view_predict(&v, &last, "", &size, &f), WEFT_OK);
    /* together with d: each has one of two ranks */
    cr_assert(f.position == 4 && f.start == 1010 && f.end == 1020, "%g to %g", f.start, f.end);
    weft_queue_view_free(&v);
    close_store();
}

/* A job that starts on an idle worker does not wait for the start of a worker. */
Test(share_view, idle_workers_are_warm)
{
    weft_queue_view v = {0};
    open_store();
    share.change = 2;
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++) {
        share.starts.cold[k] = 2;
        share.starts.warm[k] = 0.5;
    }
    add("a", WIDE, 21, 0);
    for (int warm = 0; warm < 2; warm++) {
        share.starts.idle[2] = warm;
        weft_queue_view_free(&v);
        update(&v);
        const double end = weft_queue_view_find(&v, 1)->end;
        cr_assert_float_eq(end, 1000 + (warm ? 0.5 : 2) + 21, 1e-9, "%g", end);
    }
    weft_queue_view_free(&v);
    close_store();
}

/* Jobs side by side are slower, and faster when one has ended. */
Test(share_view, jobs_slow_each_other)
{
    weft_queue_view v = {0};
    open_store();
    share.ranks = 2;
    share.slowness[0] = 2;
    add("a", WIDE, 21, 0);
    hold("a", 1, 1, 8, 0);
    add("b", "{" DEGREES "}", 5, 0);
    update(&v);
    const double ends[] = {1016, 1018}; /* 8 s of both in 16 s, and the rest of b alone */
    for (int i = 0; i < 2; i++) {
        const double end = weft_queue_view_find(&v, i + 1)->end;
        cr_assert_float_eq(end, ends[i], 1e-9, "%d: %g", i, end);
    }
    weft_queue_view_free(&v);
    close_store();
}

/* --elastic: a running job gives a rank to the job that waits, in the forecast as in the decision. */
Test(share_view, forecasts_change_ranks)
{
    weft_queue_view v = {0};
    open_store();
    share.ranks = 2;
    share.elastic = true;
    add("a", WIDE, 21, 0);
    hold("a", 1, 2, 20.5, 10);
    update(&v);
    cr_assert_float_eq(weft_queue_view_find(&v, 1)->end, 1020.5, 1e-9);
    add("b", "{" DEGREES "}", 5, 0);
    update(&v);
    const weft_queue_forecast *a = weft_queue_view_find(&v, 1), *b = weft_queue_view_find(&v, 2);
    cr_assert(b->start < 1001 && b->end < 1020.5 && a->end > 1020.5, "%g %g %g", b->start, b->end,
              a->end);
    weft_queue_view_free(&v);
    close_store();
}

/* --elastic: a job yields ranks to waiting ones, takes free ranks if that pays, and keeps its ranks
 * inside a step. */
Test(share_view, ranks_change)
{
    weft_queue_view v = {0};
    int64_t ranks;
    open_store();
    share.elastic = true;
    share.change = 0.5;
    add("a", WIDE, 21, 0);
    hold("a", 1, 4, 20, 19);
    update(&v);
    cr_assert_eq(weft_share_resize(&v, 1, &ranks), WEFT_OK);
    cr_assert_eq(ranks, 4);
    add("b", "{" DEGREES "}", 5, 0);
    update(&v);
    cr_assert_eq(weft_share_resize(&v, 1, &ranks), WEFT_OK);
    cr_assert_eq(ranks, 2);
    share.held[0].steps = 0; /* inside a step */
    cr_assert_eq(weft_share_resize(&v, 1, &ranks), WEFT_OK);
    cr_assert_eq(ranks, 4);
    share.held[0] = (weft_share_held){1, 2, 20, 10};
    hold("b", 2, 1, 3, 0);
    update(&v);
    cr_assert_eq(weft_share_resize(&v, 1, &ranks), WEFT_OK);
    cr_assert_eq(ranks, 2); /* three are not a degree */
    weft_queue_view_free(&v);
    close_store();
}

/* A change that lasts longer than it saves. */
Test(share_view, a_change_pays)
{
    weft_queue_view v = {0};
    int64_t ranks;
    open_store();
    share.elastic = true;
    add("a", WIDE, 21, 0);
    hold("a", 1, 2, 20, 10); /* 20.5 s on two ranks, 10.5 s on four */
    update(&v);
    for (int slow = 0; slow < 2; slow++) {
        share.change = slow ? 11 : 9;
        cr_assert_eq(weft_share_resize(&v, 1, &ranks), WEFT_OK);
        cr_assert_eq(ranks, slow ? 2 : 4, "%d", (int)ranks);
    }
    weft_queue_view_free(&v);
    close_store();
}
