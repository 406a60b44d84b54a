/* Published video DiTs by name, with the figures of their VAEs and text encoders. Those that weft
 * has are built as graphs (cli/plan_models.h); the others have an operator list made by hand here.
 * bf16, 2 bytes. */
#ifndef WEFT_CLI_PUBLISHED_VIDEO_LIST_H
#define WEFT_CLI_PUBLISHED_VIDEO_LIST_H

#include "plan/cost/model_work.h"

typedef enum weft_dit_kind {
    WEFT_DIT_GRAPH, /* weft has the family: sizes are its own, and no list is here */
    WEFT_DIT_JOINT, /* one attention over text and video (CogVideoX) */
    WEFT_DIT_DUAL,  /* double-stream blocks, then single-stream ones (HunyuanVideo) */
    WEFT_DIT_STDIT, /* full, spatial and temporal attention, MLP (NeMo §4.6) */
} weft_dit_kind;

typedef struct weft_video_preset {
    const char *name, *help;
    weft_dit_kind kind;
    int64_t layers, double_layers; /* double_layers: of `layers`, WEFT_DIT_DUAL */
    int64_t hidden, heads, ffn;
    int64_t text_tokens, text_parameters, text_hidden;
    int64_t patch;               /* spatial, of the latent */
    int64_t vae_time, vae_space; /* strides */
    int64_t vae_channels;        /* at full resolution */
    int64_t latent_channels;
    int64_t tile_frames, tile_side; /* of the VAE's base tile, pixels */
    double tile_overlap;            /* part of a side that neighbours share */
} weft_video_preset;

const weft_video_preset *weft_video_preset_at(int index);          /* NULL after the last */
const weft_video_preset *weft_video_preset_find(const char *name); /* NULL: none of that name */

int64_t weft_video_latent_frames(const weft_video_preset *model, int64_t frames);
/* Everything of a clip but the denoiser's list. */
void weft_video_clip(const weft_video_preset *model, int64_t frames, int64_t height, int64_t width,
                     weft_clip_work *out);
/* The DiT for one clip, by hand; not for WEFT_DIT_GRAPH. Sizes round up to whole patches. */
weft_status weft_video_list(weft_arena *arena, const weft_video_preset *model, int64_t frames,
                            int64_t height, int64_t width, weft_op_list *out);

#endif
