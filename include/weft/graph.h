/* Graphs: the mathematics of a model over complete tensors, without memory, threads or ranks.
 *
 * A graph is built in order. The first bad call marks the graph: later calls return WEFT_NONE and
 * do nothing, and weft_graph_check reports the first error. Functions that build return the new
 * value, and WEFT_NONE after an error. `name` is relative to the current scope. Computation is in
 * f32 for every element type. "Broadcast" is NumPy's rule. */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include "weft/core.h"

/* A shape: WEFT_DIMS(2, 3). WEFT_DIM0 is the shape of a scalar. */
#ifdef __cplusplus
template <typename... weft_dim_type> inline weft_shape weft_dims_of(weft_dim_type... dim)
{
    return weft_shape{static_cast<int>(sizeof...(dim)), {static_cast<int64_t>(dim)...}};
}
#define WEFT_DIMS(...) weft_dims_of(__VA_ARGS__)
#define WEFT_DIM0      weft_dims_of()
extern "C" {
#else
#define WEFT_DIMS(...)                                                                             \
    ((weft_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define WEFT_DIM0 ((weft_shape){0, {0}})
#endif

typedef struct weft_graph weft_graph;

/* NULL: out of memory. Free with weft_graph_free, after all programs of the graph. */
weft_graph *weft_graph_create(void);
void weft_graph_free(weft_graph *graph);
/* Returns the first error of building, with its scope as the key; WEFT_OK: none. */
weft_status_code weft_graph_check(const weft_graph *g);

/* Scopes nest: push("blocks.%d", i) inside "transformer" names "transformer.blocks.0". */
void weft_graph_push(weft_graph *g, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void weft_graph_pop(weft_graph *g);

/* ---- sources, outputs, updates --------------------------------------------------------------- */

/* An input, which is set before each run. Inputs named "batch.*" are split by samples (dim 0) over
 * the mesh axes dp and fsdp. */
weft_value weft_input(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape);
/* A trainable parameter, stored in a store and in checkpoints. */
weft_value weft_param(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init);
/* A parameter that is never trained, stored in checkpoints like weights. */
weft_value weft_buffer(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                       weft_init init);
/* A persistent tensor of a store that is not a weight. */
weft_value weft_state(weft_graph *g, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init);
/* A constant. Copies `data`, the elements of `shape`. The ops broadcast a scalar. */
weft_value weft_constant(weft_graph *g, weft_dtype dtype, weft_shape shape, const void *data);
/* Makes a value readable under `name` after a run. The name is not relative to the scope. */
void weft_output(weft_graph *g, const char *name, weft_value value);
/* After each run, sets the parameter or state `source` to `value`, of the same shape and type. */
void weft_update(weft_graph *g, weft_value source, weft_value value);

/* ---- ops ------------------------------------------------------------------------------------- */

/* Elementwise with broadcast. */
weft_value weft_add(weft_graph *g, weft_value a, weft_value b);
weft_value weft_sub(weft_graph *g, weft_value a, weft_value b);
weft_value weft_mul(weft_graph *g, weft_value a, weft_value b);
weft_value weft_div(weft_graph *g, weft_value a, weft_value b);
/* scale x + offset */
weft_value weft_affine(weft_graph *g, weft_value x, double scale, double offset);
weft_value weft_clamp(weft_graph *g, weft_value x, double low, double high);
weft_value weft_cast(weft_graph *g, weft_value x, weft_dtype dtype);

typedef enum weft_map_kind {
    WEFT_MAP_NEG = 0,
    WEFT_MAP_EXP = 1,
    WEFT_MAP_LOG = 2,
    WEFT_MAP_SQRT = 3,
    WEFT_MAP_RSQRT = 4, /* 1 / sqrt(x) */
    WEFT_MAP_SQUARE = 5,
    WEFT_MAP_SIN = 6,
    WEFT_MAP_COS = 7,
    WEFT_MAP_TANH = 8,
    WEFT_MAP_SIGMOID = 9,
    WEFT_MAP_SILU = 10,
    WEFT_MAP_GELU = 11,      /* exact, with erf */
    WEFT_MAP_GELU_TANH = 12, /* approximated with tanh */
    WEFT_MAP_SOFTMAX = 13,   /* over the last dim */
    WEFT_MAP_STOP = 14,      /* x, without a gradient */
} weft_map_kind;
/* A function of x with x's shape. */
weft_value weft_map(weft_graph *g, weft_map_kind kind, weft_value x);

/* Sum and mean over the dims of the bits of `dims` (bit d: dim d), which become 1. */
weft_value weft_sum(weft_graph *g, weft_value x, uint32_t dims);
weft_value weft_mean(weft_graph *g, weft_value x, uint32_t dims);
/* Mean over all elements: a scalar. */
weft_value weft_mean_all(weft_graph *g, weft_value x);
/* One dim of `shape` may be -1. */
weft_value weft_reshape(weft_graph *g, weft_value x, weft_shape shape);
/* Dim i of the result is dim perm[i] of x. */
weft_value weft_permute(weft_graph *g, weft_value x, const int *perm);
/* Elements [start, start + len) along `dim`. */
weft_value weft_slice(weft_graph *g, weft_value x, int dim, int64_t start, int64_t len);
weft_value weft_concat(weft_graph *g, const weft_value *in, int count, int dim);
/* a (..., M, K) times b (..., K, N), or (..., K, M) and (..., N, K) transposed -> (..., M, N). The
 * leading dims are equal, or b has rank 2. */
weft_value weft_matmul(weft_graph *g, weft_value a, weft_value b, bool transpose_a,
                       bool transpose_b);

/* ---- layers ---------------------------------------------------------------------------------- */

/* Layers push `name` as a scope. Their parameters there are "weight" and "bias". */

/* x (..., C) -> (..., out) */
weft_value weft_nn_dense(weft_graph *g, const char *name, weft_value x, int64_t out, bool bias);

typedef enum weft_norm_kind {
    WEFT_NORM_LAYER = 0, /* over the last dim, with weight and bias */
    WEFT_NORM_RMS = 1,   /* over the last dim, with weight */
    WEFT_NORM_PLAIN = 2, /* like LAYER, without parameters */
    WEFT_NORM_GROUP = 3, /* x (B,T,Y,X,C), over all positions and the channels of a group */
    WEFT_NORM_FRAME = 4, /* like GROUP, over the positions of one frame */
} weft_norm_kind;
typedef struct weft_norm_options {
    size_t size;
    weft_norm_kind kind;
    int64_t groups; /* of GROUP and FRAME; 0: 32 */
    double eps;     /* 0: 1e-6 */
} weft_norm_options;
/* `options` NULL: a layer norm. */
weft_value weft_layer_norm(weft_graph *g, const char *name, weft_value x,
                           const weft_norm_options *options);

typedef struct weft_conv_options {
    size_t size;
    /* frames, rows, columns; 0: kernel 1, stride 1 */
    int64_t kernel[3], stride[3];
    int64_t before[3], after[3]; /* zeros before and after x; a causal layer has after[0] 0 */
} weft_conv_options;
/* x (B,T,Y,X,C) -> (B,T',Y',X',out), with bias. `options` NULL: kernel 1, stride 1. */
weft_value weft_layer_conv(weft_graph *g, const char *name, weft_value x, int64_t out,
                           const weft_conv_options *options);

typedef struct weft_attention_options {
    size_t size;
    int has_bias;    /* 1: `bias` is set */
    weft_value bias; /* (B,Sk), added to the scores of the keys */
    int causal;      /* 1: a query attends to keys up to its own position */
} weft_attention_options;
/* Attention of q (B,Sq,H,D) to k, v (B,Sk,H,D), scaled by 1/sqrt(D) -> (B,Sq,H,D). weft_reshape
 * splits and joins heads. `options` NULL: no bias, not causal. */
weft_value weft_layer_attention(weft_graph *g, weft_value q, weft_value k, weft_value v,
                                const weft_attention_options *options);
/* timestep (...) -> (..., width): cosines, then sines, of width / 2 frequencies. */
weft_value weft_nn_sinusoid(weft_graph *g, int64_t width, weft_value timestep);
/* Tokens (B,S,pt py px C) to (B,T,Y,X,C), where `tokens` (frames, rows, columns) has the product
 * S. */
weft_value weft_nn_unpatch(weft_graph *g, weft_value x, const int64_t tokens[3],
                           const int64_t patch[3]);

/* ---- reading --------------------------------------------------------------------------------- */

/* A source or output by its full name; WEFT_NONE: no such name. */
weft_value weft_graph_find(const weft_graph *g, const char *name);

typedef struct weft_value_description {
    size_t size;
    weft_shape shape;
    weft_dtype dtype;
} weft_value_description;
/* WEFT_E_ARG: not a value of the graph. */
weft_status_code weft_value_describe(const weft_graph *g, weft_value value,
                                     weft_value_description *description);
/* All trainable parameters in the order of building: *count values, which live as long as `g`. */
const weft_value *weft_graph_params(weft_graph *g, int *count);

typedef struct weft_graph_description {
    size_t size;
    int64_t nodes;
    int64_t parameters; /* elements of all parameters, unsharded */
    double flops;       /* floating-point operations of a run */
    int64_t bytes;      /* host memory of the graph itself */
    uint64_t hash;      /* of the text and of all constants */
} weft_graph_description;
weft_status_code weft_graph_describe(const weft_graph *g, weft_graph_description *description);
/* A line per node: "%12 f32[2,64] = linear(%10, %11) @blocks.0". *text is heap. */
weft_status_code weft_graph_text(const weft_graph *g, char **text);

/* ---- gradients and optimizer ----------------------------------------------------------------- */

/* Adds the gradients of the scalar `loss` with respect to wrt[count] to the graph and writes them
 * to grad[count]. WEFT_NONE: `loss` does not depend on the value. */
void weft_autodiff(weft_graph *g, weft_value loss, const weft_value *wrt, int count,
                   weft_value *grad);

typedef struct weft_adamw_options {
    size_t size;
    double beta1, beta2; /* 0: 0.9 and 0.999 */
    double eps;          /* 0: 1e-8 */
    double weight_decay; /* decay of parameters of rank 2 and more */
    double clip_norm;    /* maximum norm of the gradient; 0: unlimited */
    double ema_decay;    /* decay of the moving average of weights; 0 (default): off */
} weft_adamw_options;
/* Adds gradients of the scalar `loss`, clipping, AdamW and the moving average:
 *
 *   inputs   "optimizer.lr", "optimizer.step" (from 1), "optimizer.loss_limit",
 *            "optimizer.norm_limit": scalars f32
 *   states   "adamw.m.<param>", "adamw.v.<param>", "ema.<param>"
 *   outputs  "loss", "grad_norm" (before clipping), "grad_scale" (NaN: the step was skipped)
 *
 * A loss or gradient norm that exceeds its limit or is not finite leaves all parameters unchanged.
 * `options` NULL: defaults. weft_graph_check reports the errors. */
void weft_graph_adamw(weft_graph *g, weft_value loss, const weft_adamw_options *options);

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct weft_model weft_model;

/* Reads a config.json, its folder, or a published size by name, without weights. WEFT_E_CONFIG
 * names the wrong field. Free with weft_model_free. */
weft_status_code weft_model_load(const char *path, weft_model **model);
/* Reads a config from text: {"_class_name": "WanTransformer3DModel", ...}. */
weft_status_code weft_model_parse(const char *json, weft_model **model);
void weft_model_free(weft_model *model);

typedef struct weft_model_extent {
    size_t size;
    int64_t batch; /* samples; 0: 1 */
    /* latents of a denoiser, pixels of an autoencoder; 0: the smallest that the model accepts */
    int64_t frames, height, width;
    int64_t text; /* text tokens; 0: the smallest number */
} weft_model_extent;
/* Adds the forward pass of the model to the graph. Inputs and outputs have the names of their
 * ports: "latents" (B,T,Y,X,C), "timestep" (B), "text" (B,S,D) -> "prediction"; "video"
 * (B,T,Y,X,3), "noise" -> "reconstruction". Parameters have the names of published checkpoints.
 * `extent` NULL: the smallest size. */
weft_status_code weft_model_add(weft_graph *g, const weft_model *model,
                                const weft_model_extent *extent);

/* ---- layouts and passes ---------------------------------------------------------------------- */

typedef struct weft_pass_options {
    size_t size;
    const char *mesh;        /* "dp=2,tp=2"; NULL or "": one rank */
    int rank;                /* rank of the mesh, row major: the last axis varies fastest */
    const weft_model *model; /* whose axes (tp, cp, ...) the mesh may have; NULL: dp and fsdp */
    int bf16;                /* 1: compute in bf16; parameters and reductions stay f32 */
    /* "fuse=off", "recompute=off", ...: passes to switch off or on [setting_count] */
    const char *const *setting;
    int64_t setting_count;
    const char *const *recompute; /* scopes whose values the backward recomputes */
    int64_t recompute_count;
} weft_pass_options;
/* Makes the graph of one rank of the mesh from a graph of complete tensors: shards of sources, and
 * collectives. Add gradients to the result. `g` is unchanged. *out: free with weft_graph_free.
 * WEFT_E_ARG: an axis that no layout splits. */
weft_status_code weft_graph_shard(const weft_graph *g, const weft_pass_options *options,
                                  weft_graph **out);
/* Runs the passes of a rank (fusion, order of communication, recompute, ...), the last step before
 * weft_program_create. `g` is unchanged. *out: free with weft_graph_free. */
weft_status_code weft_graph_optimize(const weft_graph *g, const weft_pass_options *options,
                                     weft_graph **out);

#ifdef __cplusplus
}
#endif

#endif
