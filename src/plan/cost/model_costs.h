/* Operator lists of video DiTs and the figures of their VAEs and text encoders, by shapes.
 *
 * Sizes are those of Arachne Table II where it lists the model (its CogVideoX has 30 layers of
 * 1920: fewer parameters than the published 5B), else the published ones. bf16, 2 bytes. */
#ifndef WEFT_PLAN_MODEL_COSTS_H
#define WEFT_PLAN_MODEL_COSTS_H

#include "plan/cost/op_list.h"

typedef enum weft_dit_kind {
    WEFT_DIT_CROSS, /* self-attention, cross-attention to the text, MLP (Wan) */
    WEFT_DIT_JOINT, /* one attention over text and video (CogVideoX) */
    WEFT_DIT_DUAL,  /* double-stream blocks, then single-stream ones (HunyuanVideo) */
    WEFT_DIT_STDIT, /* full, spatial and temporal attention, MLP (NeMo §4.6) */
} weft_dit_kind;

typedef struct weft_model_preset {
    const char *name, *help;
    weft_dit_kind kind;
    int64_t layers, double_layers, hidden, heads,
        ffn; /* double_layers: of `layers`, WEFT_DIT_DUAL */
    int64_t text_tokens, text_parameters, text_hidden;
    int64_t patch;                  /* spatial, of the latent */
    int64_t vae_time, vae_space;    /* strides */
    double vae_flops;               /* encoder, per input pixel of a tile */
    int64_t tile_frames, tile_side; /* of the VAE's base tile, pixels */
    double tile_overlap;            /* part of a side that neighbours share */
    int64_t latent_channels;
} weft_model_preset;

const weft_model_preset *weft_model_presets(int *count);
/* WEFT_E_NOT_FOUND names the nearest. */
weft_status weft_model_find(const char *name, const weft_model_preset **out);

/* Latent frames, tokens per latent frame, tokens of a clip. Sizes round up to whole patches. */
int64_t weft_model_latent_frames(const weft_model_preset *model, int64_t frames);
int64_t weft_model_tokens(const weft_model_preset *model, int64_t frames, int64_t height,
                          int64_t width);

/* The DiT for one clip. */
weft_status weft_model_costs(weft_arena *arena, const weft_model_preset *model, int64_t frames,
                             int64_t height, int64_t width, weft_op_list *out);
double weft_model_parameters(const weft_model_preset *model); /* of the DiT */

/* Base tiles that the VAE encoder cuts a clip into, and FLOPs of a full one. */
int64_t weft_model_vae_tiles(const weft_model_preset *model, int64_t frames, int64_t height,
                             int64_t width);
double weft_model_tile_flops(const weft_model_preset *model);
double weft_model_text_flops(const weft_model_preset *model);

#endif
