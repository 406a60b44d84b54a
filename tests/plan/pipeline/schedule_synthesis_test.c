#include "base/log.h"
#include "plan/pipeline/schedule_synthesis.h"

#include <coin/Cbc_C_Interface.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

static weft_synthesis solve(int64_t stages, int64_t devices, int64_t microbatches, bool mirrored)
{
    weft_pp_stage_pair pair[32];
    int64_t pairs = 0;
    for (int32_t s = 0; s < (mirrored ? stages / 2 : 0); s++)
        pair[pairs++] = (weft_pp_stage_pair){s, (int32_t)stages - 1 - s};
    weft_synthesis out;
    cr_assert_eq(weft_synthesise(stages, devices, microbatches, pair, pairs, 0, &out), WEFT_OK,
                 "%s", weft_error_message());
    cr_assert_eq(weft_pp_schedule_check(&out.schedule), WEFT_OK, "%s", weft_error_message());
    cr_assert(out.schedule.steps >= out.lower_bound);
    for (int64_t s = 0; mirrored && s < stages; s++)
        cr_assert_eq(out.schedule.device_of[s], out.schedule.device_of[stages - 1 - s]);
    return out;
}

static void expect_order(const weft_pp_schedule *got, const weft_pp_schedule *want)
{
    cr_assert_eq(got->task_count, want->task_count);
    for (int64_t i = 0; i < got->task_count; i++) {
        const weft_task *a = &got->task[i], *b = &want->task[i];
        cr_assert(a->device == b->device && a->kind == b->kind && a->pp_stage == b->pp_stage &&
                      a->microbatch == b->microbatch,
                  "task %lld: device %d %c%d.%d, wanted device %d %c%d.%d", (long long)i, a->device,
                  weft_task_letter(a->kind), a->pp_stage, a->microbatch, b->device,
                  weft_task_letter(b->kind), b->pp_stage, b->microbatch);
    }
}

/* PULSE Fig. 8: stages = devices gives 1F1B, task by task. */
Test(synthesise, recovers_1f1b)
{
    for (int64_t d = 2; d <= 4; d++)
        for (int64_t m = d; m <= 6; m++) {
            weft_synthesis got = solve(d, d, m, false);
            cr_assert(got.proved && got.states > 0);
            cr_assert_eq(got.schedule.steps, 2 * (m + d - 1));
            int32_t device_of[8];
            weft_pp_stage_map_fill(WEFT_MAP_ROUND, d, d, device_of);
            weft_pp_schedule want;
            cr_assert_eq(
                weft_pp_schedule_make(WEFT_PP_SCHEDULE_1F1B, device_of, d, d, m, NULL, &want),
                WEFT_OK);
            expect_order(&got.schedule, &want);
            weft_pp_schedule_free(&want);
            weft_pp_schedule_free(&got.schedule);
        }
}

/* PULSE Fig. 9: stages = 2 x devices with mirrored pairs gives the wave: the fold of the devices,
 * and as many steps as the wave's lower bound. */
Test(synthesise, recovers_the_wave)
{
    for (int64_t d = 2; d <= 4; d++)
        for (int64_t m = 2; m <= 4; m++) {
            const double start = weft_now();
            weft_synthesis got = solve(2 * d, d, m, true);
            int32_t fold[16];
            weft_pp_stage_map_fill(WEFT_MAP_FOLD, 2 * d, d, fold);
            for (int64_t s = 0; s < 2 * d; s++)
                cr_assert_eq(got.schedule.device_of[s], fold[s]);
            cr_assert(got.proved);
            weft_pp_schedule wave;
            cr_assert_eq(
                weft_pp_schedule_make(WEFT_PP_SCHEDULE_WAVE, fold, 2 * d, d, m, NULL, &wave),
                WEFT_OK);
            cr_log_info("D %" PRId64 " M %" PRId64 ": synthesised %" PRId64
                        " steps, generator %" PRId64 ", bound %" PRId64 ", %" PRId64 " "
                        "states, %.2f s",
                        d, m, got.schedule.steps, wave.steps,
                        weft_pp_schedule_lower_bound(fold, 2 * d, d, m), got.states,
                        weft_now() - start);
            cr_assert_eq(wave.steps, got.schedule.steps);
            weft_pp_schedule_free(&wave);
            weft_pp_schedule_free(&got.schedule);
        }
}

/* The list scheduler that extends the pattern is as short as the exact search wherever both can. */
Test(synthesise, extension_keeps_the_optimum)
{
    int cases = 0, equal = 0;
    for (int64_t d = 1; d <= 4; d++)
        for (int64_t stages = d; stages <= 8; stages++)
            for (int64_t m = 1; m <= 4; m++)
                for (int mirrored = 0; mirrored < 2; mirrored++) {
                    if (stages > 6 && (m > 3 || (!mirrored && d > 2)))
                        continue;
                    weft_synthesis exact = solve(stages, d, m, mirrored), rule;
                    weft_pp_stage_pair pair[8];
                    for (int32_t s = 0; s < stages / 2; s++)
                        pair[s] = (weft_pp_stage_pair){s, (int32_t)stages - 1 - s};
                    cr_assert_eq(
                        weft_synthesise(stages, d, m, pair, mirrored ? stages / 2 : 0, 1, &rule),
                        WEFT_OK);
                    cr_assert_eq(rule.states, 0);
                    cr_assert(rule.schedule.steps >= exact.schedule.steps);
                    cases++;
                    equal += rule.schedule.steps == exact.schedule.steps;
                    if (rule.schedule.steps != exact.schedule.steps)
                        cr_log_info("S %" PRId64 " D %" PRId64 " M %" PRId64 " %s: %" PRId64
                                    ", exact %" PRId64,
                                    stages, d, m, mirrored ? "mirrored" : "free",
                                    rule.schedule.steps, exact.schedule.steps);
                    weft_pp_schedule_free(&rule.schedule);
                    weft_pp_schedule_free(&exact.schedule);
                }
    cr_log_info("%d of %d extended schedules are optimal", equal, cases);
    cr_assert(equal * 100 >= cases * 80);
}

/* Few states, but too many ways between them (20 s if all were tried): gives up, extends. */
Test(synthesise, gives_up_on_too_many_ways)
{
    weft_synthesis got = solve(10, 10, 7, false);
    cr_assert_eq(got.states, 0);
    cr_assert(got.proved);
    cr_assert_eq(got.schedule.steps, 32);
    weft_pp_schedule_free(&got.schedule);
}

Test(synthesise, extends_to_any_size)
{
    for (int64_t d = 5; d <= 32; d *= 2) {
        weft_synthesis got = solve(2 * d, d, 2 * d, true);
        cr_assert_eq(got.states, 0);
        cr_log_info("D %" PRId64 " M %" PRId64 ": %" PRId64 " steps, bound %" PRId64, d, 2 * d,
                    got.schedule.steps, got.lower_bound);
        cr_assert((double)got.schedule.steps <= 1.05 * (double)got.lower_bound);
        weft_pp_schedule_free(&got.schedule);
    }
}

/* ---- the referee: Eq. 6-12 as a mixed integer programme, solved by CBC --------------------- */

typedef struct rows {
    int start[4096], index[200000], count, entries;
    double value[200000], low[4096], high[4096];
} rows;

static void row_begin(rows *r, double low, double high)
{
    r->low[r->count] = low;
    r->high[r->count] = high;
    r->start[r->count++] = r->entries;
}
static void row_put(rows *r, int column, double value)
{
    r->index[r->entries] = column;
    r->value[r->entries++] = value;
}

static int cbc_steps(int stages, int devices, int microbatches, bool mirrored, int horizon)
{
    static rows r;
    const int chain = 2 * stages, M = microbatches, D = devices, T = horizon;
    const int columns = chain * M * D * T + 1, last = columns - 1;
#define X(s, m, d, t) ((((s)*M + (m)) * D + (d)) * T + (t))
    r.count = r.entries = 0;
    for (int s = 0; s < chain; s++)
        for (int m = 0; m < M; m++) {
            row_begin(&r, 1, 1); /* Eq. 6 */
            for (int d = 0; d < D; d++)
                for (int t = 0; t < T; t++)
                    row_put(&r, X(s, m, d, t), 1);
            row_begin(&r, 0, 1e30); /* Eq. 12 */
            row_put(&r, last, 1);
            for (int d = 0; d < D; d++)
                for (int t = 0; t < T; t++)
                    row_put(&r, X(s, m, d, t), -t);
            for (int next = 0; next < 2; next++) { /* Eq. 10 and 11 */
                if (next == 0 ? s + 1 == chain : m + 1 == M)
                    continue;
                row_begin(&r, next == 0 ? 1 : 0, 1e30);
                for (int d = 0; d < D; d++)
                    for (int t = 0; t < T; t++) {
                        row_put(&r, next == 0 ? X(s + 1, m, d, t) : X(s, m + 1, d, t), t);
                        row_put(&r, X(s, m, d, t), -t);
                    }
            }
            /* Eq. 8: the device of (s, m) is that of (s, 0); Eq. 9: F and B of a stage, mirrored
             * pairs */
            int same[3] = {m > 0 ? s : -1, chain - 1 - s > s ? chain - 1 - s : -1, -1};
            if (mirrored && s < stages && stages - 1 - s > s)
                same[2] = stages - 1 - s;
            for (int k = 0; k < 3; k++)
                for (int d = 0; d < D && same[k] >= 0; d++) {
                    row_begin(&r, 0, 0);
                    for (int t = 0; t < T; t++) {
                        row_put(&r, X(s, m, d, t), 1);
                        row_put(&r, X(same[k], k == 0 ? 0 : m, d, t), -1);
                    }
                }
        }
    for (int d = 0; d < D; d++)
        for (int t = 0; t < T; t++) {
            row_begin(&r, 0, 1); /* Eq. 7 */
            for (int s = 0; s < chain; s++)
                for (int m = 0; m < M; m++)
                    row_put(&r, X(s, m, d, t), 1);
        }
    r.start[r.count] = r.entries;
    /* column form */
    static int start[20000], index[200000], fill[20000];
    static double value[200000], low[20000], high[20000], cost[20000];
    memset(fill, 0, sizeof fill);
    for (int k = 0; k < r.entries; k++)
        fill[r.index[k]]++;
    start[0] = 0;
    for (int c = 0; c < columns; c++) {
        start[c + 1] = start[c] + fill[c];
        fill[c] = start[c];
        low[c] = 0;
        high[c] = c == last ? T : 1;
        cost[c] = c == last;
    }
    for (int d = 1; d < D; d++) /* the first stage is on device 0 */
        for (int t = 0; t < T; t++)
            high[X(0, 0, d, t)] = 0;
    for (int k = 0; k < r.count; k++)
        for (int e = r.start[k]; e < r.start[k + 1]; e++) {
            index[fill[r.index[e]]] = k;
            value[fill[r.index[e]]++] = r.value[e];
        }
#undef X
    Cbc_Model *model = Cbc_newModel();
    Cbc_loadProblem(model, columns, r.count, start, index, value, low, high, cost, r.low, r.high);
    for (int c = 0; c < last; c++)
        Cbc_setInteger(model, c);
    Cbc_setParameter(model, "logLevel", "0");
    Cbc_setParameter(model, "sec", "40");
    Cbc_solve(model);
    const int steps = Cbc_isProvenOptimal(model) ? (int)(Cbc_getObjValue(model) + 1.5) : -1;
    Cbc_deleteModel(model);
    return steps;
}

Test(synthesise, agrees_with_cbc)
{
    static const struct {
        int stages, devices, microbatches;
        bool mirrored;
    } cases[] = {{1, 1, 3, false}, {2, 2, 2, false}, {2, 2, 3, false}, {2, 1, 2, true},
                 {3, 2, 2, false}, {3, 3, 2, false}, {4, 2, 2, true},  {4, 2, 2, false},
                 {3, 2, 2, true},  {2, 2, 4, false}};
    int agreed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_synthesis got =
            solve(cases[i].stages, cases[i].devices, cases[i].microbatches, cases[i].mirrored);
        const double start = weft_now();
        const int steps = cbc_steps(cases[i].stages, cases[i].devices, cases[i].microbatches,
                                    cases[i].mirrored, (int)got.schedule.steps + 1);
        cr_log_info("S %d D %d M %d %s: %" PRId64 " steps, CBC %d (%.2f s)", cases[i].stages,
                    cases[i].devices, cases[i].microbatches,
                    cases[i].mirrored ? "mirrored" : "free", got.schedule.steps, steps,
                    weft_now() - start);
        if (steps > 0) {
            cr_assert_eq(steps, got.schedule.steps);
            agreed++;
        }
        weft_pp_schedule_free(&got.schedule);
    }
    cr_assert(agreed >= 8, "CBC solved only %d", agreed);
}
