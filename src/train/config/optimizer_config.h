#ifndef WEFT_TRAIN_CONFIG_OPTIMIZER_CONFIG_H
#define WEFT_TRAIN_CONFIG_OPTIMIZER_CONFIG_H

#include "base/config.h"

/* ZeRO: distributes the update over the ranks of an axis that hold the same parameters (Rajbhandari
 * et al., SC'20). With a level above 0, each rank reduces and updates its own shard of a parameter.
 * It keeps moments and averages of that shard only. The updated shards are gathered:
 *
 *     gradients on 2 ranks  own shard            own shard          complete again
 *     [a a a a] ──reduce_scatter──> [A A] ──AdamW──> [P P] ──all_gather──> [P P P P]
 *     [b b b b] ──────────────────> [B B] ────────> [Q Q] ──────────────> [Q Q Q Q]
 *
 * Level 1: accumulated local gradients keep their full size until the update.
 * Level 2: each contribution is scattered at once, and only the own shard is accumulated. */
typedef struct weft_zero {
    int level; /* 0: every rank updates all parameters */
    int axis;  /* mesh axis */
} weft_zero;
/* Scope of the target network of a distillation: an EMA of the trained model that is called in the
 * step. */
#define WEFT_TARGET_SCOPE "target"
/* Scope of the fake score of a distillation: the score of the student's samples, which has its own
 * clipping and update. */
#define WEFT_FAKE_SCOPE "fake"
/* Scope of the discriminator's parameters, which have their own clipping and update. */
#define WEFT_DISCRIMINATOR_SCOPE "discriminator"
typedef struct weft_optimizer_apart {
    double lr; /* factor of the training stage's learning rate */
    double beta1, beta2, weight_decay, clip_norm;
} weft_optimizer_apart;
typedef struct weft_optimizer_config {
    double beta1, beta2, eps, weight_decay;
    double clip_norm;    /* maximum norm of the gradient; 0: unlimited */
    bool decay_all;      /* decay also biases, norms and other parameters of rank < 2 */
    double ema_decay;    /* decay of the moving average of weights; 0: off */
    double target_decay; /* decay of the target network (distill.target_decay); 0: none */
    weft_optimizer_apart discriminator;
    weft_optimizer_apart fake; /* of the fake score (distill.fake) */
    weft_zero zero;            /* not a config key: set from the run's mesh */
    /* Not a config key. Reduces bf16 gradients over ranks in bf16; false: in f32. */
    bool bf16_reduce;
    /* Not a config key. Gradient states hold this rank's contribution on every axis of the mesh,
     * with equal shares if all ranks have the same gradient. Contributions of any groups can
     * therefore be added. */
    bool own;
} weft_optimizer_config;

extern const weft_section weft_optimizer_section;

#endif
