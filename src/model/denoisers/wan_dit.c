/* Wan 2.1 and 2.2 diffusion transformers (diffusers' WanTransformer3DModel): text to video, image
 * to video, first and last frame. Parameters have the names of the public diffusers checkpoints.
 *
 *   latents --patch--> x (B,S,C) --[ layers x block ]--> norm, modulate, project
 *           --unpatch--> prediction
 *   timestep --sinusoid, MLP--> temb (B,C) --silu, linear--> six modulations per block (B,6,C)
 *   text --MLP--> context (B,L,C); an image's tokens likewise, for image to video
 *
 *   block:  x += gate1 attn(mod1(norm x))
 *           x += cross(norm x, context)
 *           x += gate2 ffn(mod2(norm x))
 *
 * Shape letters: B batch, S video tokens, L text tokens, C width, D head width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

typedef struct wan_dit {
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
} wan_dit;
_Static_assert(sizeof(wan_dit) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

/* Conditioning of every block. */
typedef struct condition {
    weft_value time;       /* (B,1,C), or (B,S,1,C) with a timestep per token */
    weft_value modulation; /* (B,6,C), or (B,S,6,C) */
    weft_value text_blc, image_blc;
} condition;

/* cos and sin of 3D rotary positions, (S, D/2): Y and X get floor(D/6) of the head's pairs each. */
static void rope_tables(weft_graph *g, const wan_dit *c, const int64_t size[3],
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t pairs = c->head_dim / 2, side = c->head_dim / 6;
    const weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                       .step = {1, 1, 1},
                                       .grid = {size[0], size[1], size[2]},
                                       .pairs = {pairs - 2 * side, side, side},
                                       .len = size[0] * size[1] * size[2]};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
}

/* Cross-attention to the image tokens: separate keys and values for the same queries. The result is
 * added to the attention to the text. */
static weft_value attend_image(weft_graph *g, const wan_dit *c, weft_value q_bsc,
                               weft_value image_blc)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_value v = weft_nn_linear(g, "add_v_proj", image_blc, width, WEFT_LINEAR_XAVIER);
    weft_value k = weft_nn_linear(g, "add_k_proj", image_blc, width, WEFT_LINEAR_XAVIER);
    k = weft_nn_rms_norm(g, "norm_added_k", k, c->eps);
    return weft_nn_attention(g, q_bsc, k, v, c->heads, NULL);
}

/* Self-attention if context is x itself (rope present), otherwise cross-attention. `image_blc`
 * WEFT_NONE: no image. */
static weft_value attention(weft_graph *g, const wan_dit *c, const char *name, weft_value x_bsc,
                            weft_value context_blc, weft_value image_blc, const weft_value *rope)
{
    const int64_t width = c->heads * c->head_dim;
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_linear(g, "to_q", x_bsc, width, WEFT_LINEAR_XAVIER);
    weft_value k = weft_nn_linear(g, "to_k", context_blc, width, WEFT_LINEAR_XAVIER);
    const weft_value v = weft_nn_linear(g, "to_v", context_blc, width, WEFT_LINEAR_XAVIER);
    q = weft_nn_rms_norm(g, "norm_q", q, c->eps);
    k = weft_nn_rms_norm(g, "norm_k", k, c->eps);
    weft_value mixed = weft_nn_attention(g, q, k, v, c->heads, rope);
    if (weft_value_ok(image_blc))
        mixed = weft_add(g, mixed, attend_image(g, c, q, image_blc));
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

static weft_value modulation_table(weft_graph *g, const wan_dit *c, int64_t rows)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 1.0 / sqrt((double)width)};
    return weft_param(g, "scale_shift_table", WEFT_F32, WEFT_SHAPE(1, rows, width), init);
}

/* `modulation` of the conditioning: (B,6,C), or (B,S,6,C) with a timestep per token. */
static weft_value block(weft_graph *g, const wan_dit *c, weft_value x_bsc, const condition *to,
                        const weft_value *rope)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 };
    const weft_value mod = weft_add(g, to->modulation, modulation_table(g, c, 6));

    weft_value h = weft_nn_modulate(g, weft_nn_plain_norm(g, x_bsc, c->eps),
                                    weft_nn_row(g, mod, SCALE1), weft_nn_row(g, mod, SHIFT1));
    h = attention(g, c, "attn1", h, h, WEFT_NONE, rope);
    x_bsc = weft_nn_gated_add(g, x_bsc, h, weft_nn_row(g, mod, GATE1));

    h = c->cross_attn_norm ? weft_nn_layer_norm(g, "norm2", x_bsc, c->eps) : x_bsc;
    x_bsc = weft_add(g, x_bsc, attention(g, c, "attn2", h, to->text_blc, to->image_blc, NULL));

    h = weft_nn_modulate(g, weft_nn_plain_norm(g, x_bsc, c->eps), weft_nn_row(g, mod, SCALE2),
                         weft_nn_row(g, mod, SHIFT2));
    h = weft_nn_feed_forward(g, "ffn", h, c->ffn_dim, WEFT_NN_GELU_TANH);
    return weft_nn_gated_add(g, x_bsc, h, weft_nn_row(g, mod, GATE2));
}

/* Image tokens (B,L,image_dim) -> (B,L,C). The tokens of two images per sample are concatenated and
 * have learned positions. */
static weft_value embed_image(weft_graph *g, const wan_dit *c, weft_value image_bld)
{
    const double eps = 1e-5;
    weft_graph_push(g, "image_embedder");
    if (c->image_positions)
        image_bld = weft_add(g, image_bld,
                             weft_param(g, "pos_embed", WEFT_F32,
                                        WEFT_SHAPE(1, c->image_positions, c->image_dim),
                                        (weft_init){.kind = WEFT_INIT_ZERO}));
    weft_value h = weft_nn_layer_norm(g, "norm1", image_bld, eps);
    weft_graph_push(g, "ff.net");
    h = weft_nn_linear(g, "0.proj", h, c->image_dim, WEFT_LINEAR_XAVIER);
    h = weft_nn_activate(g, WEFT_NN_GELU_ERF, h);
    h = weft_nn_linear(g, "2", h, c->heads * c->head_dim, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    h = weft_nn_layer_norm(g, "norm2", h, eps);
    weft_graph_pop(g);
    return h;
}

static condition embed_condition(weft_graph *g, const wan_dit *c, const weft_ports *in)
{
    const int64_t width = c->heads * c->head_dim;
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    const int64_t batch = weft_dim(g, t, 0);
    const bool per_token = weft_value_ok(t) && weft_value_get(g, t)->shape.rank == 2;
    condition to = {.image_blc = WEFT_NONE};
    weft_graph_push(g, "condition_embedder");
    to.time = weft_nn_embedder(g, "time_embedder", weft_nn_sinusoid(g, c->freq_dim, t), width,
                               WEFT_NN_SILU);
    to.modulation = weft_nn_linear(g, "time_proj", weft_unary(g, WEFT_OP_SILU, to.time), 6 * width,
                                   WEFT_LINEAR_XAVIER);
    to.modulation = weft_reshape(g, to.modulation,
                                 per_token ? WEFT_SHAPE(batch, weft_dim(g, t, 1), 6, width)
                                           : WEFT_SHAPE(batch, 6, width));
    to.time = weft_reshape(g, to.time,
                           per_token ? WEFT_SHAPE(batch, weft_dim(g, t, 1), 1, width)
                                     : WEFT_SHAPE(batch, 1, width));
    to.text_blc =
        weft_nn_embedder(g, "text_embedder", in->at[WEFT_PORT_TEXT], width, WEFT_NN_GELU_TANH);
    if (c->image_dim)
        to.image_blc = embed_image(g, c, in->at[WEFT_PORT_IMAGE]);
    weft_graph_pop(g);
    return to;
}

/* Sets the number of tokens along each side. Returns false if the latents do not fit. */
static bool count_tokens(weft_graph *g, const wan_dit *c, const weft_ports *in, int64_t size[3])
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], c->patch, size);
    for (int i = 0; i < 3; i++)
        if (size[i] > c->rope_max_seq_len)
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "%" PRId64 " patches along %s exceed rope_max_seq_len %" PRId64,
                            size[i], (const char *[]){"T", "Y", "X"}[i], c->rope_max_seq_len);
    const int64_t tokens = size[0] * size[1] * size[2];
    if (weft_value_ok(t) && weft_value_get(g, t)->shape.rank == 2 && weft_dim(g, t, 1) != tokens)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "%" PRId64 " timesteps for %" PRId64 " tokens",
                        weft_dim(g, t, 1), tokens);
    return weft_graph_check(g) == WEFT_OK;
}

/* latents (B,T,Y,X,in), timestep (B) or (B,S) in [0, 1000], text (B,L,text_dim), image
 * (B,L,image_dim) -> prediction (B,T,Y,X,out). T, Y, X must be multiples of the patch. */
static weft_value forward(weft_graph *g, const wan_dit *c, const weft_ports *in)
{
    const int64_t width = c->heads * c->head_dim;
    int64_t size[3];
    weft_value rope[WEFT_MAX_OUTPUTS];
    if (!count_tokens(g, c, in, size))
        return WEFT_NONE;
    rope_tables(g, c, size, rope);
    weft_value x = weft_nn_patch(g, "patch_embedding", in->at[WEFT_PORT_LATENTS], width, c->patch,
                                 WEFT_PATCH_3D, true);
    const condition to = embed_condition(g, c, in);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        x = block(g, c, x, &to, rope);
        weft_graph_pop(g);
    }
    const weft_value mod = weft_add(g, to.time, modulation_table(g, c, 2)); /* shift, scale */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, 1),
                         weft_nn_row(g, mod, 0));
    x = weft_nn_linear(g, "proj_out", x, c->patch[0] * c->patch[1] * c->patch[2] * c->out_channels,
                       WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, x, size, c->patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const wan_dit *c = config;
    if (c->head_dim % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "attention_head_dim", c->head_dim),
                          "%" PRId64 " is not even, which rotary embedding needs", c->head_dim);
    const int64_t width = c->heads * c->head_dim;
    if ((c->image_dim != 0) != (c->image_kv_dim != 0) || (c->image_dim && c->image_kv_dim != width))
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "added_kv_proj_dim", c->image_kv_dim),
            "with image tokens (\"image_dim\") this is the model's width %" PRId64 "; "
            "without, both are null",
            width);
    if (c->image_positions && !c->image_dim)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "pos_embed_seq_len", c->image_positions),
                          "positions of image tokens need \"image_dim\", which is null");
    return WEFT_OK;
}

/* Default number of tokens of CLIP's vision transformer. */
static const int64_t clip_tokens = 257;

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const wan_dit *c = config;
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_IMAGE:
        return c->image_dim ? WEFT_SHAPE(s->batch,
                                         c->image_positions ? c->image_positions
                                         : s->image         ? s->image
                                                            : clip_tokens,
                                         c->image_dim)
                            : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const wan_dit *c = config;
    for (int i = 0; i < 3; i++)
        grid->factor[i] = c->patch[i];
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

/* Without latents on extra channels, given frames replace noisy latents (2.2 TI2V-5B). */
static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const wan_dit *c = config;
    const bool channels = c->in_channels > c->out_channels;
    *cond = (weft_frame_condition){.form = channels ? WEFT_FRAME_CONDITION_CHANNELS
                                                    : WEFT_FRAME_CONDITION_TIMES,
                                   .marks = channels,
                                   .grey = channels,
                                   .last = channels,
                                   .last_must = channels && c->image_positions,
                                   .asks = !channels};
}

/* clang-format off */
#define AT(member) offsetof(wan_dit, member)
static const weft_field fields[] = {
    {"patch_size", WEFT_FIELD_I64S, AT(patch), "[1, 2, 2]", 1, 64, .capacity = 3,
     .length = weft_three, .help = "latent frames, rows and columns of one token"},
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "40", 1, 1024,
     .help = "attention heads; heads x head width is the model's width"},
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "128", 2, 4096,
     .help = "width of a head, even"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "16", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "input channels of latents"},
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "=in_channels", 1, 1 << 16,
     .help = "output channels of latents"},
    {"text_dim", WEFT_FIELD_I64, AT(text_dim), "4096", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"freq_dim", WEFT_FIELD_I64, AT(freq_dim), "256", 2, 1 << 16,
     .help = "width of the sinusoidal time embedding, even"},
    {"ffn_dim", WEFT_FIELD_I64, AT(ffn_dim), "13824", 1, 1 << 20,
     .help = "inner width of the feed-forward layer"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "40", 0, 1024, .help = "blocks"},
    {"cross_attn_norm", WEFT_FIELD_BOOL, AT(cross_attn_norm), "true",
     .help = "a norm before cross-attention"},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm_across_heads\""},
    {"eps", WEFT_FIELD_F64, AT(eps), "1e-6", 0, 1, .help = "epsilon of the norms"},
    {"image_dim", WEFT_FIELD_I64, AT(image_dim), "null", 1, 1 << 16,
     .help = "width of image tokens; null: no image input"},
    {"added_kv_proj_dim", WEFT_FIELD_I64, AT(image_kv_dim), "null", 1, 1 << 20,
     .help = "the model's width with image_dim, else null"},
    {"rope_max_seq_len", WEFT_FIELD_I64, AT(rope_max_seq_len), "1024", 1, 1 << 20,
     .help = "maximum patches along a side"},
    {"pos_embed_seq_len", WEFT_FIELD_I64, AT(image_positions), "null", 1, 1 << 20,
     .help = "learned positions of the tokens of a first and a last image; null: none"},
};

static const weft_named_config sizes[] = {
    {"wan-1.3b", "{\"num_attention_heads\": 12, \"ffn_dim\": 8960, \"num_layers\": 30}"},
    {"wan-14b",  "{}"},
    {"wan-i2v-14b", "{\"in_channels\": 36, \"out_channels\": 16, \"image_dim\": 1280,"
                    " \"added_kv_proj_dim\": 5120}"},
    {"wan-flf2v-14b", "{\"in_channels\": 36, \"out_channels\": 16, \"image_dim\": 1280,"
                      " \"added_kv_proj_dim\": 5120, \"pos_embed_seq_len\": 514}"},
    {"wan2.2-i2v-a14b", "{\"in_channels\": 36, \"out_channels\": 16}"},
    {"wan2.2-ti2v-5b", "{\"num_attention_heads\": 24, \"in_channels\": 48,"
                       " \"out_channels\": 48, \"ffn_dim\": 14336, \"num_layers\": 30}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_IMAGE,      false, "encoder_hidden_states_image"},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

/* Key mapping of Wan's own files. Their norm3 is the norm before the attention to the text. */
static const weft_rename_rule original[] = {
    {"time_embedding.0",   "condition_embedder.time_embedder.linear_1"},
    {"time_embedding.2",   "condition_embedder.time_embedder.linear_2"},
    {"text_embedding.0",   "condition_embedder.text_embedder.linear_1"},
    {"text_embedding.2",   "condition_embedder.text_embedder.linear_2"},
    {"time_projection.1",  "condition_embedder.time_proj"},
    {"self_attn.q",        "attn1.to_q"},
    {"self_attn.k",        "attn1.to_k"},
    {"self_attn.v",        "attn1.to_v"},
    {"self_attn.o",        "attn1.to_out.0"},
    {"self_attn",          "attn1"},
    {"cross_attn.q",       "attn2.to_q"},
    {"cross_attn.k",       "attn2.to_k"},
    {"cross_attn.v",       "attn2.to_v"},
    {"cross_attn.o",       "attn2.to_out.0"},
    {"cross_attn.k_img",   "attn2.add_k_proj"},
    {"cross_attn.v_img",   "attn2.add_v_proj"},
    {"cross_attn.norm_k_img", "attn2.norm_added_k"},
    {"cross_attn",         "attn2"},
    {"img_emb.proj.0",     "condition_embedder.image_embedder.norm1"},
    {"img_emb.proj.1",     "condition_embedder.image_embedder.ff.net.0.proj"},
    {"img_emb.proj.3",     "condition_embedder.image_embedder.ff.net.2"},
    {"img_emb.proj.4",     "condition_embedder.image_embedder.norm2"},
    {"img_emb.emb_pos",    "condition_embedder.image_embedder.pos_embed"},
    {"ffn.0",              "ffn.net.0.proj"},
    {"ffn.2",              "ffn.net.2"},
    {"norm3",              "norm2"},
    {"head.modulation",    "scale_shift_table"},
    {"blocks.#.modulation", "blocks.#.scale_shift_table"},
    {"head.head",          "proj_out"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "blocks.0.ffn.net.0.proj.weight", NULL, 0},
    {"original", "head.modulation", original, sizeof original / sizeof *original},
};

/* ---- recipes: names are those of a model with or without a scope around it ---- */

/* Tensor parallel (Shoeybi et al., Megatron-LM): q, k, v and the first feed-forward linear are
 * split by columns, the following linears `to_out` and `ffn.net.2` by rows, with a reduction. The
 * norms of q and k run over all heads and need a sum over ranks. */
#define TOKENS {WEFT_S, 1}
#define ALL {WEFT_R, 0}
#define TENSOR_PARALLEL(axis, behind)                                   \
    {"*attn*.to_q.weight",       axis, {WEFT_S, 0}},                    \
    {"*attn*.to_q.bias",         axis, {WEFT_S, 0}},                    \
    {"*attn*.to_k.weight",       axis, {WEFT_S, 0}},                    \
    {"*attn*.to_k.bias",         axis, {WEFT_S, 0}},                    \
    {"*attn*.to_v.weight",       axis, {WEFT_S, 0}},                    \
    {"*attn*.to_v.bias",         axis, {WEFT_S, 0}},                    \
    {"*attn*.norm_q.weight",     axis, {WEFT_S, 0}},                    \
    {"*attn*.norm_k.weight",     axis, {WEFT_S, 0}},                    \
    {"*attn*.add_k_proj.weight", axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.add_k_proj.bias",   axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.add_v_proj.weight", axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.add_v_proj.bias",   axis, {WEFT_S, 0}, .optional = true},  \
    {"*attn*.norm_added_k.weight", axis, {WEFT_S, 0}, .optional = true},\
    {"*attn*.to_out.0.weight",   axis, {WEFT_S, 1}},                    \
    {"*.ffn.net.0.proj.weight",  axis, {WEFT_S, 0}},                    \
    {"*.ffn.net.0.proj.bias",    axis, {WEFT_S, 0}},                    \
    {"*.ffn.net.2.weight",       axis, {WEFT_S, 1}},                    \
    {"*attn*.to_out.0:linear",   axis, behind},                         \
    {"*.ffn.net.2:linear",       axis, behind}

static const weft_recipe_row tp_rows[] = {
    TENSOR_PARALLEL("tp", ALL),
};

/* Context parallel (Jacobs et al., DeepSpeed-Ulysses): tokens are split from the first norm onward.
 * An all-to-all before self-attention turns the split of tokens into a split of heads, and another
 * one turns it back. */
static const weft_recipe_row cp_rows[] = {
    {"*blocks.*:layer_norm",     "cp", {WEFT_S, 1}},
    {"*attn*:attention",         "cp", {WEFT_S, 1}},
};

/* Ring attention (Liu et al.): keys and values circulate and heads stay unsplit, so ranks may
 * outnumber heads. Communication is hidden behind attention. Every rank has the text's keys. */
static const weft_recipe_row ring_rows[] = {
    {"*blocks.*:layer_norm",     "ring", {WEFT_S, 1}},
    {"*attn1*:attention",        "ring", {WEFT_S, 1}, .by = "ring"},
    {"*attn*:attention",         "ring", {WEFT_S, 1}},
};

/* Tensor parallel with sequence parallelism (Korthikanti et al., MLSys'23): norms and residuals
 * work on local tokens. The output of a row-split linear is reduce-scattered, and gathered before
 * the next linear. */
static const weft_recipe_row sp_rows[] = {
    TENSOR_PARALLEL("sp", TOKENS),
    {"*blocks.*:layer_norm",     "sp", {WEFT_S, 1}},
};

/* If two axes split one dim, the first axis is the outer one: heads by tp, then by cp; tokens by
 * ring, then by cp. The cp ranks then share one block of the ring. */
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp   = LIST("tp",   "tensor parallel",                     tp_rows),
    ring = LIST("ring", "context parallel, keys go round",     ring_rows),
    cp   = LIST("cp",   "context parallel, tokens into heads", cp_rows),
    sp   = LIST("sp",   "tensor parallel, tokens in between",  sp_rows);
static const weft_recipe_list *const recipes[] = {&tp, &ring, &cp, &sp};

/* The encoder has no mask: zeros after the text are attended to. */
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .clean = WEFT_CLEAN_PROMPT,
     .zeros = true},
};

/* Feature cache rules: TeaCache's polynomials and thresholds as published, on the timestep
 * modulation of the blocks, with the first tenth of the steps computed. Other sizes: the change of
 * the first block's residual, measured on a model of six blocks (bench/README.md). */
static bool is_1_3b(const void *config)
{
    const wan_dit *c = config;
    return c->layers == 30 && c->heads == 12 && !c->image_dim;
}
static bool is_14b(const void *config)
{
    const wan_dit *c = config;
    return c->layers == 40 && c->heads == 40 && c->in_channels == c->out_channels;
}
static bool is_i2v_14b(const void *config)
{
    const wan_dit *c = config;
    return c->layers == 40 && c->heads == 40 && c->in_channels > c->out_channels;
}
static const weft_feature_cache_row caches[] = {
    {is_1_3b, 0, WEFT_SIGNAL_TIME,
     {-5.21862437e4, 9.23041404e3, -5.28275948e2, 1.36987616e1, -4.99875664e-2}, 0.05, 0.1, 0.1},
    {is_14b, 0, WEFT_SIGNAL_TIME,
     {-3.03318725e5, 4.90537029e4, -2.65530556e3, 5.87365115e1, -3.15583525e-1}, 0.1, 0.2, 0.1},
    {is_i2v_14b, 1280 * 720, WEFT_SIGNAL_TIME,
     {8.10705460e3, 2.13393892e3, -3.72934672e2, 1.66203073e1, -4.17769401e-2}, 0.2, 0.3, 0.1},
    {is_i2v_14b, 0, WEFT_SIGNAL_TIME,
     {2.57151496e5, -3.54229917e4, 1.40286849e3, -1.35890334e1, 1.32517977e-1}, 0.2, 0.3, 0.1},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_wan_dit = {
    .class_name = "WanTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "WanPipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"num_attention_heads", "freq_dim"},
    .config_bytes = sizeof(wan_dit), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "I2V: first frame, optionally with a last one; FLF2V: both; "
                            "TI2V-5B: first frame",
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .recipe = recipes, .recipes = sizeof recipes / sizeof *recipes,
};
/* clang-format on */
