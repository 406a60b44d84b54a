/* Ops: the enum, the typed attributes and the table row that describes an op.
 *
 * Conventions. Tensors are dense and row major. Shapes in comments use B batch, S tokens, H heads,
 * D head width, C channels, T/Y/X frames, rows, columns. Images and videos are channels-last
 * (B,T,Y,X,C). "broadcast" is NumPy's rule on equal ranks: a dim is equal or 1. Optional inputs may
 * be WEFT_NONE. Scalars have rank 0. Computation is in f32 for every storage type. */
#ifndef WEFT_GRAPH_OP_H
#define WEFT_GRAPH_OP_H

#include "base/dtype.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "graph/op_work.h"
#include "weft/types.h"

#include <stdbool.h>
#include <stdint.h>

/* An op has at most WEFT_MAX_INPUTS inputs, or WEFT_ANY_INPUTS, as concat does. In the second case
 * all inputs are of one kind. Masks and layout rows describe the first WEFT_MAX_INPUTS inputs. */
enum { WEFT_MAX_INPUTS = 9, WEFT_MAX_OUTPUTS = 3, WEFT_MAX_AXES = 7 };
enum { WEFT_ANY_INPUTS = INT32_MAX };

typedef enum weft_op {
#define WEFT_OP(ENUM, ...) WEFT_OP_##ENUM,
#include "graph/op.def"
    WEFT_OP_COUNT
} weft_op;

/* ---- typed attributes, one struct per op that has any -------------------------------------- */

typedef struct weft_attr_none {
    char unused;
} weft_attr_none;

/* input: set before each run. param: persistent, trainable unless frozen. state: persistent, not
 * trained (optimizer moments, EMA, streaming caches). The name is that of the value. */
typedef struct weft_attr_source {
    weft_dtype dtype;
    weft_shape shape;             /* shape of this rank's tensor shard */
    weft_init init;               /* param, state */
    bool frozen;                  /* param: no gradient */
    bool slot;                    /* state: in a buffer of the caller, not in the store */
    bool offloaded;               /* param: in host memory or a file, fetched for each use */
    weft_shape global;            /* unsharded shape; before sharding, the value's shape */
    int64_t start[WEFT_MAX_RANK]; /* start of this rank's shard in `global` */
} weft_attr_source;
typedef struct weft_blob weft_blob; /* data shared by graphs, see internal.h */
typedef struct weft_attr_constant {
    weft_dtype dtype;
    weft_shape shape;
    const void *data; /* in `blob` */
    weft_blob *blob;  /* NULL only while building: `data` is the caller's and is copied */
} weft_attr_constant;
typedef struct weft_attr_fill {
    double value;
    weft_dtype dtype;
    weft_shape shape;
} weft_attr_fill;
/* key i64 (B); out f32 (B, ...). Element (b, i) is weft_random_*(key[b], purpose, i); i is the
 * index in the sample's *global* shape. A value does not depend on batch position or sharding. */
typedef struct weft_attr_random {
    weft_rng_purpose purpose;
    weft_shape shape;  /* local shape, dim 0 = B */
    weft_shape global; /* dims 1.. of the unsharded sample; dim 0 unused */
    int64_t start[WEFT_MAX_RANK];
} weft_attr_random;
/* y = scale x + offset */
typedef struct weft_attr_affine {
    double scale, offset;
} weft_attr_affine;
typedef struct weft_attr_clamp {
    double lo, hi;
} weft_attr_clamp;
typedef struct weft_attr_cast {
    weft_dtype dtype;
} weft_attr_cast;
typedef struct weft_attr_gelu {
    bool exact; /* erf; else the tanh form */
} weft_attr_gelu;
typedef struct weft_attr_sum {
    uint32_t dims; /* bit d: sum over dim d, which becomes 1 */
} weft_attr_sum;
/* reshape, broadcast */
typedef struct weft_attr_shape {
    weft_shape shape;
} weft_attr_shape;
typedef struct weft_attr_permute {
    int perm[WEFT_MAX_RANK]; /* output dim i is input dim perm[i] */
} weft_attr_permute;
typedef struct weft_attr_slice {
    int dim;
    int64_t start, len;
} weft_attr_slice;
/* pads with zeros */
typedef struct weft_attr_pad {
    int dim;
    int64_t before, after;
} weft_attr_pad;
typedef struct weft_attr_concat {
    int dim;
} weft_attr_concat;
/* a (..., M, K), or (..., K, M) with trans_a; b (..., K, N), or (..., N, K) with trans_b. The
 * leading dims are equal, or b has rank 2 and is used for all. Out (..., M, N). */
typedef struct weft_attr_matmul {
    bool trans_a, trans_b;
    bool tf32; /* see weft_op_tf32() */
} weft_attr_matmul;
typedef enum weft_act { WEFT_ACT_NONE, WEFT_ACT_GELU_TANH, WEFT_ACT_SILU } weft_act;
/* x (..., K), w (N, K), b (N) or none: act(round(x w^T + b)). Has a gradient only with
 * WEFT_ACT_NONE: a pass fuses the activation where no node needs the value before it. */
typedef struct weft_attr_linear {
    weft_act act;
    weft_dtype round; /* type of the activation's operand without fusion */
    bool tf32;
} weft_attr_linear;
/* x (B,T,Y,X,I), w (O,I,kt,ky,kx) as in public checkpoints, b (O) or none; zero padding before and
 * after each of T,Y,X. Out (B, (T+pb+pa-kt)/st+1, ..., O). `x_shape` is set in conv3d_dx only. */
typedef struct weft_attr_conv {
    int64_t stride[3], before[3], after[3];
    weft_shape x_shape;
    int64_t kernel[3];
    bool tf32;
} weft_attr_conv;
/* Over the last dim. layer_norm: (x-mean)/sqrt(var+eps). rms_norm: x/sqrt(mean(x^2)+eps), or with
 * `l2` x sqrt(C)/max(||x||, eps) (the Wan VAE's norm). gamma, beta (C) optional. */
typedef struct weft_attr_norm {
    double eps;
    bool l2;
} weft_attr_norm;
/* x (B,S,H,D); cos and sin (S,D/2), or (B,S,H,D/2) broadcast over B and H. Rotates pairs (2i,
 * 2i+1), or with `rotate_half` (i, i + D/2). `inverse` rotates by the negative angle. */
typedef struct weft_attr_rope {
    bool inverse, rotate_half;
} weft_attr_rope;
/* Tokens are `before` unrotated ones, the positions of a grid (T,Y,X) with X fastest, and `after`
 * unrotated ones. The head's pairs are assigned to T, Y, X in this order. Pair i of the pairs[d] of
 * dim d rotates by (origin[d] + position[d] step[d]) theta[d]^(-i / pairs[d]). The output covers
 * tokens [start, start + len): cos and sin f32 (len, sum of pairs), angles in f64. */
typedef struct weft_attr_rope_table {
    double theta[3], origin[3], step[3];
    int64_t grid[3], pairs[3];
    int64_t before, after;
    int64_t start, len;
} weft_attr_rope_table;
/* q (B,Sq,H,D), k, v (B,Sk,H,D). segments i32 (N,4), optional: rows {q begin, q end, k begin, k
 * end} over the flattened B*Sq and B*Sk; queries attend to the keys of their segment only. Segments
 * i32 (B,N,4) are rows over the Sq and Sk of each batch item. Without segments each batch item is a
 * segment. No query is in two segments; a key in several has the sum of their gradients.
 *
 * Outputs (B,Sq,H,D) and the log-sum-exp f32 (B,H,Sq), which the backward and attention_merge need.
 * A query without keys gives 0 and -inf. `scale` multiplies q.k; `causal`: key j <= query i +
 * (nk-nq). `bias` f32 (B,Sk), optional: added to the scaled q.k of a key, as a mask; -1e30 hides a
 * key. `bias` has no gradient and cannot be combined with segments.
 *
 * `int8`: kernels may compute the scores of operands in bf16 from int8. Each query, and blocks of
 * keys less their mean, are rounded to 127 steps of their largest magnitude. The gradient is that
 * of scores that are not rounded. */
typedef struct weft_attr_attention {
    double scale;
    bool causal;
    bool int8;
    bool tf32;
} weft_attr_attention;
/* top_p: sums elements in f64 in ascending order, equal ones by index. An element is chosen if the
 * sum up to this element is at least 1 - mass. NaN is neither summed nor chosen. 0 < mass <= 1. */
typedef struct weft_attr_top_p {
    double mass;
} weft_attr_top_p;
/* top_share: chooses the floor(share n) largest of the n elements of a row, at least one; of equal
 * ones the first. NaN, and elements below -1e29, as weft_nn_hide makes them, are neither counted
 * nor chosen. 0 < share <= 1. */
typedef struct weft_attr_top_share {
    double share;
} weft_attr_top_share;
/* embed_grad: number of rows of the table */
typedef struct weft_attr_embed {
    int64_t rows;
} weft_attr_embed;
/* packed u8 (..., blocks, bytes) -> f32 (..., blocks * elements). `type` is the GGUF type number
 * (quant_blocks.h); a block has `elements` elements in `bytes` bytes. With ids i32, unpacks only
 * those rows of packed (R, blocks, bytes): (ids..., blocks * elements). */
typedef struct weft_attr_unpack {
    int64_t type, elements, bytes;
} weft_attr_unpack;

/* Weights of int8, u8 (N, blocks, 2 + elements): a block is an f16 scale and signed bytes, as in
 * Q8_0 of GGUF files. A linear layer rounds each block of x to int8, too: 127 is its largest value,
 * and a block whose values are all below WEFT_INT8_LEAST becomes 0. Input 3, `smoothing` f32 (K),
 * is optional and needs such weights: x is multiplied by the factor of its channel before the
 * rounding. The weights were divided by the factors. */
#define WEFT_INT8_LEAST 1e-30f
/* Returns the elements of a block; 0: `w` has another form. */
static inline int64_t weft_int8_elements(weft_dtype dtype, const weft_shape *w)
{
    return dtype == WEFT_U8 && w->rank == 3 && w->dim[2] > 2 ? w->dim[2] - 2 : 0;
}
/* top_k: chooses `count` elements of the last dim. `groups`: the dim is divided into groups of
 * equal size. Only elements of the `top_groups` groups with the largest sum of their two best
 * elements may be chosen. 0: no groups. */
typedef struct weft_attr_top_k {
    int64_t count, groups, top_groups;
} weft_attr_top_k;
/* Experts, and slots that each expert has for the tokens of one sample:
 *
 *   slots 0   slot i for token i: no token is dropped, and tokens may be split
 *   slots n   tokens fill the slots in their order; tokens after the n-th are dropped
 *
 * Slots of one sample do not depend on another, so a split of samples drops the same tokens. */
typedef struct weft_attr_experts {
    int64_t experts, slots;
} weft_attr_experts;
/* y = x w[e]^T with `trans_b`, else y = x w[e]. The expert e of a row is:
 *
 *   as tokens    x (B,S,1 or k,K), ids (B,S,k) -> (B,S,k,N):    the id
 *   by_expert    x (E,B,R,K),      ids (E,B,R) -> (E,B,R,N):    the row's index in the first dim
 *
 * A row whose id is negative is 0 and costs nothing. `experts`: expert_matmul_dw only. */
typedef struct weft_attr_expert_matmul {
    bool by_expert, trans_b;
    int64_t experts;
    bool tf32;
} weft_attr_expert_matmul;
/* Elementwise ops that one kernel computes. Step s computes `op` on operands of the node (i), or on
 * results of earlier steps (WEFT_POINTWISE_STEP + s). All results have the shape of the outputs,
 * to which the inputs are broadcast. A result is rounded to `dtype`, as by a separate node. */
enum { WEFT_POINTWISE_STEPS = 8, WEFT_POINTWISE_STEP = 16 };
typedef struct weft_pointwise_step {
    weft_op op; /* weft_op_is_pointwise() */
    weft_dtype dtype;
    int32_t in_count, in[3];
    int32_t out; /* the output with the result; -1: only later steps read it */
    union {      /* of the op */
        weft_attr_affine affine;
        weft_attr_clamp clamp;
        weft_attr_cast cast;
        weft_attr_gelu gelu;
    } attr;
} weft_pointwise_step;
typedef struct weft_attr_pointwise {
    int32_t count;
    weft_pointwise_step step[WEFT_POINTWISE_STEPS]; /* the rest is zero */
} weft_attr_pointwise;
typedef struct weft_attr_adamw {
    double beta1, beta2, eps, weight_decay;
} weft_attr_adamw;
/* offload, fetch: copies concurrent with the kernels. `prefetch_bytes` limits the bytes in flight
 * in one direction; one copy may exceed it. */
typedef struct weft_attr_move {
    int64_t prefetch_bytes;
} weft_attr_move;
/* Layout conversions. `axis` indexes the graph's mesh; `dim` is the tensor dim, `dim2` the target
 * dim of all_to_all; `global` is the unsharded length of dim, `global2` of dim2. A dim of n over k
 * ranks has chunks of ceil(n/k); the last chunks are shorter, possibly empty. */
typedef struct weft_attr_comm {
    int axis;
    int dim, dim2;
    int64_t global, global2;
    /* ring_shift: rank r holds block r - held of dim. It receives block r - held - shift from rank
     * r - shift. Blocks may differ in size. */
    int shift, held;
    bool invariant; /* all_gather: the result is R, not V: its gradient is the same on all ranks */
    bool late;      /* is not started before the nodes that precede it (comm_order) */
    bool piece;     /* part of layer slices: its consumers already follow the work that hides it */
} weft_attr_comm;

/* Storage for the attribute struct of any op. */
typedef union weft_any_attr {
#define WEFT_OP(ENUM, stem, in_min, in_max, out_max, attr, ...) weft_attr_##attr of_##stem;
#include "graph/op.def"
} weft_any_attr;

/* ---- the op table's row -------------------------------------------------------------------- */

typedef struct weft_graph weft_graph;
typedef struct weft_node weft_node;
static inline bool weft_value_ok(weft_value v)
{
    return v.id >= 0;
}

/* Layout of a value on one mesh axis. R: the same on every rank ("invariant"). V: each rank's own
 * value. S: split along dim. P: a term of a pending sum. UNKNOWN: no rule determines it; illegal in
 * a finished graph. */
typedef enum weft_layout_kind { WEFT_R, WEFT_V, WEFT_S, WEFT_P, WEFT_UNKNOWN } weft_layout_kind;
typedef struct weft_layout {
    int8_t kind, dim;
} weft_layout;

typedef struct weft_op_out {
    weft_dtype dtype;
    weft_shape shape;
} weft_op_out;
/* A node whose outputs are inferred. */
typedef struct weft_inference {
    weft_graph *graph; /* errors are sticky there */
    weft_op op;
    const weft_value *in;
    int in_count;
    const void *attr;
    /* Results: the outputs of this node. Optional gradients may be absent. */
    weft_op_out *out; /* [WEFT_MAX_OUTPUTS] */
    int count;
} weft_inference;
/* Sets shapes and dtypes of the outputs, and their number. Reports operands that do not fit through
 * the graph's sticky error, and returns false. */
typedef bool weft_infer_fn(weft_inference *node);
/* Emits nodes for the gradients of `node` from the gradients of its outputs (WEFT_NONE: zero).
 * Writes one gradient per input (WEFT_NONE: none). `wanted` selects the inputs that need one. */
typedef void weft_vjp_fn(weft_graph *graph, const weft_node *node, const weft_value *out_grad,
                         const bool *wanted, weft_value *in_grad);
/* One legal way to compute a node whose operands are laid out over one axis: the required layout of
 * each input, and the resulting layouts of the outputs. R in a row with S or P means unsharded: it
 * becomes V. */
typedef struct weft_layout_choice {
    weft_layout need[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    const struct weft_expansion *expansion; /* NULL: the op itself, on shards */
    double wire_bytes; /* maximum bytes sent by a rank in an expansion's forward */
} weft_layout_choice;
/* Required layout of input i. Inputs after WEFT_MAX_INPUTS have the layout of the last one. */
static inline weft_layout weft_layout_need(const weft_layout_choice *row, int i)
{
    return row->need[i < WEFT_MAX_INPUTS ? i : WEFT_MAX_INPUTS - 1];
}
/* One member of a group of nodes that are expanded together: the node before sharding, its operands
 * in `to` with the layouts that the row requires, and its results with the row's layouts. */
typedef struct weft_expanded {
    const weft_node *node;
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
} weft_expanded;
enum { WEFT_EXPANDED_MOST = 8 };
/* Replaces nodes by several nodes with collectives between them, on one axis. The members of a
 * group share all operands but the first, so they share one exchange. `from`: the graph before
 * sharding. Emits into `to` and sets out[] of each member. All ranks must emit the same nodes. The
 * backward is that of the emitted nodes. */
typedef struct weft_expansion {
    const char *name; /* name in sharding recipes */
    void (*emit)(weft_graph *to, const weft_graph *from, weft_expanded *member, int count,
                 int axis);
} weft_expansion;
enum { WEFT_MAX_CHOICES = 48 };
/* Lists the choices for an axis of `ranks` ranks, except "everything R", which is always legal;
 * returns their number. Shapes in `graph` are those before sharding. `ranks` 0: the node is built
 * on a mesh and shapes are those of shards. The rows then follow from the operands' layouts,
 * whatever the sizes of the shards. */
typedef int weft_layout_fn(const weft_graph *graph, const weft_node *node, int ranks,
                           weft_layout_choice choice[WEFT_MAX_CHOICES]);
/* FLOPs, bytes read and written, and bytes that this rank sends. */
typedef struct weft_cost {
    int64_t flops, bytes, wire_bytes;
    int64_t bf16_flops; /* part of `flops`: products, attention and convolutions in bf16 */
} weft_cost;
typedef weft_cost weft_cost_fn(const weft_graph *graph, const weft_node *node);

/* Appends the attribute as text with a leading blank (" {axis=1}"). Numbers are exact: equal texts
 * mean equal graphs, and the hash is that of the text. */
typedef void weft_print_fn(const weft_graph *graph, const weft_node *node, weft_buf *out);
/* Restricts `attr`, a copy of a node's attribute, to the shard [start, start + len) of output 0
 * along `dim`. Allocates from `to`, the graph that the node is emitted into; errors are sticky
 * there. */
typedef void weft_local_fn(weft_graph *to, void *attr, int dim, int64_t start, int64_t len);

/* Properties of an op that other code tests. No code compares the order of the enum. */
enum {
    /* has a name and weft_attr_source: set or stored outside the graph */
    WEFT_TRAIT_NAMED = 1 << 0,
    WEFT_TRAIT_PERSISTENT = 1 << 1, /* in the store between runs; may be updated */
    WEFT_TRAIT_GIVEN = 1 << 2,      /* its bytes exist before the run: not computed */
    WEFT_TRAIT_ANYWHERE = 1 << 3,   /* every rank can compute any shard alone */
    WEFT_TRAIT_ALIAS = 1 << 4,      /* output 0 has the bytes of input 0: nothing is computed */
    WEFT_TRAIT_CONVERTS = 1 << 5,   /* a layout conversion, with weft_attr_comm */
    WEFT_TRAIT_COLLECTIVE = 1 << 6, /* exchanges data between ranks */
    WEFT_TRAIT_HEAVY = 1 << 7,      /* takes long: communication can be hidden behind compute */
    WEFT_TRAIT_FITS = 1 << 8,       /* its layout rule depends on how shards divide the sizes */
    WEFT_TRAIT_MOVES = 1 << 9,      /* copies a complete value to or from the offload buffer */
    WEFT_TRAIT_GIVES = 1 << 10, /* other ranks read its data: not dead without local consumers */
    /* output 0 is input 0 in another shape, type or layout, as between a parameter and its use */
    WEFT_TRAIT_FORWARDS = 1 << 11,
    /* only the running request keeps the operand live, so waiting early releases memory */
    WEFT_TRAIT_HOLDS = 1 << 12,
};
/* Values of the column `traits`. */
/* clang-format off */
enum {
    WEFT_TRAITS_plain        = 0,
    WEFT_TRAITS_source       = WEFT_TRAIT_NAMED | WEFT_TRAIT_GIVEN,
    WEFT_TRAITS_persistent   = WEFT_TRAITS_source | WEFT_TRAIT_PERSISTENT,
    WEFT_TRAITS_constant     = WEFT_TRAIT_GIVEN | WEFT_TRAIT_ANYWHERE,
    WEFT_TRAITS_anywhere     = WEFT_TRAIT_ANYWHERE,
    WEFT_TRAITS_cast         = WEFT_TRAIT_FORWARDS,
    WEFT_TRAITS_view         = WEFT_TRAIT_ALIAS | WEFT_TRAIT_FITS | WEFT_TRAIT_FORWARDS,
    WEFT_TRAITS_fits         = WEFT_TRAIT_FITS,
    WEFT_TRAITS_heavy        = WEFT_TRAIT_HEAVY,
    WEFT_TRAITS_windows      = WEFT_TRAIT_HEAVY | WEFT_TRAIT_FITS,
    WEFT_TRAITS_convert      = WEFT_TRAIT_CONVERTS,
    WEFT_TRAITS_view_convert = WEFT_TRAIT_CONVERTS | WEFT_TRAIT_ALIAS | WEFT_TRAIT_FORWARDS,
    WEFT_TRAITS_moves        = WEFT_TRAIT_MOVES,
    WEFT_TRAITS_offload      = WEFT_TRAIT_MOVES | WEFT_TRAIT_HOLDS,
    WEFT_TRAITS_exchange     = WEFT_TRAIT_CONVERTS | WEFT_TRAIT_COLLECTIVE,
    WEFT_TRAITS_hold         = WEFT_TRAITS_exchange | WEFT_TRAIT_HOLDS,
    WEFT_TRAITS_gather       = WEFT_TRAITS_hold | WEFT_TRAIT_FORWARDS,
    WEFT_TRAITS_relay        = WEFT_TRAITS_hold | WEFT_TRAIT_GIVES,
};
/* clang-format on */

/* Mixed precision: the type that a node of a model computes in. The low bits are the inputs that
 * the op takes in f32 next to a bf16 first input. */
enum {
    WEFT_MIXED_INPUTS = (1 << WEFT_MAX_INPUTS) - 1,
    WEFT_MIXED_COMPUTES = 1 << 16, /* computes in bf16 if an operand is a weight or bf16 */
    WEFT_MIXED_PASSES_ON = 1 << 17 /* computes nothing: a weight keeps its type through the op */
};
/* Values of the column `mixed`. */
/* clang-format off */
enum {
    WEFT_MIXED_f32        = 0, /* logarithms, angles, routing scores, the optimizer */
    WEFT_MIXED_bf16       = WEFT_MIXED_COMPUTES,
    WEFT_MIXED_bf16_bias  = WEFT_MIXED_COMPUTES | 1 << 2 /* a bias gradient is a sum */
                            | 1 << 3,                    /* smoothing of int8 */
    WEFT_MIXED_bf16_first = WEFT_MIXED_COMPUTES | (WEFT_MIXED_INPUTS & ~1), /* norms, angles */
    WEFT_MIXED_bf16_qkv   = WEFT_MIXED_COMPUTES | (WEFT_MIXED_INPUTS & ~7), /* masks */
    WEFT_MIXED_bf16_parts = WEFT_MIXED_COMPUTES | 1 << 1 | 1 << 3, /* log-sum-exp */
    WEFT_MIXED_passes     = WEFT_MIXED_COMPUTES | WEFT_MIXED_PASSES_ON
};
/* clang-format on */

/* The values of the next columns begin at 1, so a member that is not set has no meaning. */

/* Values of the column `position`. Elementwise ops are `point` or `function`; expert_dispatch keeps
 * them on the rows of experts. */
typedef enum weft_op_position {
    /* Unary or binary op whose results depend on the elements of the operands at the same position
     * only, with broadcast. token_sharding moves it past views of data and losses. */
    WEFT_POSITION_point = 1,
    /* The same, for activations and angles: token_sharding leaves them in the model. */
    WEFT_POSITION_function,
    WEFT_POSITION_mixed /* all others, and ops that are never moved: casts, stop */
} weft_op_position;

/* Values of the column `chunk`. */
typedef enum weft_op_chunk {
    /* Token s of output 0 depends on token s of input 0 and on the other inputs as a whole. The op
     * is computed in the token chunks of the product that reads it, if nothing else reads it. Its
     * time then hides the exchange of the previous chunk. */
    WEFT_CHUNK_leads = 1,
    WEFT_CHUNK_whole /* always computed for all tokens */
} weft_op_chunk;

/* Values of the column `cfg`: how cfg_branches divides the op between the two CFG branches. Ops
 * whose kernels sum in an order that depends on the number of rows are divided. */
typedef enum weft_op_cfg {
    WEFT_CFG_whole = 1, /* same results for any number of rows */
    WEFT_CFG_weights,   /* rows of input 0; input 1 is a weight */
    WEFT_CFG_pairs      /* rows of input 0, and of input 1 if it depends on the batch */
} weft_op_cfg;

/* Values of the column `origin`: the elements of output 0. */
typedef enum weft_op_origin {
    WEFT_ORIGIN_computed = 1, /* new values; also layout conversions */
    WEFT_ORIGIN_same,         /* the elements of input 0 in another shape or order */
    WEFT_ORIGIN_cast,         /* the elements of input 0 in another type */
    WEFT_ORIGIN_part,         /* some elements of input 0 */
    WEFT_ORIGIN_joined,       /* the elements of all inputs */
    WEFT_ORIGIN_sum,          /* the sum of both inputs */
    WEFT_ORIGIN_residual      /* input 0 plus a change */
} weft_op_origin;

/* Values of the column `storage`: the bytes of the outputs. */
typedef enum weft_op_storage {
    WEFT_STORAGE_arena = 1, /* a buffer of the memory plan */
    WEFT_STORAGE_input,     /* the inputs' area of the program */
    WEFT_STORAGE_constant,  /* the graph's constant */
    WEFT_STORAGE_store,     /* the store, or a slot of the caller */
    WEFT_STORAGE_offloaded, /* the offload buffer */
    WEFT_STORAGE_operand    /* the bytes of input 0 */
} weft_op_storage;

typedef struct weft_op_info {
    const char *name;
    int min_inputs, max_inputs, max_outputs;
    int64_t attr_bytes;
    weft_print_fn *print;
    weft_infer_fn *infer;
    weft_vjp_fn *vjp; /* weft_vjp_none: the op has no gradient */
    weft_layout_fn *layout;
    weft_local_fn *local; /* weft_local_none: the attribute is the same for every shard */
    weft_cost_fn *cost;
    uint32_t traits, mixed, over;
    weft_work work;
    weft_op_position position;
    weft_op_chunk chunk;
    weft_op_cfg cfg;
    weft_op_origin origin;
    weft_op_storage storage;
    /* error relative to the f64 reference, norm-wise; 0: bitwise equal */
    double tolerance_f32, tolerance_bf16;
} weft_op_info;
/* Never NULL for a legal op. */
const weft_op_info *weft_op_get(weft_op op);
static inline bool weft_op_has(weft_op op, uint32_t trait)
{
    return (weft_op_get(op)->traits & trait) != 0;
}
/* Bit i: output o may overwrite input i if their types and shapes are equal. */
static inline uint32_t weft_op_over(weft_op op, int o)
{
    return weft_op_get(op)->over >> 8 * o & 0xff;
}
/* Tests bit i of a mask over inputs. */
static inline bool weft_mask_has(uint32_t mask, int i)
{
    return i < WEFT_MAX_INPUTS && (mask >> i & 1);
}
/* Whether the op takes input i in f32 next to a bf16 first input. */
static inline bool weft_op_takes_f32(weft_op op, int i)
{
    return weft_mask_has(weft_op_get(op)->mixed & WEFT_MIXED_INPUTS, i);
}
/* The type in which a program multiplies. Selects the verdicts of kernels. */
typedef enum weft_products {
    WEFT_PRODUCTS_F32,
    WEFT_PRODUCTS_BF16,
    WEFT_PRODUCTS_TF32,
    WEFT_PRODUCTS_COUNT
} weft_products;
/* Returns the member `tf32` of an attribute of the op; NULL: the op has none. If it is set, kernels
 * may round both operands of every product to the 10 bits of TF32. Sums are f32. `ref` rounds to
 * the nearest number, ties away from zero; `cpu` does not round. */
bool *weft_op_tf32(weft_op op, void *attr);
/* Returns the tolerance for an output of a type, norm-wise; `tf32`: of the node. */
double weft_op_tolerance(weft_op op, weft_dtype dtype, bool tf32);
static inline bool weft_op_is_tf32(weft_op op, const void *attr)
{
    const bool *is = attr ? weft_op_tf32(op, (void *)(uintptr_t)attr) : NULL;
    return is && *is;
}
/* reshape, vary */
static inline bool weft_op_is_alias(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_ALIAS);
}
/* Ops that a step of `pointwise` may have: one output of the shape that the inputs broadcast to. */
static inline bool weft_op_is_pointwise(weft_op op)
{
    const weft_op_position position = weft_op_get(op)->position;
    return position == WEFT_POSITION_point || position == WEFT_POSITION_function ||
           op == WEFT_OP_STOP || op == WEFT_OP_CAST || op == WEFT_OP_MODULATE ||
           op == WEFT_OP_GATED_ADD;
}
/* all_reduce ... relay */
static inline bool weft_op_is_collective(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_COLLECTIVE);
}
/* Whether the op runs concurrently with kernels, from its node until its wait. */
static inline bool weft_op_runs_concurrently(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_COLLECTIVE | WEFT_TRAIT_MOVES);
}

#endif
