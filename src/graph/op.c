#include "graph/op.h"

#include "graph/internal.h"

#include <assert.h>

static const weft_op_info table[WEFT_OP_COUNT] = {
#define WEFT_OP(ENUM, stem, in_min, in_max, out_max, attr, infer_fn, vjp_fn, layout_fn, local_fn,  \
                cost_fn, traits_word, mixed_word, WORK, position_word, chunk_word, cfg_word,       \
                origin_word, storage_word, over_inputs, f32, bf16)                                 \
    [WEFT_OP_##ENUM] = {.name = #stem,                                                             \
                        .min_inputs = in_min,                                                      \
                        .max_inputs = in_max,                                                      \
                        .max_outputs = out_max,                                                    \
                        .attr_bytes = (int64_t)sizeof(weft_attr_##attr),                           \
                        .print = weft_print_##attr,                                                \
                        .infer = weft_infer_##infer_fn,                                            \
                        .vjp = weft_vjp_##vjp_fn,                                                  \
                        .layout = weft_layout_##layout_fn,                                         \
                        .local = weft_local_##local_fn,                                            \
                        .cost = weft_cost_##cost_fn,                                               \
                        .traits = WEFT_TRAITS_##traits_word,                                       \
                        .mixed = WEFT_MIXED_##mixed_word,                                          \
                        .work = WEFT_WORK_##WORK,                                                  \
                        .position = WEFT_POSITION_##position_word,                                 \
                        .chunk = WEFT_CHUNK_##chunk_word,                                          \
                        .cfg = WEFT_CFG_##cfg_word,                                                \
                        .origin = WEFT_ORIGIN_##origin_word,                                       \
                        .storage = WEFT_STORAGE_##storage_word,                                    \
                        .over = over_inputs,                                                       \
                        .tolerance_f32 = f32,                                                      \
                        .tolerance_bf16 = bf16},
#include "graph/op.def"
};

const weft_op_info *weft_op_get(weft_op op)
{
    assert((unsigned)op < WEFT_OP_COUNT);
    return &table[op];
}

bool *weft_op_tf32(weft_op op, void *attr)
{
    switch (op) {
    case WEFT_OP_MATMUL: return &((weft_attr_matmul *)attr)->tf32;
    case WEFT_OP_LINEAR: return &((weft_attr_linear *)attr)->tf32;
    case WEFT_OP_CONV3D:
    case WEFT_OP_CONV3D_DX:
    case WEFT_OP_CONV3D_DW: return &((weft_attr_conv *)attr)->tf32;
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_GRAD:
    case WEFT_OP_BLOCK_ATTENTION:
    case WEFT_OP_BLOCK_ATTENTION_GRAD: return &((weft_attr_attention *)attr)->tf32;
    case WEFT_OP_EXPERT_MATMUL:
    case WEFT_OP_EXPERT_MATMUL_DW: return &((weft_attr_expert_matmul *)attr)->tf32;
    default: return NULL;
    }
}

double weft_op_tolerance(weft_op op, weft_dtype dtype, bool tf32)
{
    enum { BF16_PER_TF32 = 8 }; /* 10 bits against 7 */
    const weft_op_info *info = &table[op];
    if (dtype == WEFT_BF16 || dtype == WEFT_F16)
        return info->tolerance_bf16;
    return tf32 ? info->tolerance_bf16 / BF16_PER_TF32 : info->tolerance_f32;
}
