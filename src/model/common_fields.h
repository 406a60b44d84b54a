/* Rows of config keys that several families share, each with its limits and help. `at` is the
 * offset of the member, `fallback_` the family's public default as JSON. */
#ifndef WEFT_MODEL_COMMON_FIELDS_H
#define WEFT_MODEL_COMMON_FIELDS_H

#include "model/family.h"

/* clang-format off */
/* ---- transformers ---------------------------------------------------------------------------- */

#define WEFT_HEADS_FIELD(at, fallback_)                                                           \
    {"num_attention_heads", WEFT_FIELD_I64, at, fallback_, 1, 1024,                               \
     .help = "attention heads; heads x head width is the model's width"}
#define WEFT_HEAD_WIDTH_FIELD(at, fallback_)                                                      \
    {"attention_head_dim", WEFT_FIELD_I64, at, fallback_, 2, 4096, .help = "width of a head"}
#define WEFT_BLOCKS_FIELD(at, fallback_)                                                          \
    {"num_layers", WEFT_FIELD_I64, at, fallback_, 0, 1024, .help = "blocks"}
#define WEFT_MLP_RATIO_FIELD(at, fallback_)                                                       \
    {"mlp_ratio", WEFT_FIELD_F64, at, fallback_, 0.01, 64,                                        \
     .help = "inner width of the feed-forward layers over the model's width"}
#define WEFT_NORM_EPS_FIELD(at, fallback_)                                                        \
    {"norm_eps", WEFT_FIELD_F64, at, fallback_, 0, 1, .help = "epsilon of the norms"}
#define WEFT_PATCH_FIELD(at, fallback_)                                                           \
    {"patch_size", WEFT_FIELD_I64, at, fallback_, 1, 64,                                          \
     .help = "latent rows and columns of a token"}
#define WEFT_PATCH_SIDES_FIELD(at, fallback_)                                                     \
    {"patch_size", WEFT_FIELD_I64S, at, fallback_, 1, 64, .capacity = 3, .length = weft_three,    \
     .help = "latent frames, rows and columns of one token"}
#define WEFT_ROPE_AXES_FIELD(at, fallback_)                                                       \
    {"axes_dims_rope", WEFT_FIELD_I64S, at, fallback_, 0, 4096, .capacity = 3,                    \
     .length = weft_three,                                                                        \
     .help = "channels of a head that RoPE rotates by frames, rows and columns"}
#define WEFT_LATENTS_IN_FIELD(at, fallback_)                                                      \
    {"in_channels", WEFT_FIELD_I64, at, fallback_, 1, 1 << 16,                                    \
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "input channels of latents"}
#define WEFT_LATENTS_OUT_FIELD(at, fallback_)                                                     \
    {"out_channels", WEFT_FIELD_I64, at, fallback_, 1, 1 << 16,                                   \
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "output channels of latents"}
#define WEFT_TEXT_WIDTH_FIELD(key_, at, fallback_)                                                \
    {key_, WEFT_FIELD_I64, at, fallback_, 1, 1 << 16,                                             \
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"}

/* ---- autoencoders ---------------------------------------------------------------------------- */

#define WEFT_VIDEO_IN_FIELD(at, fallback_)                                                        \
    {"in_channels", WEFT_FIELD_I64, at, fallback_, 1, 64, .help = "channels of the video"}
#define WEFT_VIDEO_OUT_FIELD(at, fallback_)                                                       \
    {"out_channels", WEFT_FIELD_I64, at, fallback_, 1, 64, .help = "channels of the video"}
#define WEFT_LATENT_CHANNELS_FIELD(at, fallback_, most)                                           \
    {"latent_channels", WEFT_FIELD_I64, at, fallback_, 1, most, .help = "latent channels"}
#define WEFT_SCALE_FIELD(at, fallback_)                                                           \
    {"scaling_factor", WEFT_FIELD_F64, at, fallback_, 1e-30, 1e30, .help = "factor on latents"}
#define WEFT_LEVEL_BLOCKS_FIELD(at, fallback_)                                                    \
    {"layers_per_block", WEFT_FIELD_I64, at, fallback_, 1, 64,                                    \
     .help = "residual blocks per level"}
#define WEFT_NORM_GROUPS_FIELD(at, fallback_)                                                     \
    {"norm_num_groups", WEFT_FIELD_I64, at, fallback_, 1, 65536,                                  \
     .help = "groups of the group norms"}
/* clang-format on */

#endif
