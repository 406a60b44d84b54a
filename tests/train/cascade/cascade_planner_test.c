/* Plans of later iterations: estimates that are refitted, plans as files, and the same plan on all
 * ranks. */
#include "base/fs.h"
#include "base/rng.h"
#include "comm/comm_fake.h"
#include "train/cascade/cascade_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUCKETS = 3, MOST = 8 };
static const weft_bucket buckets[BUCKETS] = {{2, 1, 32, 32}, {1, 9, 32, 32}, {1, 17, 64, 64}};
static const int64_t clips[BUCKETS] = {2, 1, 1};
static const double work[BUCKETS] = {1, 2, 16};

/* Estimates are wrong by the factor `off`. The largest bucket needs the bytes of 8 devices. */
typedef struct teller {
    double off;
    int asked;
} teller;

static weft_status tell(void *user, weft_cascade_module module, int bucket, int degree,
                        weft_cascade_estimate *out)
{
    teller *t = user;
    t->asked++;
    const double whole = work[bucket] * (module == WEFT_CASCADE_DIT ? 1 : 0.1);
    *out = (weft_cascade_estimate){.seconds = t->off * (whole / degree + 0.01 * (degree - 1)),
                                   .bytes = 100 + 1000 * work[bucket] / degree};
    return WEFT_OK;
}

static weft_cascade_cost_table *prices_of(teller *t, int ranks)
{
    weft_cascade_cost_table *p;
    const weft_cascade_facts facts = {BUCKETS, ranks, t, tell};
    cr_assert_eq(weft_cascade_cost_table_create(&facts, &p), WEFT_OK);
    return p;
}

static void make_samples(weft_placed_sample *s, weft_item *item, int64_t count, uint64_t seed)
{
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_PLAN);
    for (int64_t i = 0; i < count; i++) {
        const int b = (int)weft_rng_below(&rng, BUCKETS);
        for (int64_t c = 0; c < clips[b]; c++)
            item[2 * i + c] =
                (weft_item){.sample = 7 * i + c, .epoch = 1, .sequence_index = i, .bucket = b};
        s[i] = (weft_placed_sample){.batch = 10 + i,
                                    .bucket = b,
                                    .clips = clips[b],
                                    .item = &item[2 * i],
                                    .weight = 1.0 / (double)count};
    }
}

static weft_cascade_config config_of(int policy)
{
    return (weft_cascade_config){.plan = "every-iteration",
                                 .policy = policy,
                                 .cluster = "h100:1",
                                 .inner = true,
                                 .inter = true};
}

/* ---- prices --------------------------------------------------------------------------------- */

Test(cascade_cost, what_is_told_ten_times_off_is_refitted_and_told_once)
{
    teller t = {.off = 0.1}, truth = {.off = 1};
    weft_cascade_cost_table *p = prices_of(&t, 4);
    weft_placed_sample sample[2] = {{.bucket = 0, .clips = 2}, {.bucket = 2, .clips = 1}};
    weft_placed_cascade cascade[2] = {{.at = {.id = "s0.dit", .degree = 1}, .sample = 0},
                                      {.at = {.id = "s1.dit", .degree = 2}, .sample = 1}};
    weft_placed_iteration plan = {
        .sample = sample, .samples = 2, .cascade = cascade, .cascades = 2};
    double seconds[2], bytes;
    weft_cascade_fit fit;
    weft_buf told = {0};
    for (int c = 0; c < 2; c++) {
        weft_cascade_estimate true_one;
        cascade[c].module = WEFT_CASCADE_DIT;
        cr_assert_eq(weft_cascade_cost_table_get(p, WEFT_CASCADE_DIT, sample[c].bucket,
                                                 (int)cascade[c].at.degree, &cascade[c].at.seconds,
                                                 &bytes),
                     WEFT_OK);
        cr_assert_eq(
            tell(&truth, WEFT_CASCADE_DIT, sample[c].bucket, (int)cascade[c].at.degree, &true_one),
            WEFT_OK);
        seconds[c] = true_one.seconds;
    }
    cr_assert_eq(weft_cascade_cost_table_record(p, &plan, seconds, NULL, &fit), WEFT_OK);
    cr_assert_float_eq(fit.planned[WEFT_CASCADE_DIT], log(10), 1e-9, "a tenth");
    cr_assert_float_eq(fit.factor, 10, 1e-9);
    cr_assert(isnan(fit.planned[WEFT_CASCADE_VAE]));
    weft_cascade_cost_table_format_outliers(p, &told);
    cr_assert(told.data && strstr(told.data, "10 times"), "%s", told.data ? told.data : "nothing");
    told.len = 0;
    weft_cascade_cost_table_format_outliers(p, &told);
    cr_assert_eq(told.len, 0, "once");
    /* measured estimates are exact; other degrees follow them, other buckets follow the module */
    double now;
    cr_assert_eq(weft_cascade_cost_table_get(p, WEFT_CASCADE_DIT, 2, 2, &now, &bytes), WEFT_OK);
    cr_assert_float_eq(now, seconds[1], 1e-12);
    cr_assert_eq(weft_cascade_cost_table_get(p, WEFT_CASCADE_DIT, 2, 4, &now, &bytes), WEFT_OK);
    cr_assert_float_eq(now, 16.0 / 4 + 0.03, 1e-9);
    cr_assert_eq(weft_cascade_cost_table_get(p, WEFT_CASCADE_DIT, 1, 1, &now, &bytes), WEFT_OK);
    cr_assert_float_eq(now, 2, 1e-9);
    /* the next iteration is as planned */
    for (int c = 0; c < 2; c++)
        cascade[c].at.seconds = seconds[c];
    cr_assert_eq(weft_cascade_cost_table_record(p, &plan, seconds, NULL, &fit), WEFT_OK);
    cr_assert_float_eq(fit.planned[WEFT_CASCADE_DIT], 0, 1e-12);
    cr_assert_float_eq(fit.estimated[WEFT_CASCADE_DIT], log(10), 1e-9);
    /* ten times as long as measured is as far off as a tenth */
    for (int c = 0; c < 2; c++)
        cascade[c].at.seconds = 10 * seconds[c];
    cr_assert_eq(weft_cascade_cost_table_record(p, &plan, seconds, NULL, &fit), WEFT_OK);
    cr_assert_float_eq(fit.planned[WEFT_CASCADE_DIT], log(10), 1e-9);
    weft_buf_free(&told);
    weft_cascade_cost_table_free(p);
}

/* Memory that is touched and kernels that are made for the first time are not what a cascade
 * takes. */
Test(cascade_cost, the_first_run_of_a_program_counts_until_there_is_another)
{
    teller t = {.off = 1};
    weft_cascade_cost_table *p = prices_of(&t, 4);
    weft_placed_sample sample[1] = {{.bucket = 1, .clips = 1}};
    weft_placed_cascade cascade[1] = {
        {.at = {.id = "s0.dit", .degree = 1, .seconds = 2}, .module = WEFT_CASCADE_DIT}};
    const weft_placed_iteration plan = {
        .sample = sample, .samples = 1, .cascade = cascade, .cascades = 1};
    const double took[] = {10, 2.5, 9};
    const bool cold[] = {true, false, true};
    const double knows[] = {10, 2.5, 2.5};
    weft_cascade_fit fit;
    for (int i = 0; i < 3; i++) {
        double now, bytes;
        cr_assert_eq(weft_cascade_cost_table_record(p, &plan, &took[i], &cold[i], &fit), WEFT_OK);
        cr_assert_eq(weft_cascade_cost_table_get(p, WEFT_CASCADE_DIT, 1, 1, &now, &bytes), WEFT_OK);
        cr_assert_float_eq(now, knows[i], 1e-12, "%g after %d", now, i);
    }
    cr_assert_float_eq(fit.factor, 2.5 / 2, 1e-9);
    weft_cascade_cost_table_free(p);
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* Every policy's plans of random iterations on two ranks that are threads: legal, the same on
 * both. */
typedef struct one_rank {
    weft_comm *comm;
    int policy;
    weft_buf text;
    weft_status_code status;
    char error[400];
} one_rank;

static weft_status plan_some(one_rank *r)
{
    teller t = {.off = 1};
    double memory;
    weft_cluster cluster;
    weft_arena *arena = weft_arena_create();
    const weft_cascade_config config = config_of(r->policy);
    weft_cascade_planner *ahead;
    WEFT_TRY(weft_cluster_load(arena, config.cluster, &cluster));
    weft_cascade_planner_cluster(&cluster, &config, 2, &memory);
    weft_cascade_cost_table *prices = prices_of(&t, 2);
    const weft_cascade_planner_setup setup = {.config = &config,
                                              .path = "run.yaml",
                                              .cluster = &cluster,
                                              .comm = r->comm,
                                              .ranks = 2,
                                              .memory = memory,
                                              .cost_table = prices,
                                              .buckets = BUCKETS,
                                              .bucket = buckets,
                                              .work = work,
                                              .heads = 4,
                                              .text = true,
                                              .vae = true,
                                              .seed = 3};
    WEFT_TRY(weft_cascade_planner_create(&setup, &ahead));
    for (int64_t step = 0; step < 4; step++) {
        weft_placed_sample sample[MOST];
        weft_item item[2 * MOST];
        const weft_placed_iteration *plan;
        weft_planning_stats news;
        const char *text;
        const int64_t count = 2 + (5 * step) % 7;
        make_samples(sample, item, count, (uint64_t)step);
        WEFT_TRY(weft_cascade_planner_start(ahead, step, sample, count));
        WEFT_TRY(weft_cascade_planner_get(ahead, &plan, &news, &text));
        WEFT_TRY(weft_placed_check(plan, 2, "test"));
        if (plan->step != step || plan->samples != count || plan->cascades != 3 * count ||
            plan->sample[count - 1].item[0].sample != 7 * (count - 1) || !(news.idle >= 0) ||
            !(plan->makespan >= plan->lower_bound * (1 - 1e-9)))
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                              "step %" PRId64 ": another plan: %s", step, text);
        weft_buf_printf(&r->text, "%s\n", text);
    }
    weft_cascade_planner_free(ahead);
    weft_cascade_cost_table_free(prices);
    weft_arena_free(arena);
    return WEFT_OK;
}

static void *run_rank(void *user)
{
    one_rank *r = user;
    r->status = plan_some(r);
    if (r->status != WEFT_OK) {
        snprintf(r->error, sizeof r->error, "%s", weft_error_message());
        weft_comm_abort(r->comm);
    }
    return NULL;
}

Test(cascade_ahead, all_ranks_have_the_same_plan)
{
    for (int policy = 0; policy < WEFT_POLICY_COUNT; policy++) {
        weft_comm *comm[2];
        pthread_t thread[2];
        one_rank rank[2] = {{0}};
        cr_assert_eq(weft_comm_open_threads(2, comm), WEFT_OK);
        for (int r = 0; r < 2; r++) {
            rank[r].comm = comm[r];
            rank[r].policy = policy;
            pthread_create(&thread[r], NULL, run_rank, &rank[r]);
        }
        for (int r = 0; r < 2; r++)
            pthread_join(thread[r], NULL);
        for (int r = 0; r < 2; r++)
            cr_assert_eq(rank[r].status, WEFT_OK, "%s: %s", weft_policy_names[policy],
                         rank[r].error);
        cr_assert_str_eq(rank[0].text.data, rank[1].text.data);
        for (int r = 0; r < 2; r++) {
            weft_buf_free(&rank[r].text);
            weft_comm_free(comm[r]);
        }
    }
}

/* One process plans for ranks that do not run. */
typedef struct alone {
    teller t;
    weft_arena *arena;
    weft_cluster cluster;
    weft_cascade_config config;
    weft_cascade_cost_table *prices;
    weft_cascade_planner *ahead;
    weft_placed_sample sample[MOST];
    weft_item item[2 * MOST];
} alone;

static void open_alone(alone *a, const char *plan, int policy, int64_t memory, int ranks,
                       const weft_plans *replay)
{
    double limit;
    *a = (alone){.t = {.off = 1}, .arena = weft_arena_create(), .config = config_of(policy)};
    a->config.plan = plan;
    a->config.memory = memory;
    cr_assert_eq(weft_cluster_load(a->arena, a->config.cluster, &a->cluster), WEFT_OK);
    weft_cascade_planner_cluster(&a->cluster, &a->config, ranks, &limit);
    a->prices = prices_of(&a->t, ranks);
    const weft_cascade_planner_setup setup = {.config = &a->config,
                                              .path = "run.yaml",
                                              .cluster = &a->cluster,
                                              .ranks = ranks,
                                              .memory = limit,
                                              .cost_table = a->prices,
                                              .buckets = BUCKETS,
                                              .bucket = buckets,
                                              .work = work,
                                              .heads = 4,
                                              .ring = true,
                                              .vae = true,
                                              .seed = 3,
                                              .replay = replay};
    cr_assert_eq(weft_cascade_planner_create(&setup, &a->ahead), WEFT_OK);
}

static void close_alone(alone *a)
{
    weft_cascade_planner_free(a->ahead);
    weft_cascade_cost_table_free(a->prices);
    weft_arena_free(a->arena);
}

Test(cascade_ahead, a_sample_that_fits_nowhere_is_named_or_left_out)
{
    alone a;
    const weft_placed_iteration *plan;
    weft_planning_stats news;
    const char *text;
    /* the largest bucket takes 100 + 16000 / 4 bytes on all four */
    open_alone(&a, "every-iteration", WEFT_POLICY_ARACHNE, 4000, 4, NULL);
    make_samples(a.sample, a.item, 8, 1);
    a.sample[5].bucket = 2;
    a.sample[5].clips = 1;
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 8), WEFT_E_INFEASIBLE);
    cr_assert(strstr(weft_error_message(), "1x17x64x64") &&
                  strstr(weft_error_message(), "parallel.cascades.memory_limit: 4MiB"),
              "%s", weft_error_message());
    a.config.unfit = WEFT_UNFIT_SKIP;
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 8), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &text), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert(news.left_out > 0 && plan->samples + news.left_out == 8);
    for (int64_t s = 0; s < plan->samples; s++)
        cr_assert_neq(plan->sample[s].bucket, 2);
    for (int s = 0; s < 7; s++) {
        a.sample[s].bucket = 2;
        a.sample[s].clips = 1;
    }
    a.sample[7].ahead = true; /* fits, but the step does not train on it */
    a.sample[7].weight = 0;
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 1, a.sample, 8), WEFT_E_INFEASIBLE);
    cr_assert(strstr(weft_error_message(), "1x17x64x64"), "%s", weft_error_message());
    close_alone(&a);
    open_alone(&a, "every-iteration", WEFT_POLICY_ARACHNE, 4100, 4, NULL);
    make_samples(a.sample, a.item, 8, 1);
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 8), WEFT_OK, "%s",
                 weft_error_message());
    close_alone(&a);
}

Test(cascade_ahead, equal_groups_keep_their_degree)
{
    alone a;
    weft_placed_sample second[MOST];
    weft_item items[2 * MOST];
    const weft_placed_iteration *plan;
    weft_planning_stats news;
    const char *text;
    open_alone(&a, "every-iteration", WEFT_POLICY_STATIC, 0, 4, NULL);
    make_samples(a.sample, a.item, 8, 1);
    make_samples(second, items, 3, 2);
    const weft_placed_sample *const list[] = {a.sample, second};
    cr_assert_eq(weft_cascade_planner_fix_degree(a.ahead, list, (const int64_t[]){8, 3}, 2),
                 WEFT_OK);
    int64_t degree = 0;
    for (int64_t step = 0; step < 2; step++) {
        cr_assert_eq(weft_cascade_planner_start(a.ahead, step, list[step], step ? 3 : 8), WEFT_OK);
        cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &text), WEFT_OK);
        for (int64_t c = 0; c < plan->cascades; c++) {
            if (plan->cascade[c].module != WEFT_CASCADE_DIT)
                continue;
            cr_assert(!degree || degree == plan->cascade[c].at.degree);
            cr_assert_eq(plan->cascade[c].method, WEFT_SP_RING);
            degree = plan->cascade[c].at.degree;
        }
    }
    close_alone(&a);
}

/* The chosen plan is not longer than the plan of any rule with the same estimates, also if it is
 * needed immediately. */
Test(cascade_ahead, no_rule_has_a_shorter_plan)
{
    static const int policies[] = {WEFT_POLICY_FLEXSP, WEFT_POLICY_KNAPFORMER, WEFT_POLICY_STATIC,
                                   WEFT_POLICY_ARACHNE};
    enum { OWN = sizeof policies / sizeof *policies - 1 };
    for (int trial = 0; trial < 12; trial++) {
        double seconds[OWN + 1];
        for (int i = 0; i <= OWN; i++) {
            alone a;
            const weft_placed_iteration *plan;
            weft_planning_stats news;
            const char *text;
            const int64_t count = 1 + trial % MOST;
            open_alone(&a, "every-iteration", policies[i], 0, 1 + trial % 5, NULL);
            make_samples(a.sample, a.item, count, (uint64_t)trial);
            cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, count), WEFT_OK);
            cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &text), WEFT_OK, "%s",
                         weft_error_message());
            seconds[i] = plan->makespan;
            close_alone(&a);
        }
        for (int i = 0; i < OWN; i++)
            cr_assert_leq(seconds[OWN], seconds[i] * (1 + 1e-9), "trial %d: %g s, %s %g s", trial,
                          seconds[OWN], weft_policy_names[policies[i]], seconds[i]);
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

static weft_plans_stamp stamp_of(char text[BUCKETS][64], const char *size[BUCKETS])
{
    for (int i = 0; i < BUCKETS; i++) {
        weft_plans_size(&buckets[i], text[i]);
        size[i] = text[i];
    }
    return (weft_plans_stamp){4, "0123", "WanTransformer3DModel", size, BUCKETS};
}

Test(cascade_plans, what_was_written_is_replayed_and_what_is_not_of_it_refused)
{
    char path[] = "/tmp/weft-plans-XXXXXX", text[BUCKETS][64];
    const char *size[BUCKETS], *line;
    weft_plans_stamp stamp = stamp_of(text, size);
    weft_buf file = {0}, first = {0}, more = {0};
    weft_plans *plans;
    alone a;
    const weft_placed_iteration *plan;
    weft_planning_stats news;
    const int fd = mkstemp(path);
    json_t *head = weft_plans_head(&stamp);
    char *words = weft_json_line(head);
    weft_buf_printf(&file, "%s\n", words);
    weft_free(words);
    json_decref(head);
    open_alone(&a, "every-iteration", WEFT_POLICY_ARACHNE, 0, 4, NULL);
    a.config.degrees = (weft_i64_list){2, (int64_t[]){1, 2}};
    make_samples(a.sample, a.item, 6, 5);
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 6), WEFT_OK);
    cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &line), WEFT_OK);
    weft_buf_printf(&file, "%s\n", line);
    weft_buf_printf(&first, "%s", line);
    close_alone(&a);
    cr_assert_eq(write(fd, file.data, (size_t)file.len), file.len);
    close(fd);

    cr_assert_eq(weft_plans_open(path, &stamp, &plans), WEFT_OK, "%s", weft_error_message());
    open_alone(&a, path, WEFT_POLICY_ARACHNE, 0, 4, plans);
    make_samples(a.sample, a.item, 6, 5);
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 6), WEFT_OK);
    cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &line), WEFT_OK);
    cr_assert_str_eq(line, first.data, "the plan of the file, to the last digit");
    cr_assert(news.replayed);
    /* another step with the same sizes in another order */
    const weft_placed_sample swap = a.sample[0];
    a.sample[0] = a.sample[5];
    a.sample[5] = swap;
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 9, a.sample, 6), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &line), WEFT_OK);
    cr_assert_eq(plan->step, 9);
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 10, a.sample, 5), WEFT_E_CONFIG);
    cr_assert(weft_error_class() == WEFT_MSG_LAYOUT_INVALID && strstr(weft_error_text(), "step 10"),
              "%s", weft_error_message());
    close_alone(&a);
    weft_plans_close(plans);

    stamp.ranks = 3;
    cr_assert_eq(weft_plans_open(path, &stamp, &plans), WEFT_E_CONFIG);
    cr_assert(weft_error_class() == WEFT_MSG_LAYOUT_INVALID && weft_error_fields()->number == 4,
              "%s", weft_error_message());
    stamp.ranks = 4;
    stamp.model = "abcd";
    cr_assert_eq(weft_plans_open(path, &stamp, &plans), WEFT_E_CONFIG);
    cr_assert(!strcmp(weft_error_fields()->key, "model"), "%s", weft_error_message());
    stamp.model = "0123";
    size[1] = "1x9x64x32";
    cr_assert_eq(weft_plans_open(path, &stamp, &plans), WEFT_E_CONFIG);
    cr_assert(strstr(weft_error_message(), "1x9x32x32") &&
                  strstr(weft_error_message(), "1x9x64x32"),
              "%s", weft_error_message());
    /* lines after the header of another stage are skipped, lines after the run's header are not */
    size[1] = "1x9x32x32";
    weft_buf_printf(&more,
                    "{\"format\": \"weft.placed/1\", \"ranks\": 9, \"model\": \"0123\"}\n"
                    "{\"step\": 1, \"of\": \"nothing that could be run\"}\n%s",
                    file.data);
    cr_assert_eq(weft_file_write_atomic(path, more.data, more.len), WEFT_OK);
    cr_assert_eq(weft_plans_open(path, &stamp, &plans), WEFT_OK, "%s", weft_error_message());
    /* the sample fits on all four ranks, but not on the number of ranks in the file */
    open_alone(&a, path, WEFT_POLICY_ARACHNE, 4100, 4, plans);
    make_samples(a.sample, a.item, 6, 5);
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 6), WEFT_E_INFEASIBLE);
    cr_assert(weft_error_class() == WEFT_MSG_PLAN_INFEASIBLE &&
                  !strcmp(weft_error_fields()->key, "parallel.cascades.plan"),
              "%s", weft_error_message());
    close_alone(&a);
    weft_plans_close(plans);
    unlink(path);
    weft_buf_free(&file);
    weft_buf_free(&first);
    weft_buf_free(&more);
}

/* Sizes that were planned before take the plan that they had. */
Test(cascade_ahead, a_static_plan_is_made_once)
{
    alone a;
    const weft_placed_iteration *plan;
    weft_planning_stats news;
    const char *line;
    open_alone(&a, "static", WEFT_POLICY_ARACHNE, 0, 4, NULL);
    make_samples(a.sample, a.item, 6, 5);
    for (int64_t step = 0; step < 3; step++) {
        cr_assert_eq(weft_cascade_planner_start(a.ahead, step, a.sample, 6), WEFT_OK);
        cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &line), WEFT_OK);
        cr_assert_eq(news.replayed, step > 0);
        cr_assert_eq(plan->step, step);
    }
    close_alone(&a);
}

/* Step 0 runs encoders of step 1, so the plan of step 1 has none. Its kept encoders get the ranks
 * of the executed plan, which late dispatch can change. */
Test(cascade_ahead, encoders_of_the_next_step_are_planned_once)
{
    alone a;
    const weft_placed_iteration *plan;
    weft_planning_stats news;
    const char *line;
    open_alone(&a, "every-iteration", WEFT_POLICY_ARACHNE, 0, 4, NULL);
    a.config.encoders = WEFT_ENCODERS_AHEAD;
    make_samples(a.sample, a.item, 6, 5);
    for (int s = 0; s < 3; s++)
        a.sample[s].weight = 1.0 / 3;
    for (int s = 3; s < 6; s++) {
        a.sample[s].ahead = true;
        a.sample[s].weight = 0;
    }
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 0, a.sample, 6), WEFT_OK);
    cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &line), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_placed_check(plan, 4, "plan"), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_placed_scheduled(plan), plan->cascades, "step 0 has kept cascades");
    const int64_t encoders = (plan->cascades - 3) / 2;
    cr_assert_gt(encoders, 0, "the test needs encoders");

    /* the samples of step 1, which encodes nothing */
    for (int s = 0; s < 3; s++) {
        a.sample[s] = a.sample[s + 3];
        a.sample[s].ahead = false;
        a.sample[s].weight = 1.0 / 3;
    }
    weft_cascade_planner_set_before(a.ahead, plan);
    cr_assert_eq(weft_cascade_planner_start(a.ahead, 1, a.sample, 3), WEFT_OK);
    static const int32_t moved[] = {3, 1, 0, 2};
    weft_placed_cascade executed_cascade[16];
    weft_placed_iteration executed = *plan;
    memcpy(executed_cascade, plan->cascade, (size_t)plan->cascades * sizeof *plan->cascade);
    for (int64_t c = 0; c < plan->cascades; c++)
        executed_cascade[c].at.device = moved;
    executed.cascade = executed_cascade;
    weft_cascade_planner_set_before(a.ahead, &executed);
    cr_assert_eq(weft_cascade_planner_get(a.ahead, &plan, &news, &line), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(weft_placed_check(plan, 4, "plan"), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_placed_scheduled(plan), 3, "encoders are planned again");
    cr_assert_eq(plan->cascades, 3 + encoders);
    for (int64_t c = 3; c < plan->cascades; c++) {
        const weft_placed_cascade *k = &plan->cascade[c];
        cr_expect(k->kept && k->at.start == -1 && k->at.seconds == 0 &&
                      !memcmp(k->at.device, moved, (size_t)k->at.degree * sizeof *moved),
                  "%s", k->at.id);
    }
    close_alone(&a);
}

/* ---- the config ----------------------------------------------------------------------------- */

static weft_status parse_config(const char *text, int ranks, const char *beside)
{
    weft_cascade_config config;
    weft_parallel parallel = weft_parallel_default;
    weft_arena *arena = weft_arena_create();
    weft_status_code status = weft_config_parse(arena, text, (int64_t)strlen(text), "run.yaml",
                                                NULL, 0, &weft_cascade_section, &config);
    if (beside)
        parallel.tp = 2;
    if (status == WEFT_OK)
        status = weft_cascades_check(&config, &parallel, ranks, "run.yaml");
    weft_arena_free(arena);
    return status;
}

Test(cascade_config, nonsense_is_refused_with_its_place)
{
    const struct {
        const char *text, *says;
        int ranks;
        bool beside;
    } wrong[] = {
        {"plan: every-iterations", "did you mean every-iteration", 0, false},
        {"plan: static\npolicy: flexps", "run.yaml:2", 0, false},
        {"plan: static\npolcy: flexsp", "policy", 0, false},
        {"plan: static\ndegrees: [0, 2]", "run.yaml:2", 0, false},
        {"plan: static\ndegrees: [2, 2]", "parallel.cascades.degrees: 2 ", 0, false},
        {"plan: static\ndegrees: [4, 8]", "parallel.cascades.degrees: ", 2, false},
        {"plan: static\npolicy: ulysses\ndegree: 3", "parallel.cascades.degree: 4 ranks", 4, false},
        {"plan: static\npolicy: arachne\ndegree: 2", "parallel.cascades.degree: ", 4, false},
        {"policy: flexsp", "parallel.cascades.plan: ", 0, false},
        {"plan: static", "parallel.tp", 0, true},
    };
    for (int i = 0; i < WEFT_COUNT(wrong); i++) {
        cr_assert_eq(parse_config(wrong[i].text, wrong[i].ranks, wrong[i].beside ? "tp" : NULL),
                     WEFT_E_CONFIG, "%s", wrong[i].text);
        cr_assert(strstr(weft_error_message(), wrong[i].says), "%s: %s", wrong[i].text,
                  weft_error_message());
    }
    cr_assert_eq(parse_config("plan: every-iteration\ndegrees: [1, 2, 3]\nmemory: 20GiB", 6, NULL),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(parse_config("", 6, "tp"), WEFT_OK, "%s", weft_error_message());
}
