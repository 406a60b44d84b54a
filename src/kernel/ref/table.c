/* One row per op, filled through op.def: an op without a row here does not compile. */
#include "kernel/ref/ref.h"

#define RUNTIME_OWN                                                                                \
    {                                                                                              \
        0                                                                                          \
    } /* sources, aliases and layout conversions: the runtime does them itself */

#define K_INPUT    RUNTIME_OWN
#define K_PARAM    RUNTIME_OWN
#define K_STATE    RUNTIME_OWN
#define K_CONSTANT RUNTIME_OWN
#define K_FILL                                                                                     \
    {                                                                                              \
        .run = ref_fill                                                                            \
    }
#define K_RANDOM_NORMAL                                                                            \
    {                                                                                              \
        .run = ref_random_normal                                                                   \
    }
#define K_RANDOM_UNIFORM                                                                           \
    {                                                                                              \
        .run = ref_random_uniform                                                                  \
    }
#define K_NEG                                                                                      \
    {                                                                                              \
        .run = ref_neg, .in_place = 1                                                              \
    }
#define K_AFFINE                                                                                   \
    {                                                                                              \
        .run = ref_affine, .in_place = 1                                                           \
    }
#define K_CAST                                                                                     \
    {                                                                                              \
        .run = ref_cast                                                                            \
    }
#define K_EXP                                                                                      \
    {                                                                                              \
        .run = ref_exp, .in_place = 1                                                              \
    }
#define K_LOG                                                                                      \
    {                                                                                              \
        .run = ref_log, .in_place = 1                                                              \
    }
#define K_SQRT                                                                                     \
    {                                                                                              \
        .run = ref_sqrt, .in_place = 1                                                             \
    }
#define K_RSQRT                                                                                    \
    {                                                                                              \
        .run = ref_rsqrt, .in_place = 1                                                            \
    }
#define K_SQUARE                                                                                   \
    {                                                                                              \
        .run = ref_square, .in_place = 1                                                           \
    }
#define K_SIN                                                                                      \
    {                                                                                              \
        .run = ref_sin, .in_place = 1                                                              \
    }
#define K_COS                                                                                      \
    {                                                                                              \
        .run = ref_cos, .in_place = 1                                                              \
    }
#define K_TANH                                                                                     \
    {                                                                                              \
        .run = ref_tanh, .in_place = 1                                                             \
    }
#define K_SIGMOID                                                                                  \
    {                                                                                              \
        .run = ref_sigmoid, .in_place = 1                                                          \
    }
#define K_SILU                                                                                     \
    {                                                                                              \
        .run = ref_silu, .in_place = 1                                                             \
    }
#define K_SILU_GRAD                                                                                \
    {                                                                                              \
        .run = ref_silu_grad, .in_place = 3                                                        \
    }
#define K_GELU                                                                                     \
    {                                                                                              \
        .run = ref_gelu, .in_place = 1                                                             \
    }
#define K_GELU_GRAD                                                                                \
    {                                                                                              \
        .run = ref_gelu_grad, .in_place = 3                                                        \
    }
#define K_CLAMP                                                                                    \
    {                                                                                              \
        .run = ref_clamp, .in_place = 1                                                            \
    }
#define K_CLAMP_GRAD                                                                               \
    {                                                                                              \
        .run = ref_clamp_grad, .in_place = 3                                                       \
    }
#define K_ADD                                                                                      \
    {                                                                                              \
        .run = ref_add                                                                             \
    }
#define K_SUB                                                                                      \
    {                                                                                              \
        .run = ref_sub                                                                             \
    }
#define K_MUL                                                                                      \
    {                                                                                              \
        .run = ref_mul                                                                             \
    }
#define K_DIV                                                                                      \
    {                                                                                              \
        .run = ref_div                                                                             \
    }
#define K_SUM                                                                                      \
    {                                                                                              \
        .run = ref_sum                                                                             \
    }
#define K_BROADCAST                                                                                \
    {                                                                                              \
        .run = ref_broadcast                                                                       \
    }
#define K_RESHAPE RUNTIME_OWN
#define K_PERMUTE                                                                                  \
    {                                                                                              \
        .run = ref_permute                                                                         \
    }
#define K_SLICE                                                                                    \
    {                                                                                              \
        .run = ref_slice                                                                           \
    }
#define K_PAD                                                                                      \
    {                                                                                              \
        .run = ref_pad                                                                             \
    }
#define K_CONCAT                                                                                   \
    {                                                                                              \
        .run = ref_concat                                                                          \
    }
#define K_MATMUL                                                                                   \
    {                                                                                              \
        .run = ref_matmul                                                                          \
    }
#define K_LINEAR                                                                                   \
    {                                                                                              \
        .run = ref_linear                                                                          \
    }
#define K_CONV3D                                                                                   \
    {                                                                                              \
        .run = ref_conv3d                                                                          \
    }
#define K_CONV3D_DX                                                                                \
    {                                                                                              \
        .run = ref_conv3d_dx                                                                       \
    }
#define K_CONV3D_DW                                                                                \
    {                                                                                              \
        .run = ref_conv3d_dw                                                                       \
    }
#define K_ATTENTION                                                                                \
    {                                                                                              \
        .run = ref_attention, .workspace = ref_attention_workspace                                 \
    }
#define K_ATTENTION_GRAD                                                                           \
    {                                                                                              \
        .run = ref_attention_grad, .workspace = ref_attention_grad_workspace                       \
    }
#define K_ATTENTION_MERGE                                                                          \
    {                                                                                              \
        .run = ref_attention_merge                                                                 \
    }
#define K_ATTENTION_MERGE_GRAD                                                                     \
    {                                                                                              \
        .run = ref_attention_merge_grad                                                            \
    }
#define K_LAYER_NORM                                                                               \
    {                                                                                              \
        .run = ref_layer_norm                                                                      \
    }
#define K_LAYER_NORM_GRAD                                                                          \
    {                                                                                              \
        .run = ref_layer_norm_grad                                                                 \
    }
#define K_RMS_NORM                                                                                 \
    {                                                                                              \
        .run = ref_rms_norm                                                                        \
    }
#define K_RMS_NORM_GRAD                                                                            \
    {                                                                                              \
        .run = ref_rms_norm_grad                                                                   \
    }
#define K_MODULATE                                                                                 \
    {                                                                                              \
        .run = ref_modulate                                                                        \
    }
#define K_MODULATE_GRAD                                                                            \
    {                                                                                              \
        .run = ref_modulate_grad                                                                   \
    }
#define K_GATED_ADD                                                                                \
    {                                                                                              \
        .run = ref_gated_add                                                                       \
    }
#define K_GATED_ADD_GRAD                                                                           \
    {                                                                                              \
        .run = ref_gated_add_grad                                                                  \
    }
#define K_ROPE                                                                                     \
    {                                                                                              \
        .run = ref_rope                                                                            \
    }
#define K_EMBED                                                                                    \
    {                                                                                              \
        .run = ref_embed                                                                           \
    }
#define K_EMBED_GRAD                                                                               \
    {                                                                                              \
        .run = ref_embed_grad                                                                      \
    }
#define K_SUM_SQUARES                                                                              \
    {                                                                                              \
        .run = ref_sum_squares                                                                     \
    }
#define K_CLIP_SCALE                                                                               \
    {                                                                                              \
        .run = ref_clip_scale                                                                      \
    }
#define K_ADAMW                                                                                    \
    {                                                                                              \
        .run = ref_adamw, .in_place = 1                                                            \
    }
#define K_EMA                                                                                      \
    {                                                                                              \
        .run = ref_ema, .in_place = 1                                                              \
    }
#define K_VARY           RUNTIME_OWN
#define K_ALL_REDUCE     RUNTIME_OWN
#define K_ALL_GATHER     RUNTIME_OWN
#define K_REDUCE_SCATTER RUNTIME_OWN
#define K_SLICE_OWN      RUNTIME_OWN
#define K_ALL_TO_ALL     RUNTIME_OWN
#define K_RING_SHIFT     RUNTIME_OWN

const weft_backend weft_backend_ref = {
    .name = "ref",
    .kernel =
        {
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = K_##ENUM,
#include "graph/op.def"
#undef WEFT_OP
        },
};
