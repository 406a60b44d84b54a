/* Predictions for the dispatcher of rank 0 in one iteration: the seconds of latent transfers, and
 * the scenarios in which searches of `dispatch: search` compare orders. The scenarios are drawn
 * from the run's record of measured / predicted seconds; with an empty record every cascade needs
 * its predicted seconds. */
#ifndef WEFT_TRAIN_CASCADE_DISPATCH_INPUTS_H
#define WEFT_TRAIN_CASCADE_DISPATCH_INPUTS_H

#include "plan/cascade/expect.h"
#include "train/cascade/iteration_layout.h"

typedef struct weft_dispatch_inputs {
    weft_dispatch_hand *transfer; /* [cascades] seconds to transfer latents to a DiT cascade */
    weft_dispatch_replan replan;
    double *factor; /* [WEFT_REPLAN_SCENARIOS][cascades], for `replan` */
    int64_t capacity;
} weft_dispatch_inputs;

/* Sets the predictions for the cascades of a plan. errors[WEFT_CASCADE_MODULES]: record of a
 * module. transfer[buckets]: seconds of a sample's latents. The result is valid until the next
 * call. `inputs` starts zeroed. */
weft_status weft_dispatch_inputs_fill(weft_dispatch_inputs *inputs,
                                      const weft_placed_iteration *plan,
                                      const weft_price_errors *errors,
                                      const weft_dispatch_hand *transfer, uint64_t seed);
void weft_dispatch_inputs_free(weft_dispatch_inputs *inputs);

#endif
