/* The optimizer step as part of the graph: gradients, global-norm clipping, AdamW with decoupled
 * weight decay, EMA. */
#ifndef WEFT_TRAIN_OPTIMIZER_H
#define WEFT_TRAIN_OPTIMIZER_H

#include "base/config.h"
#include "graph/graph.h"

typedef struct weft_optimizer_config {
    double beta1, beta2, eps, weight_decay;
    double clip_norm; /* of the whole gradient; 0: none */
    bool decay_all;   /* also biases, norms and other parameters of rank < 2 */
    double ema_decay; /* 0: no moving average is kept */
} weft_optimizer_config;
extern const weft_section weft_optimizer_section;

/* Adds to `g`, whose forward ends in the scalar `loss`:
 *   inputs  "optimizer.lr", "optimizer.step" (from 1), "optimizer.loss_limit",
 * "optimizer.norm_limit": scalars f32; a loss or norm over its limit, or not finite, leaves every
 * parameter and state as it was states  "adamw.m.<param>", "adamw.v.<param>", and with EMA
 * "ema.<param>" outputs "loss", "grad_norm" (before clipping), "grad_scale" (NaN: the step was
 * skipped) Parameters that the loss does not reach keep their values and have no states. */
void weft_optimizer_build(weft_graph *g, weft_value loss, const weft_optimizer_config *config);

#endif
