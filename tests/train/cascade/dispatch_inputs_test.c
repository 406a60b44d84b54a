/* Late dispatch has the predictions of the cascade's module and bucket. */
#include "train/cascade/dispatch_inputs.h"

#include <criterion/criterion.h>
#include <math.h>

enum { COUNT = 3 };

static void make_plan(weft_placed_iteration *plan)
{
    static weft_placed_sample sample[2] = {{.bucket = 1}, {.bucket = 0}};
    static weft_placed_cascade cascade[COUNT] = {{.module = WEFT_CASCADE_VAE},
                                                 {.module = WEFT_CASCADE_DIT},
                                                 {.module = WEFT_CASCADE_DIT, .sample = 1}};
    *plan = (weft_placed_iteration){
        .step = 3, .sample = sample, .samples = 2, .cascade = cascade, .cascades = COUNT};
}

Test(dispatch_inputs, predictions_are_of_module_and_bucket)
{
    static weft_price_errors errors[WEFT_CASCADE_MODULES];
    const weft_dispatch_hand transfer[2] = {{1, 2}, {3, 4}};
    weft_placed_iteration plan;
    weft_dispatch_inputs in = {0};
    double sum = 0;
    make_plan(&plan);
    weft_price_errors_add(&errors[WEFT_CASCADE_VAE], 2);
    weft_price_errors_add(&errors[WEFT_CASCADE_DIT], 1.2);
    weft_price_errors_add(&errors[WEFT_CASCADE_DIT], 1.4);
    plan.cascades = 1; /* the next call needs more memory */
    cr_assert_eq(weft_dispatch_inputs_fill(&in, &plan, errors, transfer, 5), WEFT_OK);
    plan.cascades = COUNT;
    cr_assert_eq(weft_dispatch_inputs_fill(&in, &plan, errors, transfer, 5), WEFT_OK);
    cr_assert_eq(in.replan.factor, in.factor);
    for (int64_t i = 0; i < in.replan.scenarios; i++) {
        cr_expect_eq(in.factor[i * COUNT], 2);
        cr_expect(in.factor[i * COUNT + 1] >= 1.2 && in.factor[i * COUNT + 1] <= 1.4);
        sum += in.factor[i * COUNT + 1];
    }
    cr_expect_float_eq(sum / (double)in.replan.scenarios, 1.3, 1e-9);
    cr_expect_eq(in.transfer[0].inside, 0, "an encoder receives no latents");
    cr_expect_eq(in.transfer[1].inside, 3);
    cr_expect_eq(in.transfer[1].between, 4);
    cr_expect_eq(in.transfer[2].between, 2);
    weft_dispatch_inputs_free(&in);
}

Test(dispatch_inputs, an_empty_record_has_no_errors)
{
    static const weft_price_errors errors[WEFT_CASCADE_MODULES];
    const weft_dispatch_hand transfer[2] = {{0}};
    weft_placed_iteration plan;
    weft_dispatch_inputs in = {0};
    make_plan(&plan);
    cr_assert_eq(weft_dispatch_inputs_fill(&in, &plan, errors, transfer, 5), WEFT_OK);
    for (int64_t i = 0; i < in.replan.scenarios * COUNT; i++)
        cr_expect_eq(in.factor[i], 1);
    weft_dispatch_inputs_free(&in);
}
