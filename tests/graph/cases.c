#include "cases.h"
#include "graph/builder_helpers.h"

#include <stdio.h>
#include <string.h>

#define S(...)                                                                                     \
    {                                                                                              \
        WEFT_F32, {(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}}, 0                  \
    }
#define FIXED(...)                                                                                 \
    {                                                                                              \
        WEFT_F32, {(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}}, 0, true            \
    }
#define SCALAR_IN                                                                                  \
    {                                                                                              \
        WEFT_F32, {0}, 0                                                                           \
    }
#define NO_INPUT                                                                                   \
    {                                                                                              \
        WEFT_F32, {.rank = -1}, 0                                                                  \
    }
#define INTS(type, data, ...)                                                                      \
    {                                                                                              \
        type, {(int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), {__VA_ARGS__}}, data                   \
    }
#define ATTR(type, ...)                                                                            \
    &(const type)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const int64_t keys[] = {11, 12, 13, 14, 15};
/* two packed samples of 3 and 4 queries over 2 and 5 keys, the last query belongs to none */
static const int64_t segments[] = {0, 3, 0, 2, 3, 7, 2, 7};
/* segments of each of three rows of 4 queries over 5 keys; one is empty */
static const int64_t item_segments[] = {0, 1, 0, 2, 1, 3, 2, 5, 0, 4, 1, 5,
                                        0, 0, 0, 0, 0, 2, 3, 5, 2, 4, 0, 2};

/* experts of tokens, all different in one token; -1: none */
static const int64_t chosen[] = {0, 2, 1, 0, 2,  1, 2, 0, 0, 1, 3, 0,
                                 2, 3, 0, 1, -1, 2, 3, 0, 1, 2, 0, 3};
/* rows by expert, (4,2,3): used or not */
static const int64_t used[] = {0, 0, -1, 0,  -1, 0,  1,  -1, -1, 1, 1,  1,
                               2, 2, -1, -1, 2,  -1, -1, 3,  -1, 3, -1, -1};

#define UNARY(op)                                                                                  \
    {                                                                                              \
        op, 1, {S(3, 5)}, 0, -2, 2, 0                                                              \
    }
#define POSITIVE(op)                                                                               \
    {                                                                                              \
        op, 1, {S(3, 5)}, 0, 0.5, 2, 0                                                             \
    }
#define GRAD2(op, attr)                                                                            \
    {                                                                                              \
        op, 2, {S(3, 5), S(3, 5)}, attr, -2, 2, 1                                                  \
    }
#define BINARY(op)                                                                                 \
    {op, 2, {S(3, 5), S(3, 5)}, 0, 0.5, 2, 0}, {op, 2, {S(3, 1, 5), S(1, 4, 5)}, 0, 0.5, 2, 0},    \
    {                                                                                              \
        op, 2, {S(1, 5), S(4, 1)}, 0, 0.5, 2, 0                                                    \
    }

static const weft_attr_conv plain_conv = {.stride = {1, 2, 1},
                                          .before = {2, 1, 0},
                                          .after = {0, 1, 1},
                                          .kernel = {3, 2, 2},
                                          .x_shape = {5, {2, 3, 4, 3, 3}}};
static const weft_attr_conv patch_conv = {
    .stride = {1, 2, 2}, .kernel = {1, 2, 2}, .x_shape = {5, {2, 6, 12, 4, 3}}};
static const weft_attr_norm norm = {.eps = 1e-3}, norm_l2 = {.eps = 1e-3, .l2 = true};
static const weft_attr_attention attention = {.scale = 0.4},
                                 causal = {.scale = 0.4, .causal = true};
static const weft_attr_adamw adamw = {
    .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.02};

/* 0.7 x + 0.3, which is an output, then the sum with y, then the product with z. */
static const weft_attr_pointwise chain = {
    .count = 3,
    .step = {{.op = WEFT_OP_AFFINE, .in_count = 1, .in = {0}, .out = 0, .attr.affine = {0.7, 0.3}},
             {.op = WEFT_OP_ADD, .in_count = 2, .in = {WEFT_POINTWISE_STEP, 1}, .out = -1},
             {.op = WEFT_OP_MUL, .in_count = 2, .in = {WEFT_POINTWISE_STEP + 1, 2}, .out = 1}}};

static const op_case table[] = {
    {WEFT_OP_FILL,
     0,
     {NO_INPUT},
     ATTR(weft_attr_fill, .value = 1.5, .dtype = WEFT_F32, .shape = {2, {3, 5}}),
     0,
     1,
     0},
    {WEFT_OP_RANDOM_NORMAL,
     1,
     {INTS(WEFT_I64, keys, 5)},
     ATTR(weft_attr_random, .purpose = WEFT_RNG_TEST, .shape = {3, {5, 4, 3}},
          .global = {3, {5, 4, 3}}),
     0,
     1,
     0},
    {WEFT_OP_RANDOM_UNIFORM,
     1,
     {INTS(WEFT_I64, keys, 3)},
     ATTR(weft_attr_random, .purpose = WEFT_RNG_TEST, .shape = {2, {3, 7}}, .global = {2, {3, 7}}),
     0,
     1,
     0},
    UNARY(WEFT_OP_NEG),
    UNARY(WEFT_OP_EXP),
    UNARY(WEFT_OP_SQUARE),
    UNARY(WEFT_OP_SIN),
    UNARY(WEFT_OP_COS),
    UNARY(WEFT_OP_TANH),
    UNARY(WEFT_OP_SIGMOID),
    UNARY(WEFT_OP_SILU),
    POSITIVE(WEFT_OP_LOG),
    POSITIVE(WEFT_OP_SQRT),
    POSITIVE(WEFT_OP_RSQRT),
    {WEFT_OP_AFFINE, 1, {S(3, 5)}, ATTR(weft_attr_affine, 0.7, 0.3), -2, 2, 0},
    {WEFT_OP_AFFINE, 1, {S(3, 5)}, ATTR(weft_attr_affine, 0.7, 0), -2, 2, 0},
    {WEFT_OP_CAST, 1, {S(3, 5)}, ATTR(weft_attr_cast, WEFT_F64), -2, 2, 0},
    {WEFT_OP_GELU, 1, {S(3, 5)}, ATTR(weft_attr_gelu, false), -2, 2, 0},
    {WEFT_OP_GELU, 1, {S(3, 5)}, ATTR(weft_attr_gelu, true), -2, 2, 0},
    {WEFT_OP_CLAMP, 1, {S(3, 5)}, ATTR(weft_attr_clamp, -1, 0.5), -2, 2, 0},
    GRAD2(WEFT_OP_SILU_GRAD, 0),
    GRAD2(WEFT_OP_GELU_GRAD, ATTR(weft_attr_gelu, false)),
    GRAD2(WEFT_OP_CLAMP_GRAD, ATTR(weft_attr_clamp, -1, 0.5)),
    BINARY(WEFT_OP_ADD),
    BINARY(WEFT_OP_SUB),
    BINARY(WEFT_OP_MUL),
    BINARY(WEFT_OP_DIV),
    {WEFT_OP_POINTWISE, 3, {S(3, 4, 5), S(3, 4, 5), S(1, 1, 5)}, &chain, -1, 1, 1},
    {WEFT_OP_SUM, 1, {S(3, 4, 5)}, ATTR(weft_attr_sum, 5), 0.5, 2, 0},
    {WEFT_OP_SUM, 1, {S(3, 4)}, ATTR(weft_attr_sum, 3), 0.5, 2, 0},
    {WEFT_OP_BROADCAST, 1, {S(1, 4, 1)}, ATTR(weft_attr_shape, {3, {3, 4, 5}}), -2, 2, 0},
    {WEFT_OP_RESHAPE, 1, {S(2, 6, 5)}, ATTR(weft_attr_shape, {3, {12, 1, 5}}), -2, 2, 0},
    {WEFT_OP_RESHAPE, 1, {S(5, 12)}, ATTR(weft_attr_shape, {4, {1, 5, 6, 2}}), -2, 2, 0},
    {WEFT_OP_RESHAPE, 1, {S(4, 6)}, ATTR(weft_attr_shape, {2, {3, 8}}), -2, 2, 0},
    {WEFT_OP_RESHAPE, 1, {S(22)}, ATTR(weft_attr_shape, {2, {11, 2}}), -2, 2, 0},
    {WEFT_OP_PERMUTE, 1, {S(3, 4, 5)}, ATTR(weft_attr_permute, {2, 0, 1}), -2, 2, 0},
    {WEFT_OP_SLICE, 1, {S(3, 7)}, ATTR(weft_attr_slice, 1, 2, 4), -2, 2, 0},
    {WEFT_OP_PAD, 1, {S(3, 4)}, ATTR(weft_attr_pad, 1, 1, 2), -2, 2, 0},
    {WEFT_OP_CONCAT, 3, {S(3, 4), S(3, 1), S(3, 2)}, ATTR(weft_attr_concat, 1), -2, 2, 0},
    {WEFT_OP_MATMUL, 2, {S(2, 5, 3), S(2, 3, 4)}, ATTR(weft_attr_matmul, 0, 0), -1, 1, 0},
    {WEFT_OP_MATMUL, 2, {S(2, 3, 5), S(2, 4, 3)}, ATTR(weft_attr_matmul, 1, 1), -1, 1, 0},
    {WEFT_OP_MATMUL, 2, {S(2, 5, 3), S(4, 3)}, ATTR(weft_attr_matmul, 0, 1), -1, 1, 0},
    {WEFT_OP_MATMUL, 2, {S(2, 5, 3), S(3, 4)}, ATTR(weft_attr_matmul, 0, 0), -1, 1, 0},
    {WEFT_OP_MATMUL, 2, {S(3, 5), S(3, 4)}, ATTR(weft_attr_matmul, 1, 0), -1, 1, 0},
    {WEFT_OP_LINEAR,
     3,
     {S(2, 3, 5), S(4, 5), S(4)},
     ATTR(weft_attr_linear, WEFT_ACT_NONE),
     -1,
     1,
     0},
    {WEFT_OP_LINEAR, 2, {S(3, 5), S(4, 5)}, ATTR(weft_attr_linear, WEFT_ACT_NONE), -1, 1, 0},
    {WEFT_OP_LINEAR, 3, {S(3, 5), S(4, 5), S(4)}, ATTR(weft_attr_linear, WEFT_ACT_SILU), -1, 1, 1},
    {WEFT_OP_LINEAR,
     2,
     {S(3, 64), INTS(WEFT_U8, 0, 5, 2, 34)},
     ATTR(weft_attr_linear, WEFT_ACT_NONE),
     -1,
     1,
     1},
    {WEFT_OP_LINEAR,
     3,
     {S(2, 3, 12), INTS(WEFT_U8, 0, 5, 3, 6), S(5)},
     ATTR(weft_attr_linear, WEFT_ACT_SILU),
     -1,
     1,
     1},
    {WEFT_OP_LINEAR,
     4,
     {S(2, 3, 16), INTS(WEFT_U8, 0, 5, 4, 6), NO_INPUT, S(16)},
     ATTR(weft_attr_linear, WEFT_ACT_NONE),
     -1,
     1,
     1},
    {WEFT_OP_CONV3D, 3, {S(2, 3, 4, 3, 3), S(2, 3, 3, 2, 2), S(2)}, &plain_conv, -1, 1, 0},
    {WEFT_OP_CONV3D, 2, {S(2, 6, 12, 4, 3), S(2, 3, 1, 2, 2)}, &patch_conv, -1, 1, 0},
    {WEFT_OP_CONV3D_DX, 2, {S(2, 3, 3, 3, 2), S(2, 3, 3, 2, 2)}, &plain_conv, -1, 1, 1},
    {WEFT_OP_CONV3D_DX, 2, {S(2, 6, 6, 2, 2), S(2, 3, 1, 2, 2)}, &patch_conv, -1, 1, 1},
    {WEFT_OP_CONV3D_DW, 2, {S(2, 3, 4, 3, 3), S(2, 3, 3, 3, 2)}, &plain_conv, -1, 1, 1},
    {WEFT_OP_CONV3D_DW, 2, {S(2, 6, 12, 4, 3), S(2, 6, 6, 2, 2)}, &patch_conv, -1, 1, 1},
    {WEFT_OP_ATTENTION, 3, {S(2, 4, 3, 2), S(2, 5, 3, 2), S(2, 5, 3, 2)}, &attention, -1, 1, 0},
    {WEFT_OP_ATTENTION, 3, {S(2, 4, 3, 2), S(2, 4, 3, 2), S(2, 4, 3, 2)}, &causal, -1, 1, 0},
    {WEFT_OP_ATTENTION,
     4,
     {S(1, 8, 3, 2), S(1, 7, 3, 2), S(1, 7, 3, 2), INTS(WEFT_I32, segments, 2, 4)},
     &attention,
     -1,
     1,
     0},
    {WEFT_OP_ATTENTION,
     4,
     {S(3, 4, 3, 2), S(3, 5, 3, 2), S(3, 5, 3, 2), INTS(WEFT_I32, item_segments, 3, 2, 4)},
     &attention,
     -1,
     1,
     0},
    {WEFT_OP_ATTENTION,
     5,
     {S(2, 4, 3, 2), S(2, 5, 3, 2), S(2, 5, 3, 2), NO_INPUT, FIXED(2, 5)},
     &attention,
     -1,
     1,
     0},
    {WEFT_OP_ATTENTION_GRAD,
     9,
     {S(2, 4, 3, 2), S(2, 5, 3, 2), S(2, 5, 3, 2), S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2),
      NO_INPUT, S(2, 3, 4), S(2, 5)},
     &attention,
     -1,
     1,
     1},
    {WEFT_OP_ATTENTION_GRAD,
     6,
     {S(2, 4, 3, 2), S(2, 5, 3, 2), S(2, 5, 3, 2), S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2)},
     &attention,
     -1,
     1,
     1},
    {WEFT_OP_ATTENTION_GRAD,
     8,
     {S(2, 4, 3, 2), S(2, 5, 3, 2), S(2, 5, 3, 2), S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2),
      NO_INPUT, S(2, 3, 4)},
     &attention,
     -1,
     1,
     1},
    {WEFT_OP_BLOCK_ATTENTION,
     4,
     {S(2, 4, 3, 2), S(2, 6, 3, 2), S(2, 6, 3, 2), FIXED(2, 3, 2, 3)},
     &attention,
     -0.25,
     1,
     0},
    {WEFT_OP_BLOCK_ATTENTION_GRAD,
     8,
     {S(2, 4, 3, 2), S(2, 6, 3, 2), S(2, 6, 3, 2), S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2),
      S(2, 3, 2, 3), S(2, 3, 4)},
     &attention,
     -1,
     1,
     1},
    {WEFT_OP_BLOCK_ATTENTION_GRAD,
     7,
     {S(2, 4, 3, 2), S(2, 6, 3, 2), S(2, 6, 3, 2), S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2),
      S(2, 3, 2, 3)},
     &attention,
     -1,
     1,
     1},
    {WEFT_OP_TOP_SHARE, 1, {S(3, 4, 6)}, ATTR(weft_attr_top_share, .share = 0.4), 0, 0.5, 1},
    {WEFT_OP_TOP_P, 1, {S(3, 4, 6)}, ATTR(weft_attr_top_p, .mass = 0.4), 0, 0.5, 1},
    {WEFT_OP_ATTENTION_MERGE,
     4,
     {S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2), S(2, 3, 4)},
     0,
     -1,
     1,
     0},
    {WEFT_OP_ATTENTION_MERGE_GRAD,
     6,
     {S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2), S(2, 3, 4), S(2, 4, 3, 2), S(2, 3, 4)},
     0,
     -1,
     1,
     1},
    {WEFT_OP_LAYER_NORM, 3, {S(2, 3, 5), S(5), S(5)}, &norm, -1, 1, 0},
    {WEFT_OP_LAYER_NORM, 1, {S(2, 3, 5)}, &norm, -1, 1, 0},
    {WEFT_OP_LAYER_NORM, 3, {S(2, 3, 5), NO_INPUT, S(5)}, &norm, -1, 1, 0},
    {WEFT_OP_LAYER_NORM_GRAD, 3, {S(2, 3, 5), S(2, 3, 5), S(5)}, &norm, -1, 1, 1},
    {WEFT_OP_RMS_NORM, 2, {S(2, 3, 5), S(5)}, &norm, -1, 1, 0},
    {WEFT_OP_RMS_NORM, 2, {S(2, 3, 5), S(5)}, &norm_l2, -1, 1, 0},
    {WEFT_OP_RMS_NORM, 1, {S(3, 5)}, &norm, -1, 1, 0},
    {WEFT_OP_STOP, 1, {S(3, 5)}, 0, -2, 2, 1},
    {WEFT_OP_SOFTMAX, 1, {S(2, 3, 5)}, 0, -2, 2, 0},
    {WEFT_OP_RMS_NORM_GRAD, 3, {S(2, 3, 5), S(2, 3, 5), S(5)}, &norm_l2, -1, 1, 1},
    {WEFT_OP_MODULATE, 3, {S(2, 3, 5), S(2, 1, 5), S(2, 1, 5)}, 0, -1, 1, 0},
    {WEFT_OP_MODULATE_GRAD, 3, {S(2, 3, 5), S(2, 1, 5), S(2, 3, 5)}, 0, -1, 1, 1},
    {WEFT_OP_GATED_ADD, 3, {S(2, 3, 5), S(2, 3, 5), S(2, 1, 5)}, 0, -1, 1, 0},
    {WEFT_OP_GATED_ADD_GRAD, 3, {S(2, 3, 5), S(2, 1, 5), S(2, 3, 5)}, 0, -1, 1, 1},
    {WEFT_OP_ROPE,
     3,
     {S(2, 5, 3, 4), FIXED(5, 2), FIXED(5, 2)},
     ATTR(weft_attr_rope, false),
     -1,
     1,
     0},
    {WEFT_OP_ROPE,
     3,
     {S(2, 5, 3, 4), S(1, 5, 3, 2), S(1, 5, 3, 2)},
     ATTR(weft_attr_rope, .rotate_half = true),
     -1,
     1,
     0},
    {WEFT_OP_ROPE,
     3,
     {S(2, 5, 3, 4), S(2, 5, 1, 2), S(2, 5, 1, 2)},
     ATTR(weft_attr_rope, .inverse = true),
     -1,
     1,
     0},
    {WEFT_OP_ROPE_TABLE,
     0,
     {NO_INPUT},
     ATTR(weft_attr_rope_table, .theta = {10000, 100, 256}, .origin = {0, 0.5, -2},
          .step = {1, 0.5, 2}, .grid = {2, 3, 4}, .pairs = {3, 2, 2}, .before = 2, .after = 3,
          .start = 1, .len = 27),
     0,
     1,
     0},
    {WEFT_OP_EMBED, 2, {S(3, 5), INTS(WEFT_I32, 0, 2, 4)}, 0, -1, 1, 0},
    {WEFT_OP_UNPACK, 1, {INTS(WEFT_U8, 0, 3, 5, 1)}, ATTR(weft_attr_unpack, 24, 1, 1), 0, 1, 1},
    {WEFT_OP_UNPACK, 1, {INTS(WEFT_U8, 0, 3, 2, 18)}, ATTR(weft_attr_unpack, 2, 32, 18), 0, 1, 1},
    {WEFT_OP_UNPACK,
     2,
     {INTS(WEFT_U8, 0, 3, 4, 34), INTS(WEFT_I32, 0, 2, 4)},
     ATTR(weft_attr_unpack, 8, 32, 34),
     0,
     1,
     1},
    {WEFT_OP_EMBED_GRAD,
     2,
     {INTS(WEFT_I32, 0, 2, 4), S(2, 4, 5)},
     ATTR(weft_attr_embed, 3),
     -1,
     1,
     0},
    {WEFT_OP_TOP_K, 1, {S(3, 4, 6)}, ATTR(weft_attr_top_k, .count = 3), -1, 1, 1},
    {WEFT_OP_TOP_K,
     2,
     {S(5, 12), S(12)},
     ATTR(weft_attr_top_k, .count = 3, .groups = 4, .top_groups = 2),
     -1,
     1,
     1},
    {WEFT_OP_PICK, 2, {S(4, 3, 5), INTS(WEFT_I32, chosen, 4, 3, 2)}, 0, -1, 1, 0},
    {WEFT_OP_PICK_GRAD,
     2,
     {INTS(WEFT_I32, chosen, 4, 3, 2), S(4, 3, 2)},
     ATTR(weft_attr_experts, .experts = 5),
     -1,
     1,
     0},
    {WEFT_OP_EXPERT_SLOTS,
     1,
     {INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_experts, .experts = 4),
     -1,
     1,
     1},
    {WEFT_OP_EXPERT_SLOTS,
     1,
     {INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_experts, .experts = 4, .slots = 2),
     -1,
     1,
     1},
    {WEFT_OP_DISPATCH,
     2,
     {S(3, 4, 1, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_experts, .experts = 4),
     -1,
     1,
     0},
    {WEFT_OP_DISPATCH,
     2,
     {S(3, 4, 2, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_experts, .experts = 4, .slots = 2),
     -1,
     1,
     0},
    {WEFT_OP_COLLECT,
     2,
     {S(4, 3, 4, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_experts, .experts = 4),
     -1,
     1,
     0},
    {WEFT_OP_COLLECT,
     2,
     {S(4, 3, 2, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_experts, .experts = 4, .slots = 2),
     -1,
     1,
     0},
    {WEFT_OP_EXPERT_MATMUL,
     3,
     {S(3, 4, 1, 5), S(4, 3, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_expert_matmul, .trans_b = true),
     -1,
     1,
     0},
    {WEFT_OP_EXPERT_MATMUL,
     3,
     {S(3, 4, 2, 3), S(4, 3, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_expert_matmul, .trans_b = false),
     -1,
     1,
     0},
    {WEFT_OP_EXPERT_MATMUL,
     3,
     {S(4, 2, 3, 5), S(4, 3, 5), INTS(WEFT_I32, used, 4, 2, 3)},
     ATTR(weft_attr_expert_matmul, .by_expert = true, .trans_b = true),
     -1,
     1,
     0},
    {WEFT_OP_EXPERT_MATMUL_DW,
     3,
     {S(3, 4, 2, 3), S(3, 4, 1, 5), INTS(WEFT_I32, chosen, 3, 4, 2)},
     ATTR(weft_attr_expert_matmul, .experts = 4),
     -1,
     1,
     1},
    {WEFT_OP_EXPERT_MATMUL_DW,
     3,
     {S(4, 2, 3, 3), S(4, 2, 3, 5), INTS(WEFT_I32, used, 4, 2, 3)},
     ATTR(weft_attr_expert_matmul, .by_expert = true, .experts = 4),
     -1,
     1,
     1},
    {WEFT_OP_SUM_SQUARES, 1, {S(3, 5)}, 0, -1, 1, 1},
    {WEFT_OP_CLIP_SCALE, 5, {SCALAR_IN, SCALAR_IN, SCALAR_IN, SCALAR_IN, SCALAR_IN}, 0, 2, 2, 1},
    {WEFT_OP_ADAMW,
     7,
     {S(3, 5), S(3, 5), S(3, 5), S(3, 5), SCALAR_IN, SCALAR_IN, SCALAR_IN},
     &adamw,
     0.5,
     1,
     1},
    {WEFT_OP_EMA, 4, {S(3, 5), S(3, 5), SCALAR_IN, SCALAR_IN}, 0, 0.5, 1, 1},
};

const op_case *op_cases(int *count)
{
    *count = (int)(sizeof table / sizeof *table);
    return table;
}

double case_value(const op_case *c, int i, int64_t index)
{
    if (!weft_dtype_is_float(c->in[i].dtype))
        return (double)(c->in[i].ints ? c->in[i].ints[index] : index * 7 % 3);
    const double unit =
        (double)weft_random_uniform((uint64_t)(c->op * 16 + i), WEFT_RNG_TEST, (uint64_t)index);
    return (double)(float)(c->lo + (c->hi - c->lo) * unit); /* f32 kernels see the same */
}

weft_graph *case_graph(const op_case *c, unsigned pending)
{
    weft_graph *g = weft_graph_create();
    weft_value in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < c->in_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        weft_shape shape = c->in[i].shape;
        if (shape.rank < 0) {
            in[i] = WEFT_NONE;
            continue;
        }
        if (!(pending >> i & 1)) {
            in[i] = c->in[i].fixed ? weft_state(g, name, c->in[i].dtype, shape, (weft_init){0})
                                   : weft_input(g, name, c->in[i].dtype, shape);
            continue;
        }
        weft_shape terms = {.rank = shape.rank + 1, .dim = {3}};
        memcpy(terms.dim + 1, shape.dim, (size_t)shape.rank * sizeof *shape.dim);
        in[i] = weft_reshape(g, weft_sum(g, weft_input(g, name, c->in[i].dtype, terms), 1), shape);
    }
    weft_emit_all(g, c->op, in, c->in_count, c->attr, out);
    for (int o = 0; o < WEFT_MAX_OUTPUTS && weft_value_ok(out[o]); o++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", o);
        weft_output(g, name, out[o]);
    }
    weft_value loss = WEFT_NONE;
    for (int o = 0; !c->no_gradient && o < WEFT_MAX_OUTPUTS && weft_value_ok(out[o]); o++) {
        char name[16];
        snprintf(name, sizeof name, o ? "w%d" : "w", o);
        const weft_value w = weft_input(g, name, WEFT_F32, weft_value_get(g, out[o])->shape);
        /* the log-sum-exp of a query that sees nothing is -inf */
        const weft_value bounded = o ? weft_clamp(g, out[o], -50, 50) : out[o];
        const weft_value term = weft_sum_all(g, weft_mul(g, bounded, w));
        loss = o ? weft_add(g, loss, term) : term;
    }
    if (weft_value_ok(loss))
        weft_output(g, "loss", loss);
    return g;
}

double case_fill(void *user, const char *name, weft_dtype dtype, int64_t index)
{
    const op_case *c = user;
    (void)dtype;
    if (name[0] == 'w')
        return 0.5 + (double)weft_random_uniform(99, WEFT_RNG_TEST, (uint64_t)index);
    const int i = name[2] - '0';
    /* Terms of a pending sum: the value, and two that cancel. */
    const int64_t count = weft_shape_count(&c->in[i].shape), term = index / count;
    const double value = case_value(c, i, index % count);
    return term == 0 ? value : term == 1 ? 0.25 * value : -0.25 * value;
}
