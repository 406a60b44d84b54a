/* The table of ops. */
#include "kernel/cuda/ops.h"

#include "kernel/cuda/op_moves.h"
#include "kernel/cuda/op_pointwise.h"

#define UNARY                                                                                      \
    {                                                                                              \
        weft_cuda_unary                                                                            \
    }
#define BINARY                                                                                     \
    {                                                                                              \
        weft_cuda_binary                                                                           \
    }

const weft_cuda_op weft_cuda_ops[WEFT_OP_COUNT] = {
    [WEFT_OP_STOP] = UNARY,
    [WEFT_OP_NEG] = UNARY,
    [WEFT_OP_AFFINE] = UNARY,
    [WEFT_OP_CAST] = UNARY,
    [WEFT_OP_EXP] = UNARY,
    [WEFT_OP_LOG] = UNARY,
    [WEFT_OP_SQRT] = UNARY,
    [WEFT_OP_RSQRT] = UNARY,
    [WEFT_OP_SQUARE] = UNARY,
    [WEFT_OP_SIN] = UNARY,
    [WEFT_OP_COS] = UNARY,
    [WEFT_OP_TANH] = UNARY,
    [WEFT_OP_SIGMOID] = UNARY,
    [WEFT_OP_SILU] = UNARY,
    [WEFT_OP_SILU_GRAD] = UNARY,
    [WEFT_OP_GELU] = UNARY,
    [WEFT_OP_GELU_GRAD] = UNARY,
    [WEFT_OP_CLAMP] = UNARY,
    [WEFT_OP_CLAMP_GRAD] = UNARY,
    [WEFT_OP_ADD] = BINARY,
    [WEFT_OP_SUB] = BINARY,
    [WEFT_OP_MUL] = BINARY,
    [WEFT_OP_DIV] = BINARY,
    [WEFT_OP_FILL] = {weft_cuda_fill},
    [WEFT_OP_BROADCAST] = {weft_cuda_broadcast},
    [WEFT_OP_PERMUTE] = {weft_cuda_permute},
    [WEFT_OP_SLICE] = {weft_cuda_slice},
    [WEFT_OP_PAD] = {weft_cuda_pad},
    [WEFT_OP_CONCAT] = {weft_cuda_concat},
};
