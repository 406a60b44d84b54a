/* Parameters of kernels: structs that the host code of ops fills and the kernels read. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_KERNEL_ARGS_H
#define WEFT_KERNEL_CUDA_KERNELS_KERNEL_ARGS_H

#ifdef __CUDACC_RTC__ /* NVRTC has no headers of C */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* The values of weft_dtype. */
enum { TYPE_F32, TYPE_BF16, TYPE_F16, TYPE_F8, TYPE_I32, TYPE_I64, TYPE_U8 };

/* Dense data; NULL: absent. */
typedef struct tensor_ref {
    void *data;
    int32_t type;
} tensor_ref;

/* A divisor of numbers below 2^31: n / by = (n multiply >> 32) >> shift, or n >> shift if
 * `multiply` is 0. */
typedef struct fast_divisor {
    uint32_t by, multiply, shift;
} fast_divisor;

/* A dense shape whose elements (or vectors of elements) are counted by 31 bits. */
enum { LOOP_RANK = 6 };
typedef struct loop_shape {
    fast_divisor dim[LOOP_RANK]; /* slowest first; dim[0] is not used */
} loop_shape;

/* ---- pointwise ------------------------------------------------------------------------------- */

enum { POINTWISE_THREADS = 256, POINTWISE_PER_THREAD = 8 };

/* One or two inputs of the output's shape. `vector`: all pointers allow accesses of 16 bytes. */
typedef struct unary_args {
    tensor_ref x, dy, out;
    float a, b;
    int64_t count;
    int32_t vector;
} unary_args;

/* Two inputs that are broadcast. An item is 8 elements of the last dim if `vector`, else one; the
 * strides count elements, and an item of an input has the stride 1 or 0. */
typedef struct binary_args {
    tensor_ref x, y, out;
    loop_shape shape;
    int64_t x_stride[LOOP_RANK], y_stride[LOOP_RANK];
    int64_t items;
    int32_t vector, x_same, y_same; /* whether the elements of an item are one element of x, y */
} binary_args;

/* The parameter of generated kernels: inputs that are broadcast to the shape of the outputs, and
 * two numbers of each step. Items are as in binary_args. */
enum { CHAIN_INPUTS = 8, CHAIN_OUTPUTS = 3, CHAIN_STEPS = 8 };
typedef struct chain_args {
    void *in[CHAIN_INPUTS], *out[CHAIN_OUTPUTS];
    loop_shape shape;
    int64_t stride[CHAIN_INPUTS][LOOP_RANK];
    int64_t items;
    float a[CHAIN_STEPS], b[CHAIN_STEPS];
    int32_t same[CHAIN_INPUTS], vector;
} chain_args;

/* ---- moves ----------------------------------------------------------------------------------- */

/* out[i] = from[i'] for all items of `bytes` bytes (1, 2, 4, 8, 16). */
typedef struct move_args {
    const void *from;
    void *out;
    loop_shape shape;
    int64_t from_stride[LOOP_RANK], out_stride[LOOP_RANK]; /* in items */
    int64_t items;
    int32_t bytes;
} move_args;

/* Transposes (batch, rows, columns) to (batch, columns, rows). */
enum { TRANSPOSE_TILE = 32, TRANSPOSE_ROWS = 8 };
typedef struct transpose_args {
    const void *from;
    void *out;
    int64_t rows, columns;
    int32_t bytes; /* of an element: 1, 2, 4, 8 */
} transpose_args;

/* Writes `bytes` bytes of a pattern of 8. */
typedef struct fill_args {
    void *out;
    int64_t bytes;
    uint64_t pattern;
} fill_args;

/* ---- reductions ------------------------------------------------------------------------------ */

enum { REDUCE_THREADS = 256, REDUCE_WARPS = 8 };

/* Terms of a sum: x; dy x; dy (x - mean) / deviation, from the row's statistics. */
enum { REDUCE_X, REDUCE_DY_X, REDUCE_DY_NORMED };

/* out[chunk][kept] = the sum over a chunk of the reduced index. x and dy have one shape, so the
 * strides belong to both. `statistics`: f32 (reduced, 4), see norm_grad_args. */
typedef struct reduce_args {
    tensor_ref x, dy, out;
    const float *statistics;
    loop_shape kept, reduced;
    int64_t kept_stride[LOOP_RANK], reduced_stride[LOOP_RANK];
    int64_t kept_items, reduced_items, chunk;
    int32_t term;
} reduce_args;

/* f64 sums of `chunk` squares each; then one sum of all, in f32. `vector`: load_eight() may load
 * multiples of 8. */
typedef struct squares_args {
    tensor_ref x;
    double *part;
    float *out;
    int64_t count, chunk, parts;
    int32_t vector;
} squares_args;

/* ---- norms ----------------------------------------------------------------------------------- */

enum { NORM_THREADS = 256, NORM_LAYER, NORM_RMS, NORM_L2 };

/* `by_warp`: a row is computed by a warp, else by a block. */
typedef struct norm_args {
    tensor_ref x, gamma, beta, out;
    int64_t rows, columns;
    float eps;
    int32_t kind, vector, by_warp;
} norm_args;

/* statistics (rows, 4): shift, mean - shift, 1 / deviation; NULL: not needed. */
typedef struct norm_grad_args {
    tensor_ref x, dy, gamma, dx;
    float *statistics;
    int64_t rows, columns;
    float eps;
    int32_t kind, vector, by_warp;
} norm_grad_args;

/* ---- modulation and rope --------------------------------------------------------------------- */

/* x of the output's shape with y and z broadcast; items as in binary_args. */
typedef struct ternary_args {
    tensor_ref x, y, z, out;
    loop_shape shape;
    int64_t x_stride[LOOP_RANK], y_stride[LOOP_RANK], z_stride[LOOP_RANK];
    int64_t items;
    int32_t vector, x_same, y_same, z_same;
} ternary_args;

/* An item is `pairs` pairs (1, 4 or 8) of a token's head. */
typedef struct rope_args {
    tensor_ref x, cosine, sine, out;
    loop_shape shape; /* batch, tokens, heads, items of a head */
    int64_t x_stride[LOOP_RANK], angle_stride[LOOP_RANK];
    int64_t items, half;
    int32_t pairs, rotate_half;
    float sign; /* -1: rotates by the negative angle */
} rope_args;

enum { ROPE_TABLE_PAIRS = 256 };
typedef struct rope_table_args {
    tensor_ref cosine, sine;
    int64_t start, len, before, tokens;
    int64_t grid[3], pairs[3];
    double origin[3], step[3];
    double frequency[ROPE_TABLE_PAIRS]; /* of every pair */
} rope_table_args;

/* ---- random numbers -------------------------------------------------------------------------- */

/* Element (b, i) is a function of key[b], the stream and the index of i in the whole sample. */
typedef struct random_args {
    tensor_ref key, out;
    loop_shape shape;
    int64_t key_stride[LOOP_RANK], whole_stride[LOOP_RANK];
    int64_t whole_start, count;
    uint64_t stream;
    int32_t normal;
} random_args;

/* ---- tables and experts ---------------------------------------------------------------------- */

/* The report of an id outside a table: op << BAD_ID_OP | the low bits of the id, in one
 * store of 8 bytes. NULL: nowhere. */
enum { BAD_ID_OP = 48 };
typedef struct id_report {
    uint64_t *bad_id;
    int64_t op;
} id_report;

/* embed: rows of `table` at ids; embed_grad: the sum of dy over the ids of each row. */
typedef struct embed_args {
    tensor_ref table, ids, out;
    id_report report;
    int64_t count, rows, width;
    int32_t vector;
} embed_args;

/* Rows of packed blocks (GGUF) as numbers: the rows of `ids`, or all. */
typedef struct unpack_args {
    const uint8_t *from;
    tensor_ref ids, out;
    id_report report;
    int64_t count, rows, width; /* rows of the output, rows of the table, numbers of a row */
    int32_t type, bytes, shift; /* of GGUF; bytes of a block; log2 of its numbers */
} unpack_args;

enum { TOP_K_MOST = 1024, TOP_K_GROUPS = 64 };
typedef struct top_k_args {
    tensor_ref scores, bias;
    int32_t *out;
    int64_t rows;
    int32_t experts, count, groups, top_groups;
} top_k_args;

typedef struct pick_args {
    tensor_ref x, out;
    id_report report;
    const int32_t *ids;
    int64_t rows, experts, count; /* `count` ids of a row */
} pick_args;

/* rows[choice]: row of (E,B,slots), or -1. `slots` 0: slot i for token i. */
typedef struct slots_args {
    id_report report;
    const int32_t *ids;
    int32_t *rows;
    int64_t batch, tokens, choices; /* choices of a token */
    int64_t experts, slots;
} slots_args;

/* to_rows: out[rows[i]] = x[i / shared], else out[i] = x[rows[i]] or 0, for rows of `width`
 * elements; `x` absent: out[rows[i]] = ids[i]. */
typedef struct route_args {
    tensor_ref x, out;
    const int32_t *ids, *rows;
    int64_t count, width, shared;
    int32_t to_rows, vector;
} route_args;

/* ---- optimizer ------------------------------------------------------------------------------- */

typedef struct clip_args {
    tensor_ref squares, loss, max_norm, loss_limit, norm_limit, scale, norm;
} clip_args;

typedef struct adamw_args {
    tensor_ref p, g, m, v, lr, step, scale, p_out, m_out, v_out;
    double beta1, beta2, log_beta1, log_beta2;
    float eps, weight_decay;
    int64_t count;
    int32_t vector;
} adamw_args;

typedef struct ema_args {
    tensor_ref e, p, decay, scale, out;
    int64_t count;
    int32_t vector;
} ema_args;

/* ---- parts of attention ---------------------------------------------------------------------- */

/* merge: a, lse_a, b, lse_b -> out, lse. merge_grad: part, its lse; whole, its lse; dout, dlse or
 * none -> out (d part), lse (d lse). Tensors (B,S,H,D), lse (B,H,S). */
typedef struct merge_args {
    tensor_ref a, lse_a, b, lse_b, dout, dlse, out, lse;
    int64_t batch, tokens, heads, width;
} merge_args;

/* ---- products -------------------------------------------------------------------------------- */

/* Tile of a block in f32, and on tensor cores. A tile of experts' rows belongs to one expert. */
enum { GEMM_TILE = 64, GEMM_DEPTH = 16, GEMM_THREADS = 128, GEMM_FOLD = 32 };
enum { MMA_TILE = 128, MMA_DEPTH = 32, MMA_THREADS = 256, MMA_STAGES = 3 };

/* Positions of a convolution: p of (batch, t, y, x) of `grid` and a tap give the position of the
 * source. back: p + before - tap must be a multiple of the stride. */
typedef struct conv_map {
    fast_divisor grid[3], taps[2], channels; /* grid: t, y, x; taps: y, x */
    int32_t source[3], stride[3], before[3];
    int32_t back;
} conv_map;

/* An operand (rows, depth) of c = a b^T. The dim with stride 1 is read in vectors of eight. */
enum {
    OPERAND_PLAIN,
    OPERAND_LISTED_ROWS,
    OPERAND_LISTED_DEPTH,
    OPERAND_POSITION_ROWS,
    OPERAND_POSITION_DEPTH
};
typedef struct gemm_operand {
    tensor_ref t;
    int64_t batch_stride, row_stride, depth_stride;
    int32_t kind, shared; /* listed: entry i of `list` is row list[i] / shared; negative: zeros */
    int32_t vector;
} gemm_operand;

/* c[m][n] = act(round(sum_k a[m][k] b[n][k] + bias[n])). The depth is cut into `splits` parts, each
 * with its own c of f32, or into parts of experts from starts[e] to starts[e + 1]. */
typedef struct gemm_args {
    gemm_operand a, b;
    tensor_ref bias, c;
    conv_map conv;
    const int32_t *list;                        /* rows of experts, padded with -1 to tiles */
    const int32_t *tile_expert;                 /* expert of a tile of rows: batch of b; -1: none */
    const int32_t *starts;                      /* by expert */
    int64_t rows, columns, depth, batch_stride; /* batch_stride: of c */
    int32_t splits, split_depth, act, round, list_c, vector_c;
    int32_t tf32; /* operands of f32 may be rounded to TF32 */
} gemm_args;

/* Rows of experts in lists: counts, starts (padded to tiles), then the lists. */
typedef struct expert_list_args {
    id_report report;
    const int32_t *ids;
    int32_t *counts, *starts, *tile_expert, *list;
    int64_t count, experts, each,
        tiles; /* each: ids of an expert if it is given by the position; 0 */
    int32_t tile;
} expert_list_args;

/* ---- attention ------------------------------------------------------------------------------- */

enum { ATTENTION_THREADS = 128, ATTENTION_ROWS = 32, ATTENTION_COLUMNS = 128 };
/* Kernels on tensor cores: queries of a block, and rows of a block of the gradients. */
enum { FLASH_THREADS = 128, FLASH_ROWS = 128, FLASH_GRAD_ROWS = 64, FLASH_WIDTH = 128 };

/* q, out, dout, dq (B,Sq,H,D), k, v, dk, dv (B,Sk,H,D), lse, delta, dlse f32 (B,H,Sq), bias f32
 * (B,Sk). base (B,H,Sq), or NULL: 0; dS is P (dP - base - delta). Segments i32 (N,4) over B*S,
 * (B,N,4) with `item_segments` N, or NULL: each batch item is one. */
typedef struct attention_args {
    tensor_ref q, k, v, out, dout, dq, dk, dv;
    float *lse, *delta, *base;
    const float *dlse, *bias;
    const int32_t *segments;
    const float *chosen; /* of attention over blocks, see chosen_tiles.h */
    int64_t batch, queries, keys, heads, width, segment_count, item_segments;
    fast_divisor by_queries; /* of the kernels on tensor cores */
    float scale;
    int32_t causal, vector;
    int32_t query_blocks, key_blocks; /* of `chosen`; queries and keys have equal blocks each */
} attention_args;

/* top_p, top_share: out[i] = 1 for the chosen elements of a row, else 0. A block has the keys of a
 * row in shared memory, or in `places` elements of `space`. Of top_p, `places` is a power of 2. */
enum { CHOICE_THREADS = 256, CHOICE_SHARED = 4096 };
typedef struct choice_args {
    tensor_ref x;
    float *out;
    uint32_t *space;
    int64_t rows;
    double limit; /* top_p: least sum; top_share: share */
    int32_t columns, places;
} choice_args;

#endif
