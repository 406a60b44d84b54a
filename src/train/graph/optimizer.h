/* The optimizer step as part of the graph: gradients, global-norm clipping, AdamW with decoupled
 * weight decay, EMA. */
#ifndef WEFT_TRAIN_GRAPH_OPTIMIZER_H
#define WEFT_TRAIN_GRAPH_OPTIMIZER_H

#include "base/config.h"
#include "train/config/optimizer_config.h"
#include "transform/sharding/pp_stages.h"

/* Adds the update of steps with one contribution to `g`, whose forward ends in the scalar `loss`:
 *
 *   inputs   "optimizer.lr", "optimizer.step" (from 1), "optimizer.loss_limit",
 *            "optimizer.norm_limit": scalars f32. A loss or norm that is above its limit or not
 *            finite leaves all parameters and states unchanged
 *   states   "adamw.m.<param>", "adamw.v.<param>", and with EMA "ema.<param>"
 *   outputs  "loss", "grad_norm" (before clipping), "grad_scale" (NaN: the step was skipped)
 *
 * With a discriminator: inputs "optimizer.discriminator_step" (from 1) and
 * "optimizer.discriminator_limit" (infinite; below 0: no update), output "discriminator_norm".
 * A skipped step does not update the discriminator either. The discriminator has no EMA.
 *
 * With a fake score (WEFT_FAKE_SCOPE): inputs "optimizer.fake_step" (from 1) and
 * "optimizer.generator" (0: only the fake score is updated; 1: both), output "fake_norm". Otherwise
 * as the discriminator.
 *
 * Outputs of the forward must not have these names.
 * Parameters that the loss does not reach keep their values and have no states. */
void weft_optimizer_build(weft_graph *g, weft_value loss, const weft_optimizer_config *config);

/* Steps with several contributions: gradient programs add contributions, and one update program
 * reduces over ranks, clips and updates.
 *
 *   gradients of bucket 0  ──+──> grad.<param>, grad.loss ──> update ──> params, moments, EMA
 *   gradients of bucket 1  ──+    local gradients         all_reduce     grad.* are reset to 0
 *
 * A gradient state has the layout of its parameter. It is P (pending sum) over the axes on which
 * each rank uses the parameter for its own data. Only the update reduces over these axes, once.
 *
 * weft_optimizer_accumulate adds to `g`, the graph of one rank, the gradient states and the input
 * "optimizer.weight": the weight of this contribution in the step's mean loss. Output "loss": the
 * unweighted loss of this contribution. The scalar outputs of `metrics` (usually `g`; NULL: none),
 * except "objective", are accumulated with the same weight. */
void weft_optimizer_accumulate(weft_graph *g, weft_value loss, const weft_graph *metrics,
                               const weft_optimizer_config *config);
/* Adds the gradient states of a pipeline stage; `axis` is the pipeline's mesh axis, and `metrics`
 * the graph of all stages. Otherwise as weft_optimizer_accumulate. The loss is the stage's output
 * "objective", if any. Gradients of sent
 * values are read from slots, and gradients of received values are written to slots
 * (transform/sharding/pp_stages.h).
 *
 *     parameters of this device's stages   S on the axis: counted once in the norm
 *     parameters that every device has     R; their gradients are P, one contribution per device
 *     accumulated loss and metrics         P: one device has each of them */
void weft_optimizer_accumulate_stage(const weft_pp_stage_graph *pp_stage, const weft_graph *metrics,
                                     int axis, const weft_optimizer_config *config);
/* The update program for `count` graphs of weft_optimizer_accumulate, with the inputs, states and
 * outputs of weft_optimizer_build. "loss" is the weighted sum, and so is each metric, which is an
 * output with its own name. NULL: out of memory; other errors
 * are stored in the graph. */
weft_graph *weft_optimizer_update(const weft_graph *const *gradients, int count,
                                  const weft_optimizer_config *config);

/* The update program for contributions that were added with config->own. The graphs may have any
 * meshes that do not split parameters. `mesh` has one axis of all ranks, on which each rank has its
 * own contribution. Parameters without an update are included, so that the program can fill a
 * store.
 *
 *     grad.* of a rank, from groups [0 1 2], [0], [2 3]      P on the axis
 *     all_reduce, or with config->zero reduce_scatter        once over all ranks
 *
 * Without config->own every rank already has the complete sums. */
weft_graph *weft_optimizer_update_own(const weft_graph *const *gradients, int count,
                                      const weft_mesh *mesh, int rank,
                                      const weft_optimizer_config *config);

/* A program that all-reduces the gradient states of `update` over `mesh`, which has one axis.
 * `retain`: this rank keeps the sum; otherwise its states become zeros. NULL: out of memory; other
 * errors are stored in the graph. */
weft_graph *weft_optimizer_sum(const weft_graph *update, const weft_mesh *mesh, int rank,
                               bool retain);

/* The program before the update of a pipeline. Reduces the gradients of shared parameters and the
 * loss over the pipeline stages. The program is the same on all stages, so that all stages reduce
 * in the same order. The update itself exchanges only scalars between stages. NULL: out of memory;
 * other errors are stored in the graph. */
weft_graph *weft_optimizer_share(const weft_graph *const *gradients, int count);

/* The last program of training, which replaces every parameter of `step` with its EMA. NULL: out of
 * memory; other errors are stored in the graph. */
weft_graph *weft_optimizer_averages(const weft_graph *step);

#endif
