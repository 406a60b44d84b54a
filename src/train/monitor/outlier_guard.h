/* Outliers: a step whose loss or gradient norm is not finite or far above what was usual is skipped
 * and counted. */
#ifndef WEFT_TRAIN_GUARD_H
#define WEFT_TRAIN_GUARD_H

#include "base/json.h"
#include "train/run.h"

typedef struct weft_guard {
    double factor;
    int64_t window, patience;
    double loss, norm; /* running means over accepted steps */
    int64_t accepted, skipped, in_a_row;
} weft_guard;

weft_guard weft_guard_make(const weft_run_guard *config);
/* The largest loss and norm that the coming step may have; HUGE_VALF: any finite one. */
void weft_guard_limits(const weft_guard *guard, float *loss_limit, float *norm_limit);
/* After the step. WEFT_E_NUMERIC when `patience` steps in a row were skipped. */
weft_status weft_guard_note(weft_guard *guard, double loss, double norm, bool skipped);
json_t *weft_guard_state(const weft_guard *guard);
weft_status weft_guard_restore(weft_guard *guard, const json_t *state, const char *where);

#endif
