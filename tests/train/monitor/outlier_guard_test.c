#include "train/monitor/outlier_guard.h"

#include <criterion/criterion.h>
#include <math.h>

Test(schedule, warmup_then_cosine)
{
    const weft_train_stage s = {
        .steps = 110, .warmup = 10, .lr = 1, .lr_end = 0.1, .schedule = WEFT_LR_COSINE};
    cr_assert_float_eq(weft_train_stage_lr(&s, 0), 0.1, 1e-12);
    cr_assert_float_eq(weft_train_stage_lr(&s, 9), 1, 1e-12);
    cr_assert_float_eq(weft_train_stage_lr(&s, 10), 1, 1e-12);
    cr_assert_float_eq(weft_train_stage_lr(&s, 109), 0.1, 1e-12);
    for (int64_t i = 11; i < 110; i++)
        cr_assert_lt(weft_train_stage_lr(&s, i), weft_train_stage_lr(&s, i - 1));
    const weft_train_stage constant = {.steps = 5, .lr = 0.5, .schedule = WEFT_LR_CONSTANT};
    cr_assert_float_eq(weft_train_stage_lr(&constant, 4), 0.5, 1e-12);
    const weft_train_stage brief = {.steps = 4, .warmup = 20, .lr = 1, .schedule = WEFT_LR_COSINE};
    cr_assert_float_eq(weft_train_stage_lr(&brief, 0), 0.25, 1e-12);
    cr_assert_float_eq(weft_train_stage_lr(&brief, 3), 1, 1e-12);
}

Test(schedule, stages_follow_each_other)
{
    weft_train_stage stage[] = {{.steps = 3}, {.steps = 4}};
    const weft_run run = {.train_stages = {2, stage}};
    cr_assert_eq(weft_run_first_step(&run, 1), 3);
    cr_assert_eq(weft_run_first_step(&run, 2), 7);
}

Test(guard, limits_after_the_window_and_patience)
{
    weft_guard g = weft_guard_make(&(weft_run_guard){.factor = 4, .window = 3, .patience = 2});
    float loss, norm;
    for (int i = 0; i < 3; i++) {
        weft_guard_limits(&g, &loss, &norm);
        cr_assert(isinf(loss) && isinf(norm));
        cr_assert_eq(weft_guard_record(&g, 2, 1, false), WEFT_OK);
    }
    weft_guard_limits(&g, &loss, &norm);
    cr_assert(loss == 8 && norm == 4);
    cr_assert_eq(weft_guard_record(&g, NAN, NAN, true), WEFT_OK);
    cr_assert(g.skipped == 1 && g.loss == 2, "a skipped step leaves the means");
    cr_assert_eq(weft_guard_record(&g, 2, 1, false), WEFT_OK);
    cr_assert_eq(weft_guard_record(&g, 99, 1, true), WEFT_OK);
    cr_assert_eq(weft_guard_record(&g, 99, 1, true), WEFT_E_NUMERIC);

    json_t *state = weft_guard_state(&g);
    weft_guard back = weft_guard_make(&(weft_run_guard){.factor = 4, .window = 3, .patience = 2});
    cr_assert_eq(weft_guard_restore(&back, state, "state.json"), WEFT_OK);
    cr_assert(back.loss == g.loss && back.norm == g.norm && back.skipped == 3 &&
              back.in_a_row == 2);
    json_object_del(state, "norm");
    cr_assert_eq(weft_guard_restore(&back, state, "state.json"), WEFT_E_FORMAT);
    json_decref(state);
}
