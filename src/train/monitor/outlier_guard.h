/* Skips and counts a step whose loss or gradient norm is not finite or far above its running
 * mean. */
#ifndef WEFT_TRAIN_MONITOR_OUTLIER_GUARD_H
#define WEFT_TRAIN_MONITOR_OUTLIER_GUARD_H

#include "base/json.h"
#include "train/config/train_config.h"

typedef struct weft_guard {
    double factor;
    int64_t window, patience;
    double loss, norm; /* running means over accepted steps */
    int64_t accepted, skipped, in_a_row;
} weft_guard;

weft_guard weft_guard_make(const weft_run_guard *config);
/* Maximum loss and norm of the next step. HUGE_VALF: no limit for finite values. */
void weft_guard_limits(const weft_guard *guard, float *loss_limit, float *norm_limit);
/* Records a step. WEFT_E_NUMERIC: `patience` consecutive steps were skipped. */
weft_status weft_guard_record(weft_guard *guard, double loss, double norm, bool skipped);
json_t *weft_guard_state(const weft_guard *guard);
weft_status weft_guard_restore(weft_guard *guard, const json_t *state, const char *where);

#endif
