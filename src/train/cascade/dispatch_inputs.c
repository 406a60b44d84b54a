#include "train/cascade/dispatch_inputs.h"

#include "base/rng.h"

static weft_status grow(weft_dispatch_inputs *in, int64_t cascades)
{
    if (cascades <= in->capacity)
        return WEFT_OK;
    weft_dispatch_inputs_free(in);
    in->transfer = weft_calloc(cascades, sizeof *in->transfer);
    in->factor = weft_calloc(WEFT_REPLAN_SCENARIOS * cascades, sizeof *in->factor);
    WEFT_TRY(WEFT_ALLOCATED(in->transfer && in->factor, "late dispatch"));
    in->capacity = cascades;
    return WEFT_OK;
}

weft_status weft_dispatch_inputs_fill(weft_dispatch_inputs *in, const weft_placed_iteration *plan,
                                      const weft_price_errors *errors,
                                      const weft_dispatch_hand *transfer, uint64_t seed)
{
    const weft_price_errors **of;
    const int64_t n = weft_placed_scheduled(plan);
    WEFT_TRY(grow(in, n));
    WEFT_TRY(WEFT_NEW(of, n + 1, "late dispatch"));
    for (int64_t c = 0; c < n; c++) {
        const weft_placed_cascade *item = &plan->cascade[c];
        in->transfer[c] = item->module == WEFT_CASCADE_DIT
                              ? transfer[plan->sample[item->sample].bucket]
                              : (weft_dispatch_hand){0};
        of[c] = &errors[item->module];
    }
    in->replan = (weft_dispatch_replan){.evaluations = WEFT_REPLAN_EVALUATIONS,
                                        .scenarios = WEFT_REPLAN_SCENARIOS,
                                        .factor = in->factor,
                                        .seed = weft_seed_mix(seed, (uint64_t)plan->step)};
    const weft_status_code status =
        weft_price_errors_draw(of, n, WEFT_REPLAN_SCENARIOS, in->replan.seed, in->factor);
    weft_free((void *)of);
    return status;
}

void weft_dispatch_inputs_free(weft_dispatch_inputs *in)
{
    weft_free(in->transfer);
    weft_free(in->factor);
    *in = (weft_dispatch_inputs){0};
}
