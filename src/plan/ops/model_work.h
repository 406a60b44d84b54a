/* What an iteration's model costs, as numbers: an operator list per shape of clip, and sizes of
 * what its modules hand over. The planners are given this and never see the model itself. */
#ifndef WEFT_PLAN_MODEL_WORK_H
#define WEFT_PLAN_MODEL_WORK_H

#include "plan/cost/op_list.h"

/* One clip of one shape. */
typedef struct weft_clip_work {
    int64_t frames, height, width;
    weft_op_list denoiser; /* forward and backward */
    /* encoder of the video: so many equal tiles, the widest activations of one */
    int64_t tiles;
    double tile_flops, tile_bytes;
    double text_flops;               /* encoder of the prompt */
    double latent_bytes, text_bytes; /* from the encoders to the denoiser */
    int64_t latent_frames;           /* those of latent_bytes, one behind the other */
} weft_clip_work;

typedef struct weft_model_work {
    const char *name;
    const char *source; /* "graph", or "hand-made list": shown with every plan */
    int64_t layers, heads, hidden;
    double parameters;        /* of the denoiser */
    double text_weight_bytes; /* of the encoder of the prompt */
    weft_clip_work *clip;     /* arena */
    int64_t clips;
} weft_model_work;

/* WEFT_E_INTERNAL when the shape was not counted. */
weft_status weft_model_work_clip(const weft_model_work *model, int64_t frames, int64_t height,
                                 int64_t width, const weft_clip_work **out);
/* A hash of every number above: a plan is of this model, at these shapes, and of no other. */
void weft_model_work_id(const weft_model_work *model, char text[20]);

/* Bytes that a parameter takes on a device while it is trained, by the bytes of its activations;
 * the only place that says so. 2: bf16 weights, sums of gradients in f32, and the optimizer's f32
 * copy and two moments. 4: weights, gradients and two moments, all f32. */
typedef struct weft_state_bytes {
    double weight, gradient, optimizer;
} weft_state_bytes;
weft_state_bytes weft_state_bytes_of(int64_t dtype_bytes);
/* The same of a device when `ranks` share what ZeRO stage `zero` divides. */
double weft_state_bytes_on(weft_state_bytes bytes, int64_t zero, double ranks);

#endif
