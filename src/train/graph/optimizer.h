/* The optimizer step as part of the graph: gradients, global-norm clipping, AdamW with decoupled
 * weight decay, EMA. */
#ifndef WEFT_TRAIN_OPTIMIZER_H
#define WEFT_TRAIN_OPTIMIZER_H

#include "base/config.h"
#include "pass/stage.h"

/* Who steps what, where the ranks of an axis hold the same parameters (ZeRO; Rajbhandari et al.,
 * SC'20). With a level each rank sums and steps its own part of a parameter, keeps moments and
 * averages of that only, and the parts are gathered:
 *
 *     terms on 2 ranks      own part             own part           whole again
 *     [a a a a] ──reduce_scatter──> [A A] ──AdamW──> [P P] ──all_gather──> [P P P P]
 *     [b b b b] ──────────────────> [B B] ────────> [Q Q] ──────────────> [Q Q Q Q]
 *
 * Level 1: sums of several contributions are whole (as every rank's own terms) until the update.
 * Level 2: each contribution is scattered at once, and the sums are of the own part. */
typedef struct weft_zero {
    int level; /* 0: every rank makes the whole step */
    int axis;  /* of the mesh */
} weft_zero;

/* Parameters of this scope are an adversary's: they are clipped and stepped by themselves. */
#define WEFT_DISCRIMINATOR_SCOPE "discriminator"
typedef struct weft_optimizer_apart {
    double lr; /* of the stage's learning rate */
    double beta1, beta2, weight_decay, clip_norm;
} weft_optimizer_apart;

typedef struct weft_optimizer_config {
    double beta1, beta2, eps, weight_decay;
    double clip_norm; /* of the whole gradient; 0: none */
    bool decay_all;   /* also biases, norms and other parameters of rank < 2 */
    double ema_decay; /* 0: no moving average is kept */
    weft_optimizer_apart discriminator;
    weft_zero zero; /* no key: of the run's mesh */
    /* No key: gradients in bf16 are added up over ranks as they are, else in f32. */
    bool narrow_sums;
    /* No key: what is added to a gradient state is this rank's own term on every axis of the mesh,
     * equal shares where all ranks have the same, so that contributions of any groups add up. */
    bool own;
} weft_optimizer_config;
extern const weft_section weft_optimizer_section;

/* One contribution a step: adds to `g`, whose forward ends in the scalar `loss`:
 *
 *   inputs   "optimizer.lr", "optimizer.step" (from 1), "optimizer.loss_limit",
 *            "optimizer.norm_limit": scalars f32; a loss or norm over its limit, or not finite,
 *            leaves every parameter and state as it was
 *   states   "adamw.m.<param>", "adamw.v.<param>", and with EMA "ema.<param>"
 *   outputs  "loss", "grad_norm" (before clipping), "grad_scale" (NaN: the step was skipped)
 *
 * Where there is a discriminator: inputs "optimizer.discriminator_step" (from 1) and
 * "optimizer.discriminator_limit" (infinite; below 0 leaves it as it is), output
 * "discriminator_norm". A step that is skipped leaves it as it was, too; it has no averages.
 *
 * No output of the forward may have one of these names.
 * Parameters that the loss does not reach keep their values and have no states. */
void weft_optimizer_build(weft_graph *g, weft_value loss, const weft_optimizer_config *config);

/* Several contributions a step: gradient programs that add, one update program that sums over
 * ranks, clips and steps.
 *
 *   gradients of bucket 0  ──+──> grad.<param>, grad.loss ──> update ──> params, moments, averages
 *   gradients of bucket 1  ──+    each rank's own terms   all_reduce     grad.* are 0 again
 *
 * A gradient state lies as its parameter does, and is P (a term of a sum) over the axes that the
 * parameter varies on: nothing is summed over those before the update, and there exactly once.
 *
 * Adds to `g` of one rank the states, and the input "optimizer.weight": the share of this
 * contribution in the step's mean loss. Output "loss": of this contribution, without its weight. */
void weft_optimizer_accumulate(weft_graph *g, weft_value loss, const weft_optimizer_config *config);
/* The same for a stage of a pipeline, over the stages on `axis` of the mesh. Its loss is its output
 * "objective", if it has that; what it sends has gradients that come in slots, and what it received
 * has gradients that go to slots (pass/stage.h).
 *
 *     parameters of this stage's device   S on the axis: a part of the whole, which the norm counts
 *                                         once
 *     those that each device has          R, and their gradients P: a term of each
 *     the sum of losses                   P: one device has it */
void weft_optimizer_accumulate_stage(const weft_stage_graph *stage, int axis,
                                     const weft_optimizer_config *config);
/* The update of what `count` such graphs add to, with the inputs, states and outputs of
 * weft_optimizer_build; "loss" is the weighted sum. NULL: out of memory; other errors stick to the
 * graph. */
weft_graph *weft_optimizer_update(const weft_graph *const *gradients, int count,
                                  const weft_optimizer_config *config);

/* The same of contributions that were added with config->own by graphs of any meshes, none of which
 * splits a parameter: on `mesh`, whose one axis has all ranks, each has its own terms. All that the
 * graphs keep is named, also what is not stepped, so that a store is filled from it.
 *
 *     grad.* of a rank, from groups [0 1 2], [0], [2 3]      P on the axis
 *     all_reduce, or with config->zero reduce_scatter        once over all ranks
 *
 * Without config->own every rank has the whole sums already. */
weft_graph *weft_optimizer_update_own(const weft_graph *const *gradients, int count,
                                      const weft_mesh *mesh, int rank,
                                      const weft_optimizer_config *config);

/* Gradient states of `update` are summed over the ranks of `mesh`, which has one axis; `keeps`:
 * this rank has the sum behind it, else zeros. NULL: out of memory; other errors stick to the
 * graph. */
weft_graph *weft_optimizer_sum(const weft_graph *update, const weft_mesh *mesh, int rank,
                               bool keeps);

/* Of gradients of stages: the program before the update that sums what every stage has a term of,
 * gradients of shared parameters and the loss. It is the same on all stages, so that they sum in
 * one order; what else the update exchanges between them are scalars. NULL: out of memory; other
 * errors stick to the graph. */
weft_graph *weft_optimizer_share(const weft_graph *const *gradients, int count);

/* The program that ends training: every average of `step` takes its parameter's place. NULL: out of
 * memory; other errors stick to the graph. */
weft_graph *weft_optimizer_averages(const weft_graph *step);

#endif
