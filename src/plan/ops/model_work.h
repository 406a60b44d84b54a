/* Costs of the models of an iteration: an operator list per clip shape, and the bytes that modules
 * transfer. The planners read these costs and never a model. */
#ifndef WEFT_PLAN_OPS_MODEL_WORK_H
#define WEFT_PLAN_OPS_MODEL_WORK_H

#include "plan/ops/op_list.h"

/* One clip of one shape. */
typedef struct weft_clip_work {
    int64_t frames, height, width;
    weft_op_list denoiser; /* forward and backward */
    /* video encoder: number of equal tiles, FLOPs and largest activation bytes of one tile */
    int64_t tiles;
    double tile_flops, tile_bytes;
    double text_flops;               /* text encoder */
    double latent_bytes, text_bytes; /* sent from the encoders to the denoiser */
    int64_t latent_frames;           /* contiguous frames in latent_bytes */
} weft_clip_work;

typedef struct weft_model_work {
    const char *name;
    const char *source; /* "graph" or "hand-made list"; printed with every plan */
    int64_t layers, heads, hidden;
    double parameters;        /* number of the denoiser's weights */
    double text_weight_bytes; /* weights of the text encoder */
    weft_clip_work *clip;     /* arena */
    int64_t clips;
} weft_model_work;

/* Finds the clip of a shape. WEFT_E_INTERNAL: the shape was not counted. */
weft_status weft_model_work_clip(const weft_model_work *model, int64_t frames, int64_t height,
                                 int64_t width, const weft_clip_work **out);
/* Hash of every value above. A plan is valid for this model at these shapes only. */
void weft_model_work_id(const weft_model_work *model, char text[20]);

/* Bytes of a parameter on a device during training, by the bytes of an activation; the only
 * definition.
 *
 * 2: bf16 weights, f32 gradients, and the optimizer's f32 copy and two moments.
 *
 * 4: weights, gradients and two moments, all f32. */
typedef struct weft_state_bytes {
    double weight, gradient, optimizer;
} weft_state_bytes;
weft_state_bytes weft_state_bytes_of(int64_t dtype_bytes);
/* Returns the bytes of a parameter on a device when `ranks` shard the states of ZeRO stage
 * `zero`. */
double weft_state_bytes_on(weft_state_bytes bytes, int64_t zero, double ranks);

#endif
