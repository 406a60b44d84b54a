#include "base/fs.h"
#include "base/log.h"
#include "plan/pipeline/pipeline_json.h"
#include "plan/pipeline/pipeline_report.h"
#include "plan/plan_checksum.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

static weft_pp_op ops[2000];
static weft_skip skips[1000];

static weft_pp_costs model(int64_t n, bool with_skips)
{
    for (int64_t i = 0; i < n; i++)
        ops[i] = (weft_pp_op){.forward = 0.01 * (double)(1 + i % 3),
                              .backward = 0.02 * (double)(1 + i % 3),
                              .output_bytes = 1e6,
                              .parameter_bytes = 1e8,
                              .activation_bytes = 1e7};
    for (int64_t i = 0; i < n / 2; i++)
        skips[i] = (weft_skip){(int32_t)i, (int32_t)(n - 1 - i), 1e6};
    return (weft_pp_costs){.op = ops,
                           .op_count = n,
                           .skip = skips,
                           .skip_count = with_skips ? n / 2 : 0,
                           .lambda = 1,
                           .bandwidth = 1e10,
                           .latency = 1e-5};
}

Test(plan, survives_any_failed_allocation)
{
    const weft_pp_costs c = model(12, true);
    const weft_pipeline_options o = {.pp_stages = 4, .microbatches = 3, .schedule = -1};
    int64_t n = 1;
    for (;; n += n < 200 ? 1 : 37) {
        weft_pipeline_plan plan;
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_pipeline_plan_make(&c, &o, &plan);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK) {
            weft_pipeline_plan_free(&plan);
            break;
        }
        cr_assert_eq(status, WEFT_E_MEMORY, "allocation %" PRId64 ": %s", n, weft_error_message());
    }
    cr_assert(n > 100, "%" PRId64 " allocations", n);
}

static void save(const char *path, const json_t *json)
{
    cr_assert_eq(weft_json_save(path, json), WEFT_OK);
}

Test(plan, reads_back_what_it_wrote_and_nothing_else)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-plan-%d.json", (int)getpid());
    const weft_pp_costs c = model(16, true);
    const weft_pipeline_options o = {.pp_stages = 8, .microbatches = 5, .schedule = -1};
    weft_pipeline_plan plan, back;
    cr_assert_eq(weft_pipeline_plan_make(&c, &o, &plan), WEFT_OK, "%s", weft_error_message());
    json_t *json = weft_pipeline_plan_json(&c, &plan);
    save(path, json);
    cr_assert_eq(weft_pipeline_plan_load(path, &back), WEFT_E_FORMAT, "a plan without a seal");
    cr_assert_eq(weft_plan_add_checksum(json, WEFT_PIPELINE_FORMAT), WEFT_OK);
    save(path, json);
    cr_assert_eq(weft_pipeline_plan_load(path, &back), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(back.schedule.task_count, plan.schedule.task_count);
    for (int64_t i = 0; i < plan.schedule.task_count; i++) {
        const weft_task *a = &plan.schedule.task[i], *b = &back.schedule.task[i];
        cr_assert(a->device == b->device && a->step == b->step && a->pp_stage == b->pp_stage &&
                  a->microbatch == b->microbatch && a->kind == b->kind && a->start == b->start &&
                  a->end == b->end);
    }
    cr_assert_eq(back.partition.bottleneck, plan.partition.bottleneck);
    weft_pipeline_plan_free(&back);
    /* what nothing else looks at is under the seal, too */
    static const char *const sealed[] = {"idle", "candidates", "proved", "weft"};
    for (size_t k = 0; k < sizeof sealed / sizeof *sealed; k++) {
        json_t *bad = json_deep_copy(json);
        json_object_set_new(bad, sealed[k], json_real(0.125));
        save(path, bad);
        cr_assert_eq(weft_pipeline_plan_load(path, &back), WEFT_E_FORMAT, "%s", sealed[k]);
        cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_INVALID, "%s", weft_error_message());
        cr_assert_str_eq(weft_error_fields()->key, "id");
        json_decref(bad);
    }
    /* every key that matters, taken away or spoiled, under a seal that fits */
    static const char *const keys[] = {"format",       "stages",   "bottleneck",     "devices",
                                       "microbatches", "schedule", "device_of_stage"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int spoil = 0; spoil < 3; spoil++) {
            json_t *bad = json_deep_copy(json);
            if (spoil == 0)
                json_object_del(bad, keys[k]);
            else
                json_object_set_new(bad, keys[k], spoil == 1 ? json_string("x") : json_integer(-1));
            if (strcmp(keys[k], "bottleneck") == 0 && spoil == 2) { /* any number is a number */
                json_decref(bad);
                continue;
            }
            if (strcmp(keys[k], "format"))
                cr_assert_eq(weft_plan_add_checksum(bad, WEFT_PIPELINE_FORMAT), WEFT_OK);
            save(path, bad);
            cr_assert_neq(weft_pipeline_plan_load(path, &back), WEFT_OK, "%s, %d", keys[k], spoil);
            json_decref(bad);
        }
    for (size_t i = 0; i < json_array_size(json_object_get(json, "schedule")); i += 7) {
        json_t *bad = json_deep_copy(json);
        json_object_set_new(json_array_get(json_object_get(bad, "schedule"), i), "step",
                            json_integer(0));
        cr_assert_eq(weft_plan_add_checksum(bad, WEFT_PIPELINE_FORMAT), WEFT_OK);
        save(path, bad);
        const weft_status_code status = weft_pipeline_plan_load(path, &back);
        if (status == WEFT_OK)
            weft_pipeline_plan_free(&back); /* the very first task is at step 0 */
        cr_assert(status != WEFT_OK || i == 0, "task %zu at step 0", i);
        json_decref(bad);
    }
    json_decref(json);
    weft_pipeline_plan_free(&plan);
    unlink(path);
}

/* Sizes beyond published ones are planned in seconds. */
Test(plan, large)
{
    static const struct {
        int64_t ops, stages, devices, microbatches;
        bool skips;
    } cases[] = {{1000, 32, 16, 64, true},
                 {1000, 128, 64, 128, true},
                 {2000, 512, 512, 128, false},
                 {1000, 1, 1, 1, true},
                 {1000, 64, 32, 1, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const weft_pp_costs c = model(cases[i].ops, cases[i].skips);
        const weft_pipeline_options o = {.pp_stages = cases[i].stages,
                                         .devices = cases[i].devices,
                                         .microbatches = cases[i].microbatches,
                                         .schedule = -1};
        weft_pipeline_plan plan;
        const double start = weft_now();
        cr_assert_eq(weft_pipeline_plan_make(&c, &o, &plan), WEFT_OK, "%s", weft_error_message());
        cr_log_info("%" PRId64 " operators, %" PRId64 " stages, %" PRId64 " devices, %" PRId64
                    " microbatches: %.2f s, %s, "
                    "idle %.1f %%",
                    c.op_count, o.pp_stages, o.devices, o.microbatches, weft_now() - start,
                    plan.schedule.name, 100 * plan.timing.idle);
        weft_pipeline_plan_free(&plan);
    }
}

/* The memory of a plan is that of its schedule, counted again over simulated time. */
Test(plan, memory_is_that_of_the_schedule)
{
    const weft_pp_costs c = model(24, true);
    const weft_pipeline_options o = {
        .pp_stages = 8, .devices = 4, .microbatches = 6, .schedule = -1};
    weft_pipeline_plan plan;
    cr_assert_eq(weft_pipeline_plan_make(&c, &o, &plan), WEFT_OK, "%s", weft_error_message());
    const weft_pp_schedule *s = &plan.schedule;
    for (int64_t d = 0; d < s->devices; d++) {
        double peak = 0;
        for (int64_t i = 0; i < s->task_count; i++) { /* bytes in memory while task i runs */
            if (s->task[i].device != d)
                continue;
            double held = 0;
            for (int64_t k = 0; k < s->task_count; k++) {
                const weft_task *f = &s->task[k];
                if (f->device != d || f->kind != WEFT_TASK_F || f->start > s->task[i].start)
                    continue;
                for (int64_t j = 0; j < s->task_count; j++)
                    if (s->task[j].kind == WEFT_TASK_B && s->task[j].pp_stage == f->pp_stage &&
                        s->task[j].microbatch == f->microbatch && s->task[j].end > s->task[i].start)
                        held += 1e7 * (double)(plan.partition.cut[f->pp_stage + 1] -
                                               plan.partition.cut[f->pp_stage]);
            }
            peak = fmax(peak, held);
        }
        cr_assert_float_eq(peak, plan.activation_peak[d], 1, "device %" PRId64 ": %g, plan %g", d,
                           peak, plan.activation_peak[d]);
    }
    weft_pipeline_plan_free(&plan);
}

static weft_pipeline_plan make(const weft_pp_costs *c, weft_pipeline_options o)
{
    weft_pipeline_plan plan;
    cr_assert_eq(weft_pipeline_plan_make(c, &o, &plan), WEFT_OK, "%s", weft_error_message());
    return plan;
}

/* One skip of few bytes: folding onto half of the devices for its sake takes longer than sending
 * it. Collocating every skip on request still folds. */
Test(plan, a_skip_does_not_idle_half_of_the_devices)
{
    weft_pp_costs c = model(16, false);
    c.skip = (weft_skip[]){{0, 15, 1e3}};
    c.skip_count = 1;
    const weft_pipeline_options o = {
        .pp_stages = 8, .devices = 8, .microbatches = 16, .schedule = -1};
    weft_pipeline_plan automatic = make(&c, o);
    weft_pipeline_options with = o;
    with.skips = WEFT_COLLOCATE_ALL;
    weft_pipeline_plan folded = make(&c, with);
    with.skips = WEFT_COLLOCATE_COST;
    weft_pipeline_plan priced = make(&c, with);
    cr_expect_eq(folded.idle_devices, 4);
    cr_expect_eq(automatic.idle_devices, 0);
    cr_expect_lt(automatic.timing.seconds, 0.75 * folded.timing.seconds);
    cr_expect_float_eq(priced.timing.seconds, automatic.timing.seconds, 1e-12);
    cr_expect_eq(automatic.partition.collocated[0], false);
    weft_pipeline_plan_free(&automatic);
    weft_pipeline_plan_free(&folded);
    weft_pipeline_plan_free(&priced);
}

/* Skips that are ignored cost neither time nor bytes. */
Test(plan, ignored_skips_are_not_counted)
{
    const weft_pp_costs with = model(16, true), without = model(16, false);
    const weft_pipeline_options o = {
        .pp_stages = 8, .devices = 4, .schedule = -1, .skips = WEFT_COLLOCATE_NONE};
    const weft_pp_costs *c[] = {&with, &without};
    double bytes[2], seconds[2];
    for (int i = 0; i < 2; i++) {
        weft_pipeline_plan plan = make(c[i], o);
        bytes[i] = plan.bytes_per_microbatch;
        seconds[i] = plan.timing.seconds;
        weft_pipeline_plan_free(&plan);
    }
    cr_expect_float_eq(bytes[0], bytes[1], 0.5);
    cr_expect_float_eq(seconds[0], seconds[1], 1e-12);
}

/* The peak of a schedule kind without a limit is not its minimum: an order with a lower peak exists
 * and is found. */
Test(plan, memory_is_part_of_making_the_order)
{
    const weft_pp_costs c = model(16, true);
    static const weft_pp_schedule_kind kinds[] = {WEFT_PP_SCHEDULE_WAVE,
                                                  WEFT_PP_SCHEDULE_ZERO_BUBBLE};
    for (int k = 0; k < 2; k++) {
        weft_pipeline_options o = {
            .pp_stages = 8, .devices = 4, .microbatches = 8, .schedule = (int)kinds[k]};
        weft_pipeline_plan free_plan = make(&c, o);
        double peak = 0;
        for (int64_t d = 0; d < free_plan.schedule.devices; d++)
            peak = fmax(peak, free_plan.parameter_bytes[d] + free_plan.activation_peak[d]);
        o.memory = peak - 1e7;
        weft_pipeline_plan tight;
        cr_expect_eq(weft_pipeline_plan_make(&c, &o, &tight), WEFT_OK, "%s: %s",
                     weft_pp_schedule_kind_name(kinds[k]), weft_error_message());
        weft_pipeline_plan_free(&tight);
        weft_pipeline_plan_free(&free_plan);
    }
}
