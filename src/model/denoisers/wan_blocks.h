/* Blocks, config fields and recipes of Wan's diffusion transformers, for the families derived from
 * them, with diffusers' names.
 *
 *   block:  x += gate1 attn(mod1(norm x))
 *           x += cross(norm x, context)
 *           x += gate2 ffn(mod2(norm x))
 *
 * Shape letters: B batch, S video tokens, T frames of tokens, L text tokens, C width. */
#ifndef WEFT_MODEL_DENOISERS_WAN_BLOCKS_H
#define WEFT_MODEL_DENOISERS_WAN_BLOCKS_H

#include "model/family.h"
#include "nn/nn.h"

/* The config of a derived family begins with this. */
typedef struct weft_wan {
    int64_t patch[3]; /* T, Y, X */
    int64_t heads, head_dim;
    int64_t in_channels, out_channels;
    int64_t text_dim, freq_dim, ffn_dim, layers;
    bool cross_attn_norm;
    double eps;
    int64_t rope_max_seq_len;
    int64_t image_dim;       /* width of image tokens; 0: no image branch */
    int64_t image_kv_dim;    /* input width of the image keys and values; the model's width */
    int64_t image_positions; /* learned positions of a sample's image tokens; 0: none */
} weft_wan;

/* Conditioning of every block. */
typedef struct weft_wan_condition {
    weft_value time;       /* (B,1,C), or (B,N,1,C) with a timestep per token or frame */
    weft_value modulation; /* (B,6,C), or (B,N,6,C) */
    weft_value text_blc, image_blc;
    weft_value rope[WEFT_MAX_OUTPUTS];
    int64_t frames; /* the N timesteps are of frames; 0: one timestep, or one per token */
    /* Self-attention: tokens of a block of frames, which attends to itself and to earlier blocks.
     * 0: all tokens attend to all. */
    int64_t block_tokens;
    /* Tokens that a block attends to, its own included; 0: all. The video's first `sink_tokens` are
     * among them. `clean_tokens`: first tokens, of the video without noise, as many as
     * of the noisy video; a noisy block attends to itself and to earlier clean blocks. 0: none. */
    int64_t window_tokens, sink_tokens, clean_tokens;
    const struct weft_frame_cache *cache; /* the tokens are one block; NULL: a complete video */
    int64_t layer;                        /* set by weft_wan_blocks */
    const weft_packed_rows *packed;       /* NULL: each item of the batch is a sample */
} weft_wan_condition;

/* Sets the number of tokens along each side. Returns false if the latents do not fit. */
bool weft_wan_count_tokens(weft_graph *g, const weft_wan *c, weft_value latents, int64_t size[3]);
/* cos and sin of 3D rotary positions, (S, D/2). Frames are `time_step` positions apart. */
void weft_wan_rope(weft_graph *g, const weft_wan *c, const int64_t size[3], double time_step,
                   weft_value cos_sin[WEFT_MAX_OUTPUTS]);
/* cos and sin of the last `block` of size[0] frames. */
void weft_wan_rope_of_block(weft_graph *g, const weft_wan *c, const int64_t size[3], int64_t block,
                            weft_value cos_sin[WEFT_MAX_OUTPUTS]);
/* cos and sin of tokens at the positions i32 (R,S) of frames, rows and columns: (R,S,1,D/2). */
void weft_wan_rope_at(weft_graph *g, const weft_wan *c, const weft_value position[3],
                      double time_step, weft_value cos_sin[WEFT_MAX_OUTPUTS]);
/* Sinusoid of the timesteps (B) or (B,N): (B,width) or (B,N,width). */
weft_value weft_wan_sinusoid(weft_graph *g, const weft_wan *c, weft_value timestep);
/* Sinusoid with frequencies computed in f64. */
weft_value weft_wan_sinusoid_f64(weft_graph *g, const weft_wan *c, weft_value timestep);
/* Embeds the sinusoid of the timesteps, the text and the image: all of `to` but the positions. */
void weft_wan_embed(weft_graph *g, const weft_wan *c, weft_value sinusoid, const weft_ports *in,
                    weft_wan_condition *to);
/* "scale_shift_table", (1,rows,C). */
weft_value weft_wan_table(weft_graph *g, const weft_wan *c, int64_t rows);
weft_value weft_wan_block(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                          const weft_wan_condition *to);
/* Runs "blocks.0", "blocks.1" and so on. */
weft_value weft_wan_blocks(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                           const weft_wan_condition *to);
/* Last norm and projection: (B,S,C) to latents. */
weft_value weft_wan_last(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                         const weft_wan_condition *to, const int64_t size[3]);
/* Like weft_wan_last, with a given modulation table (1,2,C). */
weft_value weft_wan_end(weft_graph *g, const weft_wan *c, weft_value x_bsc,
                        const weft_wan_condition *to, weft_value table, const int64_t size[3]);

/* Samples packed into rows of tokens: `in->packed` is set, and latents, timestep and text are as
 * weft_packed_rows describes. Otherwise:
 * The model of Wan: latents (B,T,Y,X,in), timestep (B) or (B,S) in [0, 1000], text (B,L,text_dim),
 * image (B,L,image_dim) -> prediction (B,T,Y,X,out). T, Y, X must be multiples of the patch. */
weft_value weft_wan_forward(weft_graph *g, const weft_wan *c, const weft_ports *in,
                            double time_step);

weft_status weft_wan_check(const void *config, const weft_config_locations *locations);
weft_shape weft_wan_shape(const void *config, const weft_model_size *s, weft_port port);
void weft_wan_grid(const void *config, weft_grid *grid);
/* The frame condition of models with latents of given frames, or none, on extra channels. */
void weft_wan_frame_condition(const void *config, weft_frame_condition *cond);

/* clang-format off */
/* Fields of every config, with the defaults that differ between the families. */
#define WEFT_WAN_BLOCK_FIELDS(default_heads, default_ffn, default_layers)                          \
    WEFT_WAN_FIRST_FIELDS(default_heads),                                                          \
    {"in_channels", WEFT_FIELD_I64, offsetof(weft_wan, in_channels), "16", 1, 1 << 16,             \
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "input channels of latents"},          \
    {"out_channels", WEFT_FIELD_I64, offsetof(weft_wan, out_channels), "=in_channels", 1, 1 << 16, \
     .help = "output channels of latents"},                                                        \
    WEFT_WAN_LAST_FIELDS(default_ffn, default_layers)
/* The fields before and after the channels of latents. */
#define WEFT_WAN_FIRST_FIELDS(default_heads)                                                       \
    {"patch_size", WEFT_FIELD_I64S, offsetof(weft_wan, patch), "[1, 2, 2]", 1, 64,                 \
     .capacity = 3, .length = weft_three,                                                          \
     .help = "latent frames, rows and columns of one token"},                                      \
    {"num_attention_heads", WEFT_FIELD_I64, offsetof(weft_wan, heads), default_heads, 1, 1024,     \
     .help = "attention heads; heads x head width is the model's width"},                          \
    {"attention_head_dim", WEFT_FIELD_I64, offsetof(weft_wan, head_dim), "128", 2, 4096,           \
     .help = "width of a head, even"}
#define WEFT_WAN_LAST_FIELDS(default_ffn, default_layers)                                          \
    {"text_dim", WEFT_FIELD_I64, offsetof(weft_wan, text_dim), "4096", 1, 1 << 16,                 \
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},          \
    {"freq_dim", WEFT_FIELD_I64, offsetof(weft_wan, freq_dim), "256", 2, 1 << 16,                  \
     .help = "width of the sinusoidal time embedding, even"},                                      \
    {"ffn_dim", WEFT_FIELD_I64, offsetof(weft_wan, ffn_dim), default_ffn, 1, 1 << 20,              \
     .help = "inner width of the feed-forward layer"},                                             \
    {"num_layers", WEFT_FIELD_I64, offsetof(weft_wan, layers), default_layers, 0, 1024,            \
     .help = "blocks"},                                                                            \
    {"cross_attn_norm", WEFT_FIELD_BOOL, offsetof(weft_wan, cross_attn_norm), "true",              \
     .help = "a norm before cross-attention"},                                                     \
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm_across_heads\""},                        \
    {"eps", WEFT_FIELD_F64, offsetof(weft_wan, eps), "1e-6", 0, 1, .help = "epsilon of the norms"}
#define WEFT_WAN_IMAGE_FIELDS                                                                      \
    {"image_dim", WEFT_FIELD_I64, offsetof(weft_wan, image_dim), "null", 1, 1 << 16,               \
     .help = "width of image tokens; null: no image input"},                                       \
    {"added_kv_proj_dim", WEFT_FIELD_I64, offsetof(weft_wan, image_kv_dim), "null", 1, 1 << 20,    \
     .help = "the model's width with image_dim, else null"},                                       \
    {"rope_max_seq_len", WEFT_FIELD_I64, offsetof(weft_wan, rope_max_seq_len), "1024", 1, 1 << 20, \
     .help = "maximum patches along a side"},                                                      \
    {"pos_embed_seq_len", WEFT_FIELD_I64, offsetof(weft_wan, image_positions), "null", 1, 1 << 20, \
     .help = "learned positions of the tokens of a first and a last image; null: none"}
#define WEFT_WAN_FIELDS(default_heads, default_ffn, default_layers)                                \
    WEFT_WAN_BLOCK_FIELDS(default_heads, default_ffn, default_layers),                             \
    WEFT_WAN_IMAGE_FIELDS

/* Ports of every family. */
#define WEFT_WAN_PORTS                                                                             \
    {WEFT_PORT_LATENTS,    false, "hidden_states"},                                                \
    {WEFT_PORT_TIMESTEP,   false, "timestep"},                                                     \
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},                                        \
    {WEFT_PORT_IMAGE,      false, "encoder_hidden_states_image"},                                  \
    {WEFT_PORT_PREDICTION, true,  "sample"}

/* Key mapping of Wan's own files, without the last modulation. Their norm3 is the norm before the
 * attention to the text. */
#define WEFT_WAN_ORIGINAL_BLOCKS                                                                   \
    {"time_embedding.0",   "condition_embedder.time_embedder.linear_1"},                           \
    {"time_embedding.2",   "condition_embedder.time_embedder.linear_2"},                           \
    {"text_embedding.0",   "condition_embedder.text_embedder.linear_1"},                           \
    {"text_embedding.2",   "condition_embedder.text_embedder.linear_2"},                           \
    {"time_projection.1",  "condition_embedder.time_proj"},                                        \
    {"self_attn.q",        "attn1.to_q"},                                                          \
    {"self_attn.k",        "attn1.to_k"},                                                          \
    {"self_attn.v",        "attn1.to_v"},                                                          \
    {"self_attn.o",        "attn1.to_out.0"},                                                      \
    {"self_attn",          "attn1"},                                                               \
    {"cross_attn.q",       "attn2.to_q"},                                                          \
    {"cross_attn.k",       "attn2.to_k"},                                                          \
    {"cross_attn.v",       "attn2.to_v"},                                                          \
    {"cross_attn.o",       "attn2.to_out.0"},                                                      \
    {"cross_attn.k_img",   "attn2.add_k_proj"},                                                    \
    {"cross_attn.v_img",   "attn2.add_v_proj"},                                                    \
    {"cross_attn.norm_k_img", "attn2.norm_added_k"},                                               \
    {"cross_attn",         "attn2"},                                                               \
    {"img_emb.proj.0",     "condition_embedder.image_embedder.norm1"},                             \
    {"img_emb.proj.1",     "condition_embedder.image_embedder.ff.net.0.proj"},                     \
    {"img_emb.proj.3",     "condition_embedder.image_embedder.ff.net.2"},                          \
    {"img_emb.proj.4",     "condition_embedder.image_embedder.norm2"},                             \
    {"img_emb.emb_pos",    "condition_embedder.image_embedder.pos_embed"},                         \
    {"ffn.0",              "ffn.net.0.proj"},                                                      \
    {"ffn.2",              "ffn.net.2"},                                                           \
    {"norm3",              "norm2"},                                                               \
    {"blocks.#.modulation", "blocks.#.scale_shift_table"},                                         \
    {"head.head",          "proj_out"}
#define WEFT_WAN_ORIGINAL                                                                          \
    {"head.modulation",    "scale_shift_table"},                                                   \
    WEFT_WAN_ORIGINAL_BLOCKS
/* clang-format on */

/* tp, ring, cp, sp */
enum { WEFT_WAN_RECIPES = 4 };
extern const weft_recipe_list *const weft_wan_recipes[WEFT_WAN_RECIPES];

enum { WEFT_WAN_TEXT_ENCODERS = 1 };
extern const weft_text_encoder_row weft_wan_text_encoders[WEFT_WAN_TEXT_ENCODERS];

#endif
