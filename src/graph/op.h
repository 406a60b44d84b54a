/* Ops: the enum, the typed attributes and the row that says everything about an op.
 *
 * Conventions. Tensors are dense and row major. Shapes in comments use B batch, S tokens, H heads,
 * D head width, C channels, T/Y/X frames, rows, columns. Images and videos are channels-last
 * (B,T,Y,X,C). "broadcast" is NumPy's rule on equal ranks: a dim is equal or 1. Optional inputs may
 * be WEFT_NONE. Scalars have rank 0. All maths is f32 inside whatever the storage type. */
#ifndef WEFT_GRAPH_OP_H
#define WEFT_GRAPH_OP_H

#include "base/dtype.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* An op has WEFT_MAX_INPUTS at most, or says WEFT_ANY_INPUTS, as concat does: its inputs are then
 * of one kind, of which masks and layout rows describe the first WEFT_MAX_INPUTS. */
enum { WEFT_MAX_RANK = 6, WEFT_MAX_INPUTS = 9, WEFT_MAX_OUTPUTS = 3, WEFT_MAX_AXES = 7 };
enum { WEFT_ANY_INPUTS = INT32_MAX };

typedef struct weft_shape {
    int rank; /* 0: scalar */
    int64_t dim[WEFT_MAX_RANK];
} weft_shape;

typedef enum weft_op {
#define WEFT_OP(ENUM, ...) WEFT_OP_##ENUM,
#include "graph/op.def"
    WEFT_OP_COUNT
} weft_op;

/* ---- typed attributes, one struct per op that has any -------------------------------------- */

typedef struct weft_attr_none {
    char unused;
} weft_attr_none;

/* How a parameter begins its life. Element i of the whole tensor is a function of (seed, hash of
 * the name, i), so it depends neither on sharding nor on the order of parameters. */
typedef enum weft_init_kind {
    WEFT_INIT_ZERO,
    WEFT_INIT_FILL,
    WEFT_INIT_NORMAL,
    WEFT_INIT_UNIFORM
} weft_init_kind;
typedef struct weft_init {
    weft_init_kind kind;
    double value; /* FILL: the value; NORMAL: standard deviation; UNIFORM: half width */
} weft_init;

/* input: fed before each run. param: persistent and trainable unless frozen. state: persistent, not
 * trained (optimizer moments, EMA, streaming caches). The name is the value's. */
typedef struct weft_attr_source {
    weft_dtype dtype;
    weft_shape shape;             /* this rank's */
    weft_init init;               /* param, state */
    bool frozen;                  /* param: no gradient */
    bool slot;                    /* state: in a record of the caller's, not in the store */
    bool away;                    /* param: lies elsewhere, and is fetched for each use of it */
    weft_shape global;            /* whole shape; equals the value's before sharding */
    int64_t start[WEFT_MAX_RANK]; /* where this rank's part begins in `global` */
} weft_attr_source;
typedef struct weft_blob weft_blob; /* data that graphs share, see internal.h */
typedef struct weft_attr_constant {
    weft_dtype dtype;
    weft_shape shape;
    const void *data; /* inside of `blob` */
    weft_blob *blob;  /* NULL only when building: `data` is the caller's and is copied */
} weft_attr_constant;
typedef struct weft_attr_fill {
    double value;
    weft_dtype dtype;
    weft_shape shape;
} weft_attr_fill;
/* key i64 (B); out f32 (B, ...): element (b, i) is weft_random_*(key[b], purpose, i), i the index
 * inside the sample in the *global* shape: a value does not depend on batch place or sharding. */
typedef struct weft_attr_random {
    weft_rng_purpose purpose;
    weft_shape shape;  /* local, dim 0 = B */
    weft_shape global; /* dims 1.. of the whole sample; dim 0 unused */
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
    uint32_t dims; /* bit d: reduce dim d; kept as 1 */
} weft_attr_sum;
/* reshape, broadcast */
typedef struct weft_attr_shape {
    weft_shape shape;
} weft_attr_shape;
typedef struct weft_attr_permute {
    int perm[WEFT_MAX_RANK]; /* out dim i is in dim perm[i] */
} weft_attr_permute;
typedef struct weft_attr_slice {
    int dim;
    int64_t start, len;
} weft_attr_slice;
/* with zeros */
typedef struct weft_attr_pad {
    int dim;
    int64_t before, after;
} weft_attr_pad;
typedef struct weft_attr_concat {
    int dim;
} weft_attr_concat;
/* a (..., M, K) or (..., K, M) if trans_a; b likewise with K, N; the leading dims are equal, or b
 * has rank 2 and serves all. Out (..., M, N). */
typedef struct weft_attr_matmul {
    bool trans_a, trans_b;
} weft_attr_matmul;
typedef enum weft_act { WEFT_ACT_NONE, WEFT_ACT_GELU_TANH, WEFT_ACT_SILU } weft_act;
/* x (..., K), w (N, K), b (N) or none: act(round(x w^T + b)). Gradient only with WEFT_ACT_NONE:
 * fusion of the activation is a pass that runs where nothing needs the value before it. */
typedef struct weft_attr_linear {
    weft_act act;
    weft_dtype round; /* the type that the activation's operand has without fusion */
} weft_attr_linear;
/* x (B,T,Y,X,I), w (O,I,kt,ky,kx) as in public checkpoints, b (O) or none; zero padding before and
 * after each of T,Y,X. Out (B, (T+pb+pa-kt)/st+1, ..., O). `x_shape` is set in conv3d_dx only. */
typedef struct weft_attr_conv {
    int64_t stride[3], before[3], after[3];
    weft_shape x_shape;
    int64_t kernel[3];
} weft_attr_conv;
/* Over the last dim. layer_norm: (x-mean)/sqrt(var+eps). rms_norm: x/sqrt(mean(x^2)+eps), or with
 * `l2` x sqrt(C)/max(||x||, eps) (the Wan VAE's norm). gamma, beta (C) optional. */
typedef struct weft_attr_norm {
    double eps;
    bool l2;
} weft_attr_norm;
/* x (B,S,H,D), cos and sin (S,D/2), or (B,S,H,D/2) broadcast over B and H: pairs (2i, 2i+1) rotate,
 * or with `halves` (i, i + D/2); `inverse` by the negative angle. */
typedef struct weft_attr_rope {
    bool inverse, halves;
} weft_attr_rope;
/* Tokens are `before` that do not turn, the places of a grid (T,Y,X), X fastest, and `after` that
 * do not turn. The head's pairs are dealt to T, Y, X in this order: pair i of the pairs[d] of dim d
 * turns by (origin[d] + place[d] step[d]) theta[d]^(-i / pairs[d]). Made is the part
 * [start, start + len) of the tokens: cos and sin f32 (len, sum of pairs), angles in f64. */
typedef struct weft_attr_rope_table {
    double theta[3], origin[3], step[3];
    int64_t grid[3], pairs[3];
    int64_t before, after;
    int64_t start, len;
} weft_attr_rope_table;
/* q (B,Sq,H,D), k, v (B,Sk,H,D), segments i32 (N,4) optional: rows {q begin, q end, k begin, k end}
 * over the flattened B*Sq and B*Sk: queries see the keys of their segment only. Without segments
 * each batch item is one. Out (B,Sq,H,D) and the log-sum-exp f32 (B,H,Sq) that the backward and the
 * merging of parts need; a query that sees no key gives 0 and -inf. `scale` multiplies q.k;
 * `causal`: key j <= query i + (nk-nq). `bias` f32 (B,Sk), optional, is added to scale q.k of a
 * key: masks; -1e30 hides a key. It has no gradient and does not go with segments. */
typedef struct weft_attr_attention {
    double scale;
    bool causal;
} weft_attr_attention;
/* embed_grad: rows of the table */
typedef struct weft_attr_embed {
    int64_t rows;
} weft_attr_embed;
/* packed u8 (..., blocks, bytes): blocks of so many elements, as the GGUF type of that number packs
 * them (format/packing.h) -> f32 (..., blocks * elements). With ids i32 only those rows of packed
 * (R, blocks, bytes): (ids..., blocks * elements). */
typedef struct weft_attr_unpack {
    int64_t type, elements, bytes;
} weft_attr_unpack;
/* top_k: `count` of the last dim. With `groups` of equally many neighbours only those in the `kept`
 * groups that have the largest sum of their two best may be chosen; 0: no groups. */
typedef struct weft_attr_top_k {
    int64_t count, groups, kept;
} weft_attr_top_k;
/* Experts, and places that each has for the tokens of one sample:
 *
 *   slots 0   a token's own place: none is without, and tokens may be split
 *   slots n   tokens take them in their order, those behind the n-th go without (dropped)
 *
 * Slots of one sample do not depend on another, so a split of samples drops the same. */
typedef struct weft_attr_experts {
    int64_t experts, slots;
} weft_attr_experts;
/* y = x w[e]^T with `trans_b`, else y = x w[e]; the expert e of a row is
 *
 *   as tokens    x (B,S,1 or k,K), ids (B,S,k) -> (B,S,k,N):    what ids say
 *   by_expert    x (E,B,R,K),      ids (E,B,R) -> (E,B,R,N):    the row's place in the first dim
 *
 * and a row whose id is negative is 0 and costs nothing. `experts`: expert_matmul_dw only. */
typedef struct weft_attr_expert_matmul {
    bool by_expert, trans_b;
    int64_t experts;
} weft_attr_expert_matmul;
typedef struct weft_attr_adamw {
    double beta1, beta2, eps, weight_decay;
} weft_attr_adamw;
/* offload, fetch: copies beside the kernels. So many bytes may be under way in one direction, or as
 * many as the largest needs. */
typedef struct weft_attr_move {
    int64_t room;
} weft_attr_move;
/* Layout conversions (design: layouts and collectives). `axis` indexes the graph's mesh; `dim` is
 * the tensor dim, `dim2` the target dim of all_to_all; `global` the whole length of dim, `global2`
 * of dim2. A dim of n over k ranks: chunk = ceil(n/k), the last parts are shorter, maybe empty. */
typedef struct weft_attr_comm {
    int axis;
    int dim, dim2;
    int64_t global, global2;
    /* ring_shift: rank r holds block r - held of dim, and gets from rank r - shift its block, which
     * is r - held - shift; blocks may differ in size. */
    int shift, held;
    bool invariant; /* all_gather: the result is R, not V: its gradient is the same on all ranks */
    bool late;      /* is not started before the nodes that stand before it (pass/order) */
    bool piece;     /* between layers in slices: its readers stand behind what covers it already */
} weft_attr_comm;

/* ---- the row ------------------------------------------------------------------------------- */

typedef struct weft_graph weft_graph;
typedef struct weft_node weft_node;
typedef struct weft_value {
    int32_t id;
} weft_value;
#define WEFT_NONE ((weft_value){-1})
static inline bool weft_value_ok(weft_value v)
{
    return v.id >= 0;
}

/* Per mesh axis. R: the same on every rank ("invariant"). V: each rank's own. S: split along dim.
 * P: a term of a pending sum. UNKNOWN: no rule says what the node makes; legal nowhere in a
 * finished graph. */
typedef enum weft_layout_kind { WEFT_R, WEFT_V, WEFT_S, WEFT_P, WEFT_UNKNOWN } weft_layout_kind;
typedef struct weft_layout {
    int8_t kind, dim;
} weft_layout;

typedef struct weft_op_out {
    weft_dtype dtype;
    weft_shape shape;
} weft_op_out;
/* Shapes and dtypes of the outputs from those of the inputs; reports through the graph's sticky
 * error. *count is the number of outputs of this node (optional gradients may be absent). */
typedef bool weft_infer_fn(weft_graph *graph, weft_op op, const weft_value *in, int in_count,
                           const void *attr, weft_op_out *out, int *count);
/* Emits nodes for the gradients of `node` given those of its outputs (WEFT_NONE: zero) and writes
 * one per input (WEFT_NONE: none). `wanted` says which are needed. */
typedef void weft_vjp_fn(weft_graph *graph, const weft_node *node, const weft_value *out_grad,
                         const bool *wanted, weft_value *in_grad);
/* One legal way to compute a node with its operands laid out over one axis: the layout that each
 * input must have and those that the outputs then have. R beside S or P means "whole": it becomes
 * V. */
typedef struct weft_layout_choice {
    weft_layout need[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    const struct weft_expansion *expansion; /* NULL: the op itself, on parts */
    double wire_bytes; /* an expansion's, in the forward: what the rank with most of it sends */
} weft_layout_choice;
/* Of input i; those behind the last that a row has room for are as that one. */
static inline weft_layout weft_layout_need(const weft_layout_choice *row, int i)
{
    return row->need[i < WEFT_MAX_INPUTS ? i : WEFT_MAX_INPUTS - 1];
}
/* One member of a group of nodes that are expanded together: the node before the split, its
 * operands in `to`, laid out as its row needs them, and its results, laid out as the row says. */
typedef struct weft_expanded {
    const weft_node *node;
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
} weft_expanded;
enum { WEFT_EXPANDED_MOST = 8 };
/* Nodes that become several on an axis, with exchanges between them. The members of a group share
 * all operands but the first, so one exchange serves all of them. `from`: the graph before the
 * split. Emits into `to` and sets out[] of each member. All ranks must emit the same nodes. The
 * backward is that of the nodes emitted. */
typedef struct weft_expansion {
    const char *name; /* that recipes ask for it by */
    void (*emit)(weft_graph *to, const weft_graph *from, weft_expanded *member, int count,
                 int axis);
} weft_expansion;
enum { WEFT_MAX_CHOICES = 48 };
/* Lists them for an axis of `ranks` ranks, all that the op has except "everything R", which is
 * always legal; returns how many. Shapes in `graph` are those before the split; or with `ranks` 0
 * those of parts, of a node that is built on a mesh: the rows then say what follows from the
 * layouts of its operands, whatever the sizes of the parts show. */
typedef int weft_layout_fn(const weft_graph *graph, const weft_node *node, int ranks,
                           weft_layout_choice choice[WEFT_MAX_CHOICES]);
/* FLOPs, bytes read and written, bytes that this rank puts on the wire. */
typedef struct weft_cost {
    int64_t flops, bytes, wire_bytes;
} weft_cost;
typedef weft_cost weft_cost_fn(const weft_graph *graph, const weft_node *node);

/* The text form of the attribute with a leading blank (" {axis=1}"), numbers exactly: two graphs of
 * one text are one graph, and the hash is that of the text. */
typedef void weft_print_fn(const weft_graph *graph, const weft_node *node, weft_buf *out);
/* Cuts `attr`, a copy of a node's, to the part [start, start + len) of output 0 along `dim`. What
 * it needs to allocate is `to`'s, the graph that the node is emitted into; errors are sticky there.
 */
typedef void weft_local_fn(weft_graph *to, void *attr, int dim, int64_t start, int64_t len);

/* What others need to know of an op. No code compares the order of the enum. */
enum {
    WEFT_TRAIT_NAMED = 1 << 0, /* has a name and weft_attr_source: filled or kept from outside */
    WEFT_TRAIT_PERSISTENT = 1 << 1, /* lives in the store between runs; may be updated */
    WEFT_TRAIT_GIVEN = 1 << 2,      /* its bytes are there before the run: nothing computes it */
    WEFT_TRAIT_ANYWHERE = 1 << 3,   /* every rank can make any part of it by itself */
    WEFT_TRAIT_ALIAS = 1 << 4,      /* output 0 is input 0's bytes and nothing is computed */
    WEFT_TRAIT_CONVERTS = 1 << 5,   /* a layout conversion, with weft_attr_comm */
    WEFT_TRAIT_COLLECTIVE = 1 << 6, /* exchanges data between ranks */
    WEFT_TRAIT_HEAVY = 1 << 7,      /* takes long: other work hides behind it */
    WEFT_TRAIT_FITS = 1 << 8,       /* its layout rule looks at how parts fit into sizes */
    WEFT_TRAIT_MOVES = 1 << 9,      /* copies to or from memory elsewhere, as a whole value */
    WEFT_TRAIT_GIVES = 1 << 10, /* others read what it sends: it stays though nobody here does */
};
/* The words of the table. */
/* clang-format off */
enum {
    WEFT_TRAITS_plain        = 0,
    WEFT_TRAITS_source       = WEFT_TRAIT_NAMED | WEFT_TRAIT_GIVEN,
    WEFT_TRAITS_persistent   = WEFT_TRAITS_source | WEFT_TRAIT_PERSISTENT,
    WEFT_TRAITS_constant     = WEFT_TRAIT_GIVEN | WEFT_TRAIT_ANYWHERE,
    WEFT_TRAITS_anywhere     = WEFT_TRAIT_ANYWHERE,
    WEFT_TRAITS_view         = WEFT_TRAIT_ALIAS | WEFT_TRAIT_FITS,
    WEFT_TRAITS_fits         = WEFT_TRAIT_FITS,
    WEFT_TRAITS_heavy        = WEFT_TRAIT_HEAVY,
    WEFT_TRAITS_windows      = WEFT_TRAIT_HEAVY | WEFT_TRAIT_FITS,
    WEFT_TRAITS_convert      = WEFT_TRAIT_CONVERTS,
    WEFT_TRAITS_view_convert = WEFT_TRAIT_CONVERTS | WEFT_TRAIT_ALIAS,
    WEFT_TRAITS_moves        = WEFT_TRAIT_MOVES,
    WEFT_TRAITS_exchange     = WEFT_TRAIT_CONVERTS | WEFT_TRAIT_COLLECTIVE,
    WEFT_TRAITS_relay        = WEFT_TRAITS_exchange | WEFT_TRAIT_GIVES,
};
/* clang-format on */

/* Mixed precision (pass narrow): the type that a node of a model computes in. The low bits are the
 * inputs that the op takes in f32 next to a first one in bf16. */
enum {
    WEFT_MIXED_INPUTS = (1 << WEFT_MAX_INPUTS) - 1,
    WEFT_MIXED_COMPUTES = 1 << 16, /* computes in bf16 where an operand is a weight or in bf16 */
    WEFT_MIXED_PASSES_ON = 1 << 17 /* computes nothing: a weight keeps its type on the way */
};
/* The words of the table. */
/* clang-format off */
enum {
    WEFT_MIXED_f32        = 0, /* logarithms, angles, scores that choose, the optimizer */
    WEFT_MIXED_bf16       = WEFT_MIXED_COMPUTES,
    WEFT_MIXED_bf16_bias  = WEFT_MIXED_COMPUTES | 1 << 2, /* a bias gradient is a sum */
    WEFT_MIXED_bf16_first = WEFT_MIXED_COMPUTES | (WEFT_MIXED_INPUTS & ~1), /* norms, angles */
    WEFT_MIXED_bf16_qkv   = WEFT_MIXED_COMPUTES | (WEFT_MIXED_INPUTS & ~7), /* masks */
    WEFT_MIXED_bf16_parts = WEFT_MIXED_COMPUTES | 1 << 1 | 1 << 3, /* logarithms of sums */
    WEFT_MIXED_passes     = WEFT_MIXED_COMPUTES | WEFT_MIXED_PASSES_ON
};
/* clang-format on */

typedef struct weft_op_info {
    const char *name;
    int min_inputs, max_inputs, max_outputs;
    int64_t attr_bytes;
    weft_print_fn *print;
    weft_infer_fn *infer;
    weft_vjp_fn *vjp; /* weft_vjp_none: "no gradient" is a stated value */
    weft_layout_fn *layout;
    weft_local_fn *local; /* weft_local_none: the attribute is the same for every part */
    weft_cost_fn *cost;
    uint32_t traits, mixed, over;
    double tolerance_f32, tolerance_bf16; /* relative to the f64 reference, norm-wise; 0: bitwise */
} weft_op_info;
/* Never NULL for a legal op. */
const weft_op_info *weft_op_get(weft_op op);
static inline bool weft_op_has(weft_op op, uint32_t trait)
{
    return (weft_op_get(op)->traits & trait) != 0;
}
/* Bit i: output o may be written over input i, when they have one shape. */
static inline uint32_t weft_op_over(weft_op op, int o)
{
    return weft_op_get(op)->over >> 8 * o & 0xff;
}
/* Bit i of a mask over inputs. */
static inline bool weft_mask_has(uint32_t mask, int i)
{
    return i < WEFT_MAX_INPUTS && (mask >> i & 1);
}
/* Whether the op takes input i in f32 next to a first one in bf16. */
static inline bool weft_op_takes_f32(weft_op op, int i)
{
    return weft_mask_has(weft_op_get(op)->mixed & WEFT_MIXED_INPUTS, i);
}
/* reshape, vary */
static inline bool weft_op_is_alias(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_ALIAS);
}
/* all_reduce ... relay */
static inline bool weft_op_is_collective(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_COLLECTIVE);
}
/* What runs beside the kernels from its node until it is waited for. */
static inline bool weft_op_runs_beside(weft_op op)
{
    return weft_op_has(op, WEFT_TRAIT_COLLECTIVE | WEFT_TRAIT_MOVES);
}

#endif
