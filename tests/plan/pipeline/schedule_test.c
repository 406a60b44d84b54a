#include "base/rng.h"
#include "plan/pipeline/schedule.h"

#include <criterion/criterion.h>
#include <math.h>

static weft_pp_schedule make(weft_pp_schedule_kind kind, weft_pp_stage_map map, int64_t stages,
                             int64_t devices, int64_t microbatches,
                             const weft_pp_stage_times *times)
{
    int32_t device_of[256];
    weft_pp_stage_map_fill(map, stages, devices, device_of);
    weft_pp_schedule s;
    cr_assert_eq(weft_pp_schedule_make(kind, device_of, stages, devices, microbatches, times, &s),
                 WEFT_OK, "%s: %s", weft_pp_schedule_kind_name(kind), weft_error_message());
    cr_assert_eq(weft_pp_schedule_check(&s), WEFT_OK, "%s %" PRId64 "/%" PRId64 "/%" PRId64 ": %s",
                 s.name, stages, devices, microbatches, weft_error_message());
    return s;
}

Test(schedule, every_kind_is_legal_and_as_long_as_it_should)
{
    for (int64_t d = 1; d <= 9; d++)
        for (int64_t m = 1; m <= 13; m += m > 4 ? 4 : 1) {
            weft_pp_schedule s = make(WEFT_PP_SCHEDULE_GPIPE, WEFT_MAP_ROUND, d, d, m, NULL);
            cr_assert_eq(s.steps, 2 * (m + d - 1));
            weft_pp_schedule_free(&s);
            s = make(WEFT_PP_SCHEDULE_1F1B, WEFT_MAP_ROUND, d, d, m, NULL);
            cr_assert_eq(s.steps, 2 * (m + d - 1));
            double peak[16];
            cr_assert_eq(weft_pp_schedule_memory(&s, NULL, NULL, peak), WEFT_OK);
            for (int64_t k = 0; k < d; k++) /* 1F1B holds D - d microbatches, GPipe all */
                cr_assert_float_eq(peak[k], fmin((double)m, (double)(d - k)), 0);
            weft_pp_schedule_free(&s);
            s = make(WEFT_PP_SCHEDULE_ZERO_BUBBLE, WEFT_MAP_ROUND, d, d, m, NULL);
            cr_assert(s.split && s.task_count == 3 * d * m);
            weft_pp_schedule_free(&s);
            for (int64_t v = 2; v <= 3; v++) {
                s = make(WEFT_PP_SCHEDULE_INTERLEAVED, WEFT_MAP_ROUND, v * d, d, m * d, NULL);
                cr_assert(s.steps <= 2 * (m * d * v + d - 1), "interleaved takes %" PRId64,
                          s.steps);
                weft_pp_schedule_free(&s);
                s = make(WEFT_PP_SCHEDULE_WAVE, WEFT_MAP_FOLD, v * d, d, m, NULL);
                weft_pp_schedule_free(&s);
            }
        }
}

/* The wave is as short as its lower bound, for any D and M (the paper shows D = M = 4 only). */
Test(schedule, wave_meets_the_lower_bound)
{
    int met = 0, all = 0;
    for (int64_t d = 1; d <= 12; d++)
        for (int64_t m = 1; m <= 4 * d; m++) {
            weft_pp_schedule s = make(WEFT_PP_SCHEDULE_WAVE, WEFT_MAP_FOLD, 2 * d, d, m, NULL);
            const int64_t bound = weft_pp_schedule_lower_bound(s.device_of, 2 * d, d, m);
            cr_assert(s.steps >= bound);
            cr_assert(s.steps <= bound + 2 * d,
                      "D %" PRId64 " M %" PRId64 ": %" PRId64 " steps, bound %" PRId64, d, m,
                      s.steps, bound);
            met += s.steps == bound;
            if (m >= d && s.steps != bound)
                cr_log_info("D %" PRId64 " M %" PRId64 ": %" PRId64 ", bound %" PRId64, d, m,
                            s.steps, bound);
            all++;
            weft_pp_schedule_free(&s);
        }
    cr_log_info("%d of %d meet the bound", met, all);
    cr_assert(met * 10 >= all * 6);
}

Test(schedule, wave_takes_the_time_of_eq_15)
{
    /* Eq. 15: (10P - 4) T_f for P devices, 2P stages, P microbatches, B = 2 F */
    for (int64_t p = 2; p <= 12; p++) {
        double f[64], b[64];
        for (int64_t s = 0; s < 2 * p; s++) {
            f[s] = 1;
            b[s] = 2;
        }
        const weft_pp_stage_times t = {.forward = f, .backward = b};
        weft_pp_schedule s = make(WEFT_PP_SCHEDULE_WAVE, WEFT_MAP_FOLD, 2 * p, p, p, &t);
        weft_pp_schedule_timing timing;
        cr_assert_eq(weft_pp_schedule_time(&s, &t, &timing), WEFT_OK);
        cr_log_info("P %" PRId64 ": %.0f, Eq. 15 %.0f", p, timing.seconds, 10.0 * (double)p - 4);
        cr_assert(timing.seconds <= 10.0 * (double)p - 4);
        cr_assert(timing.seconds >=
                  9.0 * (double)p - 3); /* work 6P, then the way in and out: 3(P-1) */
        cr_assert_float_eq(timing.busy, 6.0 * (double)(p * p), 1e-9);
        weft_pp_schedule_free(&s);
    }
}

Test(schedule, zero_bubble_is_shorter_than_1f1b_in_the_same_memory)
{
    double f[8], b[8], peak_a[8], peak_b[8];
    for (int i = 0; i < 8; i++) {
        f[i] = 1;
        b[i] = 2;
    }
    const weft_pp_stage_times t = {.forward = f, .backward = b};
    for (int64_t d = 2; d <= 8; d++) {
        weft_pp_schedule plain = make(WEFT_PP_SCHEDULE_1F1B, WEFT_MAP_ROUND, d, d, 4 * d, &t);
        weft_pp_schedule split =
            make(WEFT_PP_SCHEDULE_ZERO_BUBBLE, WEFT_MAP_ROUND, d, d, 4 * d, &t);
        weft_pp_schedule_timing a, z;
        cr_assert_eq(weft_pp_schedule_time(&plain, &t, &a), WEFT_OK);
        cr_assert_eq(weft_pp_schedule_time(&split, &t, &z), WEFT_OK);
        cr_assert_eq(weft_pp_schedule_memory(&plain, NULL, NULL, peak_a), WEFT_OK);
        cr_assert_eq(weft_pp_schedule_memory(&split, NULL, NULL, peak_b), WEFT_OK);
        cr_log_info("D %" PRId64 ": 1f1b %.0f (holds %.0f), zero-bubble %.0f (holds %.0f)", d,
                    a.seconds, peak_a[0], z.seconds, peak_b[0]);
        cr_assert_float_eq(a.seconds, 3.0 * (double)(4 * d + d - 1), 1e-9);
        cr_assert(z.seconds <= a.seconds - (double)(d - 1));
        weft_pp_schedule_free(&plain);
        weft_pp_schedule_free(&split);
    }
}

Test(schedule, checker_finds_every_fault)
{
    weft_rng rng = weft_rng_make(1, WEFT_RNG_TEST);
    for (int round = 0; round < 200; round++) {
        weft_pp_schedule s = make(WEFT_PP_SCHEDULE_WAVE, WEFT_MAP_FOLD, 8, 4, 4, NULL);
        weft_task *t = &s.task[weft_rng_below(&rng, (uint64_t)s.task_count)];
        switch (round % 5) {
        case 0: t->microbatch = (t->microbatch + 1) % 4; break;     /* twice and never */
        case 1: t->device = (t->device + 1) % 4; break;             /* wrong device */
        case 2: t->step = t->kind == WEFT_TASK_F ? 100 : -1; break; /* after its backward */
        case 3: t->kind = t->kind == WEFT_TASK_F ? WEFT_TASK_B : WEFT_TASK_F; break;
        case 4: s.task_count--; break;
        }
        cr_assert_eq(weft_pp_schedule_check(&s), WEFT_E_ARG, "round %d", round);
        weft_pp_schedule_free(&s);
    }
}

Test(schedule, memory_adds_up_over_the_steps)
{
    weft_pp_schedule s = make(WEFT_PP_SCHEDULE_GPIPE, WEFT_MAP_ROUND, 3, 3, 2, NULL);
    const double bytes[3] = {5, 7, 11};
    double peak[3], *timeline = weft_alloc(3 * s.steps * 8);
    cr_assert_eq(weft_pp_schedule_memory(&s, bytes, timeline, peak), WEFT_OK);
    const double want[3][8] = {
        {5, 10, 10, 10, 10, 10, 10, 5}, {0, 7, 14, 14, 14, 14, 7, 0}, {0, 0, 11, 22, 22, 11, 0, 0}};
    cr_assert_eq(s.steps, 8);
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < 8; k++)
            cr_assert_float_eq(timeline[d * 8 + k], want[d][k], 0, "device %d step %d: %g", d, k,
                               timeline[d * 8 + k]);
    weft_free(timeline);
    weft_pp_schedule_free(&s);
}

/* Random times and sends: the clock keeps every precedence and never overlaps a device. */
Test(schedule, clock_keeps_the_rules)
{
    weft_rng rng = weft_rng_make(2, WEFT_RNG_TEST);
    for (int round = 0; round < 60; round++) {
        const int64_t d = 1 + (int64_t)weft_rng_below(&rng, 5),
                      m = 1 + (int64_t)weft_rng_below(&rng, 9);
        double f[10], b[10], send[10];
        for (int i = 0; i < 10; i++) {
            f[i] = weft_rng_f64(&rng);
            b[i] = 2 * weft_rng_f64(&rng);
            send[i] = 0.2 * weft_rng_f64(&rng);
        }
        const weft_pp_stage_times t = {
            .forward = f, .backward = b, .send = send, .send_back = send, .blocking = round % 2};
        weft_pp_schedule s = make(round % 3 ? WEFT_PP_SCHEDULE_WAVE : WEFT_PP_SCHEDULE_GPIPE,
                                  WEFT_MAP_FOLD, 2 * d, d, m, &t);
        weft_pp_schedule_timing timing;
        cr_assert_eq(weft_pp_schedule_time(&s, &t, &timing), WEFT_OK);
        for (int64_t i = 0; i < s.task_count; i++) {
            const weft_task *x = &s.task[i];
            if (i > 0 && x[-1].device == x->device)
                cr_assert(x->start >= x[-1].end);
            for (int64_t k = 0; k < s.task_count; k++) {
                const weft_task *y = &s.task[k];
                if (y->microbatch != x->microbatch)
                    continue;
                const bool apart = s.device_of[x->pp_stage] != s.device_of[y->pp_stage];
                if (x->kind == WEFT_TASK_F && y->kind == WEFT_TASK_F &&
                    y->pp_stage == x->pp_stage + 1)
                    cr_assert(y->start >= x->end + (apart ? send[x->pp_stage] : 0) - 1e-12);
                if (x->kind == WEFT_TASK_B && y->kind == WEFT_TASK_B &&
                    y->pp_stage == x->pp_stage - 1)
                    cr_assert(y->start >= x->end + (apart ? send[y->pp_stage] : 0) - 1e-12);
                if (x->kind == WEFT_TASK_F && y->kind == WEFT_TASK_B && y->pp_stage == x->pp_stage)
                    cr_assert(y->start >= x->end);
            }
        }
        weft_pp_schedule_free(&s);
    }
}

/* ((K+4)D/4 - 1) a with relayed skips in sequence, 2(D-1) a in a wave (PULSE §II-C, §V-B). */
Test(schedule, bytes_equal_the_closed_forms)
{
    for (int64_t d = 2; d <= 16; d += 2)
        for (int64_t per = 1; per <= 3; per++) {
            const int64_t k = 2 * d * per;
            weft_pp_op op[96];
            weft_skip skip[48];
            weft_pp_costs c = {.op = op, .op_count = k, .skip = skip, .skip_count = k / 2};
            for (int64_t i = 0; i < k; i++)
                op[i] = (weft_pp_op){.forward = 1, .output_bytes = 10};
            for (int64_t i = 0; i < k / 2; i++)
                skip[i] = (weft_skip){(int32_t)i, (int32_t)(k - 1 - i), 10};
            skip[k / 2 - 1].to =
                (int32_t)(k / 2); /* neighbours: an ordinary edge inside one device */
            weft_partition p;
            int32_t device_of[64];
            cr_assert_eq(weft_partition_blockwise(&c, d, NULL, &p), WEFT_OK);
            weft_pp_stage_map_fill(WEFT_MAP_ROUND, d, d, device_of);
            const double sequential = weft_pipeline_bytes(&c, &p, device_of, false, NULL);
            /* the pair in the middle is cut too when D is even, but it is not a skip */
            cr_assert_float_eq(sequential, (((double)k + 4) * (double)d / 4 - 1) * 10 - 10, 1e-6);
            weft_partition_free(&p);
            cr_assert_eq(weft_partition_solve(&c, 2 * d, WEFT_COLLOCATE_ALL, &p), WEFT_OK);
            weft_pp_stage_map_fill(WEFT_MAP_FOLD, 2 * d, d, device_of);
            cr_assert_float_eq(weft_pipeline_bytes(&c, &p, device_of, false, NULL),
                               2.0 * ((double)d - 1) * 10, 1e-6);
            weft_partition_free(&p);
        }
}
