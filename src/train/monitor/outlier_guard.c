#include "train/monitor/outlier_guard.h"

#include <math.h>

weft_guard weft_guard_make(const weft_run_guard *config)
{
    return (weft_guard){
        .factor = config->factor, .window = config->window, .patience = config->patience};
}

void weft_guard_limits(const weft_guard *guard, float *loss_limit, float *norm_limit)
{
    *loss_limit = *norm_limit = HUGE_VALF;
    if (guard->factor <= 0 || guard->accepted < guard->window)
        return;
    *loss_limit = (float)(guard->factor * fabs(guard->loss));
    *norm_limit = (float)(guard->factor * guard->norm);
}

weft_status weft_guard_record(weft_guard *guard, double loss, double norm, bool skipped)
{
    if (!skipped) {
        const double n =
            (double)(guard->accepted < guard->window ? guard->accepted : guard->window - 1);
        guard->loss = (guard->loss * n + loss) / (n + 1);
        guard->norm = (guard->norm * n + norm) / (n + 1);
        guard->accepted++;
        guard->in_a_row = 0;
        return WEFT_OK;
    }
    guard->skipped++;
    if (++guard->in_a_row < guard->patience)
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_LOSS_NOT_FINITE, WEFT_AT(WEFT_NUMBER(loss)),
        "%" PRId64
        " steps in a row were skipped (loss %g, gradient norm %g; usual are %g and %g): %s",
        guard->in_a_row, loss, norm, guard->loss, guard->norm,
        isfinite(loss) && isfinite(norm) ? "lower the learning rate, or raise guard.factor"
                                         : "lower the learning rate, or look for NaN in the data");
}

json_t *weft_guard_state(const weft_guard *guard)
{
    return json_pack("{s:f, s:f, s:I, s:I, s:I}", "loss", guard->loss, "norm", guard->norm,
                     "accepted", (json_int_t)guard->accepted, "skipped", (json_int_t)guard->skipped,
                     "in_a_row", (json_int_t)guard->in_a_row);
}

weft_status weft_guard_restore(weft_guard *guard, const json_t *state, const char *where)
{
    weft_guard g = *guard;
    WEFT_TRY(weft_json_get_f64(state, "loss", where, &g.loss));
    WEFT_TRY(weft_json_get_f64(state, "norm", where, &g.norm));
    WEFT_TRY(weft_json_get_i64(state, "accepted", where, &g.accepted));
    WEFT_TRY(weft_json_get_i64(state, "skipped", where, &g.skipped));
    WEFT_TRY(weft_json_get_i64(state, "in_a_row", where, &g.in_a_row));
    const int64_t most = INT64_C(1) << 52; /* avoids overflow in sums */
    if (g.accepted < 0 || g.accepted > most || g.skipped < 0 || g.skipped > most ||
        g.in_a_row < 0 || g.in_a_row > g.skipped || !isfinite(g.loss) || !isfinite(g.norm))
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "guard"),
                          "impossible values: %" PRId64 ", %" PRId64 " and %" PRId64
                          " steps were counted, with a loss "
                          "of %g and a norm of %g",
                          g.accepted, g.skipped, g.in_a_row, g.loss, g.norm);
    *guard = g;
    return WEFT_OK;
}
