/* Published video DiTs by name, with the figures of their VAEs and text encoders. Families that
 * weft implements are built as graphs (plan_models.h); the others have an operator list here. bf16,
 * 2 bytes. */
#ifndef WEFT_PLAN_PUBLISHED_VIDEO_LIST_H
#define WEFT_PLAN_PUBLISHED_VIDEO_LIST_H

#include "plan/ops/model_work.h"

typedef enum weft_dit_kind {
    WEFT_DIT_GRAPH, /* weft implements the family and its sizes; no list here */
    WEFT_DIT_JOINT, /* one attention over text and video (CogVideoX) */
    WEFT_DIT_DUAL,  /* double-stream, then single-stream blocks (HunyuanVideo) */
    WEFT_DIT_STDIT, /* full, spatial and temporal attention, MLP (NeMo §4.6) */
} weft_dit_kind;

typedef struct weft_video_preset {
    const char *name, *help;
    weft_dit_kind kind;
    int64_t layers, double_layers; /* double_layers: of `layers`, for WEFT_DIT_DUAL */
    int64_t hidden, heads, ffn;
    int64_t text_tokens, text_parameters, text_hidden;
    int64_t patch;               /* spatial, of the latent */
    int64_t vae_time, vae_space; /* strides */
    int64_t vae_channels;        /* at full resolution */
    int64_t latent_channels;
    int64_t tile_frames, tile_side; /* VAE's base tile; side in pixels */
    double tile_overlap;            /* share of a side that neighbours have in common */
} weft_video_preset;

const weft_video_preset *weft_video_preset_at(int index);          /* NULL after the last */
const weft_video_preset *weft_video_preset_find(const char *name); /* NULL: unknown name */

int64_t weft_video_latent_frames(const weft_video_preset *model, int64_t frames);
/* Sets all members of a clip except the denoiser's list. */
void weft_video_clip(const weft_video_preset *model, int64_t frames, int64_t height, int64_t width,
                     weft_clip_work *out);
/* Makes the DiT's list for one clip; not for WEFT_DIT_GRAPH. Sizes round up to whole patches. */
weft_status weft_video_list(weft_arena *arena, const weft_video_preset *model, int64_t frames,
                            int64_t height, int64_t width, weft_op_list *out);

#endif
