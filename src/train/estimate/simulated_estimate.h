/* Estimates the seconds of a simulated step without executing it. The device's rates determine
 * kernel seconds, and the cluster's links determine collective seconds, on one clock
 * (estimate/program_estimate.h). */
#ifndef WEFT_TRAIN_ESTIMATE_SIMULATED_ESTIMATE_H
#define WEFT_TRAIN_ESTIMATE_SIMULATED_ESTIMATE_H

#include "train/estimate/rank_kinds.h"

/* Fills all fields of `step` that do not need execution. The mesh and the arrays of `step` must
 * exist. */
weft_status weft_simulated_step_estimate(const weft_simulated_setup *setup,
                                         const weft_rank_kinds *kinds, weft_simulated_step *step);

#endif
