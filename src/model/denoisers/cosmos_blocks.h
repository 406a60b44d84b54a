/* The blocks of Cosmos' diffusion transformers (cosmos_dit.c), which the control branch of Transfer
 * 2.5 has as well (cosmos_control.c).
 *
 * Shape letters: B batch, S video tokens, T, Y, X frames, rows, columns, L text tokens, N image
 * tokens, C width. */
#ifndef WEFT_MODEL_DENOISERS_COSMOS_BLOCKS_H
#define WEFT_MODEL_DENOISERS_COSMOS_BLOCKS_H

#include "model/common_fields.h"
#include "nn/nn.h"

typedef struct weft_cosmos {
    int64_t heads, head_dim;
    double mlp_ratio;
    int64_t text_dim, lora_dim;
    int64_t most[3], patch[3];
    double rope_scale[3];
    int64_t pos_embed; /* enum weft_cosmos_pos_embed */
    bool project;      /* projects texts (2.5) */
    int64_t project_from, project_to;
    /* Width of the image tokens, and of their projection. 0: no image tokens */
    int64_t image_dim, image_to;
} weft_cosmos;

typedef enum weft_cosmos_pos_embed {
    WEFT_COSMOS_POS_EMBED_LEARNED,
    WEFT_COSMOS_POS_EMBED_NONE,
} weft_cosmos_pos_embed;
extern const char *const weft_cosmos_pos_embed_words[];

/* Padding mask pixels per latent side. */
enum { WEFT_COSMOS_PIXELS = 8 };

/* Inputs of all blocks of a network. */
typedef struct weft_cosmos_condition {
    int64_t size[3];     /* tokens along frames, rows, columns */
    weft_value embedded; /* silu of the normed sinusoid: (B,C) or (B,T,C) */
    weft_value temb;     /* (B,3C) or (B,T,3C) */
    int64_t frames;      /* 0: one timestep for all frames */
    weft_value rope[WEFT_MAX_OUTPUTS];
    weft_value positions; /* learned, (1,S,C), added before every block; WEFT_NONE: none */
    weft_value text_blc;
    weft_value image_bnc; /* WEFT_NONE: none */
} weft_cosmos_condition;

int64_t weft_cosmos_width(const weft_cosmos *c);
/* Embeds timestep, positions, text and image of the ports. `to->size` is set. */
void weft_cosmos_embed(weft_graph *g, const weft_cosmos *c, const weft_ports *in,
                       weft_cosmos_condition *to);
/* x (B,S,C) -> (B,S,C) */
weft_value weft_cosmos_block(weft_graph *g, const weft_cosmos *c, weft_value x_bsc,
                             const weft_cosmos_condition *to);
/* The last norm with its modulation, of the scope "norm_out". */
weft_value weft_cosmos_last_norm(weft_graph *g, const weft_cosmos *c, weft_value x_bsc,
                                 const weft_cosmos_condition *to);

/* The marks of given frames (B,T,Y,X,1), zeros without WEFT_PORT_CONDITION. */
weft_value weft_cosmos_marks(weft_graph *g, const weft_ports *in);
/* The padding mask at every latent (B,T,Y,X,1), zeros without WEFT_PORT_PADDING. */
weft_value weft_cosmos_padding(weft_graph *g, const weft_ports *in);

/* Rejects widths that do not fit together. */
weft_status weft_cosmos_check(const weft_cosmos *c, const weft_config_locations *locations);

/* clang-format off */
/* Rows of the fields of a weft_cosmos at offset `at` of a config. */
#define WEFT_COSMOS_FIELDS(at, pos_embed_)                                                         \
    WEFT_HEADS_FIELD((at) + offsetof(weft_cosmos, heads), "32"),                                   \
    WEFT_HEAD_WIDTH_FIELD((at) + offsetof(weft_cosmos, head_dim), "128"),                          \
    WEFT_MLP_RATIO_FIELD((at) + offsetof(weft_cosmos, mlp_ratio), "4.0"),                          \
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", (at) + offsetof(weft_cosmos, text_dim), "1024"),       \
    {"adaln_lora_dim", WEFT_FIELD_I64, (at) + offsetof(weft_cosmos, lora_dim), "256", 1, 1 << 16,  \
     .help = "inner width of the norms' low-rank modulation"},                                     \
    {"max_size", WEFT_FIELD_I64S, (at) + offsetof(weft_cosmos, most), "[128, 240, 240]", 1,        \
     1 << 16, .capacity = 3, .length = weft_three,                                                 \
     .help = "latent frames, rows and columns that learned positions are for"},                    \
    WEFT_PATCH_SIDES_FIELD((at) + offsetof(weft_cosmos, patch), "[1, 2, 2]"),                      \
    {"rope_scale", WEFT_FIELD_F64S, (at) + offsetof(weft_cosmos, rope_scale), "[2.0, 1.0, 1.0]",   \
     1e-3, 1e3, .capacity = 3, .length = weft_three,                                               \
     .help = "extension of rotary positions along frames, rows and columns"},                      \
    {"extra_pos_embed_type", WEFT_FIELD_WORD, (at) + offsetof(weft_cosmos, pos_embed), pos_embed_, \
     .words = weft_cosmos_pos_embed_words,                                                         \
     .help = "learned positions, added before every block (1.0)"},                                 \
    {"use_crossattn_projection", WEFT_FIELD_BOOL, (at) + offsetof(weft_cosmos, project), "false",  \
     .help = "a linear layer between the text embeddings and the model (2.5)"},                    \
    {"crossattn_proj_in_channels", WEFT_FIELD_I64, (at) + offsetof(weft_cosmos, project_from),     \
     "1024", 1, 1 << 20, .help = "input width of this layer"},                                     \
    {"encoder_hidden_states_channels", WEFT_FIELD_I64, (at) + offsetof(weft_cosmos, project_to),   \
     "1024", 1, 1 << 20, .help = "output width of this layer"},                                    \
    {"img_context_dim_in", WEFT_FIELD_I64, (at) + offsetof(weft_cosmos, image_dim), "null", 0,     \
     1 << 16, .help = "width of image tokens (Transfer 2.5); null: none"},                         \
    {"img_context_dim_out", WEFT_FIELD_I64, (at) + offsetof(weft_cosmos, image_to), "2048", 1,     \
     1 << 16, .help = "width of the projected image tokens, the width of the model"}
/* clang-format on */

#endif
