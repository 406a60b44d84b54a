/* Operator lists of the diffusion models with long skips, at the sizes of PULSE §VII: UViT, the
 * UNet of Stable Diffusion v2, Hunyuan-DiT. One sample per list, fp16 (2 bytes).
 *
 * An operator is a residual sub-layer (attention, MLP, resnet block, ...), so that each has one
 * output tensor. A cut inside a sub-layer would also send the residual stream. Activations are
 * those saved by a training step that does not store attention scores. */
#ifndef WEFT_PLAN_PUBLISHED_UNET_LIST_H
#define WEFT_PLAN_PUBLISHED_UNET_LIST_H

#include "plan/ops/op_list.h"

typedef struct weft_unet_list {
    weft_op_list list;
    int64_t *block;       /* [count], arena: block of each operator, as its authors count blocks */
    double context_bytes; /* part of every output that has no gradient: text of a frozen encoder */
    double parameters;    /* number of weights */
} weft_unet_list;

typedef struct weft_unet_preset {
    const char *name; /* "uvit-2.7b" */
    const char *help;
} weft_unet_preset;
/* Returns preset number `index` from 0; NULL after the last. */
const weft_unet_preset *weft_unet_preset_at(int index);

/* WEFT_E_NOT_FOUND names the nearest preset. */
weft_status weft_unet_costs(weft_arena *arena, const char *preset, weft_unet_list *out);

/* The three families at any size. */
weft_status weft_uvit_costs(weft_arena *arena, int64_t hidden, int64_t depth, weft_unet_list *out);
/* `per_level`: resnet and attention blocks per resolution level of the encoder; the published model
 * has 2. */
weft_status weft_sdv2_costs(weft_arena *arena, int64_t per_level, int64_t latent,
                            weft_unet_list *out);
weft_status weft_hunyuan_dit_costs(weft_arena *arena, int64_t hidden, int64_t depth,
                                   weft_unet_list *out);

#endif
