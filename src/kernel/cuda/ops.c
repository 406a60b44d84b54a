/* The table of ops. */
#include "kernel/cuda/ops.h"

#include "kernel/cuda/op_attention.h"
#include "kernel/cuda/op_blocks.h"
#include "kernel/cuda/op_conv.h"
#include "kernel/cuda/op_modulation.h"
#include "kernel/cuda/op_moves.h"
#include "kernel/cuda/op_norms.h"
#include "kernel/cuda/op_optimizer.h"
#include "kernel/cuda/op_pointwise.h"
#include "kernel/cuda/op_products.h"
#include "kernel/cuda/op_reduce.h"
#include "kernel/cuda/op_tables.h"

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
    [WEFT_OP_POINTWISE] = {weft_cuda_pointwise, weft_cuda_pointwise_workspace},
    [WEFT_OP_FILL] = {weft_cuda_fill},
    [WEFT_OP_BROADCAST] = {weft_cuda_broadcast},
    [WEFT_OP_PERMUTE] = {weft_cuda_permute},
    [WEFT_OP_SLICE] = {weft_cuda_slice},
    [WEFT_OP_PAD] = {weft_cuda_pad},
    [WEFT_OP_CONCAT] = {weft_cuda_concat},
    [WEFT_OP_SUM] = {weft_cuda_sum_dims, weft_cuda_sum_workspace},
    [WEFT_OP_SUM_SQUARES] = {weft_cuda_sum_squares, weft_cuda_sum_squares_workspace},
    [WEFT_OP_LAYER_NORM] = {weft_cuda_norm},
    [WEFT_OP_RMS_NORM] = {weft_cuda_norm},
    [WEFT_OP_LAYER_NORM_GRAD] = {weft_cuda_norm_grad, weft_cuda_norm_grad_workspace},
    [WEFT_OP_RMS_NORM_GRAD] = {weft_cuda_norm_grad, weft_cuda_norm_grad_workspace},
    [WEFT_OP_SOFTMAX] = {weft_cuda_softmax},
    [WEFT_OP_MODULATE] = {weft_cuda_modulate},
    [WEFT_OP_MODULATE_GRAD] = {weft_cuda_modulate_grad, weft_cuda_modulate_grad_workspace},
    [WEFT_OP_GATED_ADD] = {weft_cuda_modulate},
    [WEFT_OP_GATED_ADD_GRAD] = {weft_cuda_gated_add_grad, weft_cuda_gated_add_grad_workspace},
    [WEFT_OP_ROPE] = {weft_cuda_rope},
    [WEFT_OP_ROPE_TABLE] = {weft_cuda_rope_table},
    [WEFT_OP_RANDOM_NORMAL] = {weft_cuda_random},
    [WEFT_OP_RANDOM_UNIFORM] = {weft_cuda_random},
    [WEFT_OP_EMBED] = {weft_cuda_embed},
    [WEFT_OP_EMBED_GRAD] = {weft_cuda_embed_grad},
    [WEFT_OP_UNPACK] = {weft_cuda_unpack},
    [WEFT_OP_TOP_K] = {weft_cuda_top_k},
    [WEFT_OP_PICK] = {weft_cuda_pick},
    [WEFT_OP_PICK_GRAD] = {weft_cuda_pick_grad},
    [WEFT_OP_EXPERT_SLOTS] = {weft_cuda_route, weft_cuda_route_workspace},
    [WEFT_OP_DISPATCH] = {weft_cuda_route, weft_cuda_route_workspace},
    [WEFT_OP_COLLECT] = {weft_cuda_route, weft_cuda_route_workspace},
    [WEFT_OP_CLIP_SCALE] = {weft_cuda_clip_scale},
    [WEFT_OP_ADAMW] = {weft_cuda_adamw},
    [WEFT_OP_EMA] = {weft_cuda_ema},
    [WEFT_OP_MATMUL] = {weft_cuda_matmul, weft_cuda_matmul_workspace},
    [WEFT_OP_LINEAR] = {weft_cuda_linear, weft_cuda_linear_workspace},
    [WEFT_OP_EXPERT_MATMUL] = {weft_cuda_expert_matmul, weft_cuda_expert_matmul_workspace},
    [WEFT_OP_EXPERT_MATMUL_DW] = {weft_cuda_expert_matmul_dw, weft_cuda_expert_matmul_workspace},
    [WEFT_OP_CONV3D] = {weft_cuda_conv3d, weft_cuda_conv3d_workspace},
    [WEFT_OP_CONV3D_DX] = {weft_cuda_conv3d_dx, weft_cuda_conv3d_workspace},
    [WEFT_OP_CONV3D_DW] = {weft_cuda_conv3d_dw, weft_cuda_conv3d_workspace},
    [WEFT_OP_ATTENTION] = {weft_cuda_attention},
    [WEFT_OP_ATTENTION_GRAD] = {weft_cuda_attention_grad, weft_cuda_attention_grad_workspace},
    [WEFT_OP_BLOCK_ATTENTION] = {weft_cuda_block_attention},
    [WEFT_OP_BLOCK_ATTENTION_GRAD] = {weft_cuda_block_attention_grad,
                                      weft_cuda_attention_grad_workspace},
    [WEFT_OP_TOP_P] = {weft_cuda_top_p, weft_cuda_top_workspace},
    [WEFT_OP_TOP_SHARE] = {weft_cuda_top_share, weft_cuda_top_workspace},
    [WEFT_OP_ATTENTION_MERGE] = {weft_cuda_attention_merge},
    [WEFT_OP_ATTENTION_MERGE_GRAD] = {weft_cuda_attention_merge_grad},
};
