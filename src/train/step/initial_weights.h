/* Fills the store before the first step: parameters and states of all training stages, and the
 * initial or pretrained weights of the trained models. */
#ifndef WEFT_TRAIN_STEP_INITIAL_WEIGHTS_H
#define WEFT_TRAIN_STEP_INITIAL_WEIGHTS_H

#include "train/step/train_context.h"

/* Loads or initialises all trained models, and draws the deferred initial values of other
 * parameters. `whole`: the unsharded graph of a step, whose parameters the store has. Sets the EMA
 * states. */
weft_status weft_initial_weights(weft_train_context *context, const weft_graph *whole);
/* Bytes that weft_initial_weights reserves besides the store: with several ranks, a model that its
 * family initialises is built unsharded. `whole` as in weft_initial_weights. */
int64_t weft_initial_weights_bytes(const weft_run *run, const weft_run_models *models,
                                   const weft_exec_config *exec, const weft_graph *whole);
/* Adds the parameters and states of all training stages to the store. Loads or initialises the
 * weights, unless the device has no values. A stage of single frames has no gradient for temporal
 * convolutions. A checkpoint of the next stage contains their moments and EMA. */
weft_status weft_initial_weights_fill(weft_train_context *context);

#endif
