/* Hunyuan-DiT (diffusers' HunyuanDiT2DModel), text to image, up to 1.1 and 1.2. Parameters have
 * the names of the public checkpoints.
 *
 *   latents --patch--> x (B,S,C); projected text of CLIP and T5, concatenated: y (B,L,C')
 *   timestep --MLP--> + MLP of [T5's text pooled, sizes and style up to 1.1] --> temb (B,C)
 *   long skips from the first half of the blocks to the second: x = linear(norm [x, skip])
 *
 *   block:  x += attn(norm1 x + linear silu temb);  x += cross(norm2 x, y);  x += ffn(norm3 x)
 *
 * Learned embeddings replace padding in the texts.
 * Shape letters: B batch, S image tokens, L text tokens, C width, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

#include <math.h>

typedef struct hunyuan_dit {
    int64_t heads, head_dim, in_channels, patch, sample, width, layers;
    double mlp_ratio;
    bool sigma;
    int64_t clip_dim, t5_dim, pooled_dim, clip_length, t5_length;
    bool style;
} hunyuan_dit;
_Static_assert(sizeof(hunyuan_dit) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

enum { TIME_WIDTH = 256, POOL_HEADS = 8, SIZES = 6, MAX_SKIPS = 256 };
static const double eps = 1e-6;

static int64_t out_of(const hunyuan_dit *c)
{
    return c->sigma ? 2 * c->in_channels : c->in_channels;
}

/* ---- conditioning --------------------------------------------------------------------------- */

/* Attention pooling of T5's text (B,L,D): the mean attends to itself and to the tokens, with
 * learned positions. */
static weft_value pool(weft_graph *g, const hunyuan_dit *c, weft_value text_bld)
{
    const int64_t d = c->t5_dim, batch = weft_dim(g, text_bld, 0);
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 1 / sqrt((double)d)};
    weft_graph_push(g, "pooler");
    weft_value x = weft_concat(g, (weft_value[]){weft_mean(g, text_bld, 1u << 1), text_bld}, 2, 1);
    x = weft_add(
        g, x,
        weft_param(g, "positional_embedding", WEFT_F32, WEFT_SHAPE(c->t5_length + 1, d), small));
    const weft_value q = weft_nn_linear(g, "q_proj", weft_slice(g, x, 1, 0, 1), d,
                                        WEFT_LINEAR_XAVIER),
                     k = weft_nn_linear(g, "k_proj", x, d, WEFT_LINEAR_XAVIER),
                     v = weft_nn_linear(g, "v_proj", x, d, WEFT_LINEAR_XAVIER);
    const weft_value out = weft_nn_attention(g, q, k, v, POOL_HEADS, NULL);
    const weft_value pooled = weft_nn_linear(
        g, "c_proj", weft_reshape(g, out, WEFT_SHAPE(batch, d)), c->pooled_dim, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return pooled;
}

/* first (4 times as wide), silu, second */
static weft_value widened(weft_graph *g, const char *name, weft_value x, int64_t inner, int64_t out)
{
    weft_graph_push(g, "%s", name);
    x = weft_unary(g, WEFT_OP_SILU, weft_nn_linear(g, "linear_1", x, inner, WEFT_LINEAR_XAVIER));
    x = weft_nn_linear(g, "linear_2", x, out, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return x;
}

static weft_value embed_condition(weft_graph *g, const hunyuan_dit *c, const weft_ports *in)
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    const int64_t batch = weft_dim(g, t, 0);
    weft_graph_push(g, "time_extra_emb");
    const weft_value time = weft_nn_embedder(
        g, "timestep_embedder", weft_nn_sinusoid(g, TIME_WIDTH, t), c->width, WEFT_NN_SILU);
    weft_value extra = pool(g, c, in->at[WEFT_PORT_TEXT2]);
    if (c->style) {
        const weft_value sizes = weft_nn_sinusoid(g, TIME_WIDTH, in->at[WEFT_PORT_SIZES]);
        const weft_value table =
            weft_param(g, "style_embedder.weight", WEFT_F32, WEFT_SHAPE(1, c->width),
                       (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.02});
        const weft_value style =
            weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, in->at[WEFT_PORT_LABEL]}, 2, NULL);
        extra = weft_concat(
            g,
            (weft_value[]){extra, weft_reshape(g, sizes, WEFT_SHAPE(batch, SIZES * TIME_WIDTH)),
                           style},
            3, 1);
    }
    extra = widened(g, "extra_embedder", extra, 4 * c->width, c->width);
    weft_graph_pop(g);
    return weft_add(g, time, extra);
}

static weft_value embed_text(weft_graph *g, const hunyuan_dit *c, const weft_ports *in)
{
    const int64_t all = c->clip_length + c->t5_length,
                  batch = weft_dim(g, in->at[WEFT_PORT_TEXT], 0);
    const weft_value t5 =
        widened(g, "text_embedder", in->at[WEFT_PORT_TEXT2], 4 * c->t5_dim, c->clip_dim);
    const weft_value text = weft_concat(g, (weft_value[]){in->at[WEFT_PORT_TEXT], t5}, 2, 1);
    const weft_value padding =
        weft_param(g, "text_embedding_padding", WEFT_F32, WEFT_SHAPE(all, c->clip_dim),
                   (weft_init){.kind = WEFT_INIT_NORMAL, .value = 0.02});
    weft_value mask[2];
    for (int i = 0; i < 2; i++) {
        const weft_value m = in->at[i ? WEFT_PORT_TEXT2_MASK : WEFT_PORT_TEXT_MASK];
        mask[i] =
            weft_value_ok(m)
                ? weft_cast(g, m, WEFT_F32)
                : weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, i ? c->t5_length : c->clip_length), 1);
    }
    const weft_value real = weft_reshape(g, weft_concat(g, mask, 2, 1), WEFT_SHAPE(batch, all, 1));
    return weft_add(g, weft_mul(g, text, real), weft_mul(g, padding, weft_affine(g, real, -1, 1)));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* RoPE: columns rotate the first half of a head, rows the second. Positions are those of a
 * 512-pixel image, or of the model's smaller size. */
static void rope_tables(weft_graph *g, const hunyuan_dit *c, const int64_t size[3],
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const int64_t own = c->sample / c->patch, trained = 512 / 8 / c->patch, pairs = c->head_dim / 4;
    const int64_t side = own < trained ? own : trained, base[2] = {side, side};
    weft_attr_rope_table attr = {.theta = {1, 10000, 10000},
                                 .grid = {1, size[1], size[2]},
                                 .pairs = {0, pairs, pairs},
                                 .len = size[1] * size[2]};
    weft_nn_fit_positions(size + 1, base, attr.origin + 1, attr.step + 1);
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, cos_sin);
    for (int i = 0; i < 2; i++)
        cos_sin[i] = weft_concat(g,
                                 (weft_value[]){weft_slice(g, cos_sin[i], 1, pairs, pairs),
                                                weft_slice(g, cos_sin[i], 1, 0, pairs)},
                                 2, 1);
}

/* Keys are rotated in self-attention only. */
static weft_value attention(weft_graph *g, const hunyuan_dit *c, const char *name, weft_value x_bsc,
                            weft_value context_blc, bool self, const weft_value *rope)
{
    weft_graph_push(g, "%s", name);
    weft_value q = weft_nn_split_heads(
                   g, weft_nn_linear(g, "to_q", x_bsc, c->width, WEFT_LINEAR_XAVIER), c->heads),
               k = weft_nn_split_heads(
                   g, weft_nn_linear(g, "to_k", context_blc, c->width, WEFT_LINEAR_XAVIER),
                   c->heads),
               v = weft_nn_split_heads(
                   g, weft_nn_linear(g, "to_v", context_blc, c->width, WEFT_LINEAR_XAVIER),
                   c->heads);
    q = weft_nn_rope(g, weft_nn_layer_norm(g, "norm_q", q, eps), rope, false);
    k = weft_nn_layer_norm(g, "norm_k", k, eps);
    if (self)
        k = weft_nn_rope(g, k, rope, false);
    const weft_value mixed = weft_nn_join_heads(g, weft_nn_attend(g, q, k, v, WEFT_NONE));
    const weft_value out = weft_nn_linear(g, "to_out.0", mixed, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

/* `skip` WEFT_NONE: no long skip. */
static weft_value block(weft_graph *g, const hunyuan_dit *c, weft_value x, weft_value skip,
                        weft_value temb_bc, weft_value text, const weft_value *rope)
{
    if (weft_value_ok(skip)) {
        x = weft_nn_layer_norm(g, "skip_norm", weft_concat(g, (weft_value[]){x, skip}, 2, 2), eps);
        x = weft_nn_linear(g, "skip_linear", x, c->width, WEFT_LINEAR_XAVIER);
    }
    weft_graph_push(g, "norm1");
    const weft_value shift = weft_nn_linear(g, "linear", weft_unary(g, WEFT_OP_SILU, temb_bc),
                                            c->width, WEFT_LINEAR_XAVIER);
    weft_value h = weft_add(g, weft_nn_layer_norm(g, "norm", x, eps),
                            weft_reshape(g, shift, WEFT_SHAPE(weft_dim(g, shift, 0), 1, c->width)));
    weft_graph_pop(g);
    x = weft_add(g, x, attention(g, c, "attn1", h, h, true, rope));
    h = weft_nn_layer_norm(g, "norm2", x, eps);
    x = weft_add(g, x, attention(g, c, "attn2", h, text, false, rope));
    h = weft_nn_layer_norm(g, "norm3", x, eps);
    return weft_add(g, x,
                    weft_nn_feed_forward(g, "ff", h, (int64_t)((double)c->width * c->mlp_ratio),
                                         WEFT_NN_GELU_TANH));
}

static weft_value finish(weft_graph *g, const hunyuan_dit *c, weft_value x, weft_value temb_bc,
                         const int64_t size[3], const int64_t patch[3])
{
    weft_graph_push(g, "norm_out");
    weft_value mod = weft_nn_linear(g, "linear", weft_unary(g, WEFT_OP_SILU, temb_bc), 2 * c->width,
                                    WEFT_LINEAR_XAVIER);
    mod = weft_reshape(g, mod, WEFT_SHAPE(weft_dim(g, mod, 0), 2, c->width)); /* scale, shift */
    x = weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), weft_nn_row(g, mod, 0),
                         weft_nn_row(g, mod, 1));
    weft_graph_pop(g);
    x = weft_nn_linear(g, "proj_out", x, c->patch * c->patch * out_of(c), WEFT_LINEAR_ZERO);
    return weft_nn_unpatch(g, x, size, patch);
}

static weft_value forward(weft_graph *g, const hunyuan_dit *c, const weft_ports *in)
{
    const int64_t patch[3] = {1, c->patch, c->patch}, half = c->layers / 2;
    int64_t size[3];
    weft_value rope[WEFT_MAX_OUTPUTS], skip[MAX_SKIPS];
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    if (size[0] != 1)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE, "Hunyuan-DiT makes one frame, not %" PRId64,
                               size[0]);
    if (weft_dim(g, in->at[WEFT_PORT_TEXT], 1) != c->clip_length)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "%" PRId64 " tokens of text; this model takes %" PRId64,
                               weft_dim(g, in->at[WEFT_PORT_TEXT], 1), c->clip_length);
    rope_tables(g, c, size, rope);
    weft_value x = weft_nn_patch(g, "pos_embed.proj", in->at[WEFT_PORT_LATENTS], c->width, patch,
                                 WEFT_PATCH_2D, true);
    const weft_value temb_bc = embed_condition(g, c, in), text = embed_text(g, c, in);
    int64_t kept = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        x = block(g, c, x, i > half ? skip[--kept] : WEFT_NONE, temb_bc, text, rope);
        weft_graph_pop(g);
        if (i < half - 1)
            skip[kept++] = x;
    }
    return finish(g, c, x, temb_bc, size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const hunyuan_dit *c = config;
    if (c->heads * c->head_dim != c->width || c->head_dim % 4)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "hidden_size", c->width),
                          "%" PRId64 " is not \"num_attention_heads\" %" PRId64
                          " x \"attention_head_dim\" %" PRId64 ", "
                          "or the latter is not a multiple of 4",
                          c->width, c->heads, c->head_dim);
    if (c->layers % 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "num_layers", c->layers),
                          "%" PRId64 " is not even", c->layers);
    if (c->t5_dim % POOL_HEADS)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "cross_attention_dim_t5", c->t5_dim),
            "%" PRId64 " is not a multiple of the %d heads of the pooling", c->t5_dim, POOL_HEADS);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hunyuan_dit *c = config;
    switch (port) {
    case WEFT_PORT_TEXT2: return WEFT_SHAPE(s->batch, c->t5_length, c->t5_dim);
    case WEFT_PORT_TEXT2_MASK: return WEFT_SHAPE(s->batch, c->t5_length);
    case WEFT_PORT_SIZES: return c->style ? WEFT_SHAPE(s->batch, SIZES) : WEFT_SCALAR;
    case WEFT_PORT_LABEL: return c->style ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels, c->clip_dim);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const hunyuan_dit *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = out_of(c);
    grid->only[0] = 1;
    grid->text = c->clip_length;
}

static int64_t width_field(const void *config)
{
    const hunyuan_dit *c = config;
    return c->heads * c->head_dim;
}

/* clang-format off */
#define AT(member) offsetof(hunyuan_dit, member)
static const weft_field fields[] = {
    {"num_attention_heads", WEFT_FIELD_I64, AT(heads), "16", 1, 1024, .help = "attention heads"},
    {"attention_head_dim", WEFT_FIELD_I64, AT(head_dim), "88", 4, 4096,
     .help = "width of a head, a multiple of 4"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "4", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "latent channels"},
    WEFT_PATCH_FIELD(AT(patch), "2"),
    {"activation_fn", WEFT_FIELD_FIXED, .fallback = "\"gelu-approximate\""},
    {"sample_size", WEFT_FIELD_I64, AT(sample), "32", 1, 1 << 16,
     .help = "side of the latents that the model was made for"},
    {"hidden_size", WEFT_FIELD_I64, AT(width), .length = width_field, .min = 4, .max = 1 << 20,
     .help = "width: heads x head width"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "28", 0, MAX_SKIPS,
     .help = "blocks, even; the second half has skip connections from the first"},
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "4.0"),
    {"learn_sigma", WEFT_FIELD_BOOL, AT(sigma), "true",
     .help = "twice the output channels; the second half is not used"},
    {"cross_attention_dim", WEFT_FIELD_I64, AT(clip_dim), "1024", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the first encoder's embeddings"},
    {"norm_type", WEFT_FIELD_FIXED, .fallback = "\"layer_norm\""},
    {"cross_attention_dim_t5", WEFT_FIELD_I64, AT(t5_dim), "2048", 8, 1 << 16,
     .help = "width of the second encoder's embeddings, a multiple of 8"},
    {"pooled_projection_dim", WEFT_FIELD_I64, AT(pooled_dim), "1024", 1, 1 << 16,
     .help = "width of the second encoder's pooled embedding"},
    {"text_len", WEFT_FIELD_I64, AT(clip_length), "77", 1, 1 << 16,
     .help = "tokens of the first encoder"},
    {"text_len_t5", WEFT_FIELD_I64, AT(t5_length), "256", 1, 1 << 16,
     .help = "tokens of the second encoder"},
    {"use_style_cond_and_image_meta_size", WEFT_FIELD_BOOL, AT(style), "true",
     .help = "the style and the image's sizes are inputs (up to 1.1)"},
};

#define PUBLIC "\"sample_size\": 128, \"num_layers\": 40, \"mlp_ratio\": 4.3637"
static const weft_named_config sizes[] = {
    {"hunyuan-dit-1.1", "{" PUBLIC "}"},
    {"hunyuan-dit-1.2", "{" PUBLIC ", \"use_style_cond_and_image_meta_size\": false}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "text_embedding_mask", .optional = true},
    {WEFT_PORT_TEXT2,      false, "encoder_hidden_states_t5"},
    {WEFT_PORT_TEXT2_MASK, false, "text_embedding_mask_t5", .optional = true},
    {WEFT_PORT_SIZES,      false, "image_meta_size"},
    {WEFT_PORT_LABEL,      false, "style"},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "time_extra_emb.pooler.positional_embedding", NULL, 0},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 77},
    {"text_encoder_2", "tokenizer_2", WEFT_PORT_TEXT2, WEFT_PORT_TEXT2_MASK},
};

const weft_family weft_family_hunyuan_dit = {
    .class_name = "HunyuanDiT2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "HunyuanDiTPipeline",
    .autoencoder = "sdxl-vae", .frames = 1,
    .marks = {"cross_attention_dim_t5", "text_len_t5"},
    .config_bytes = sizeof(hunyuan_dit), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_per_head, .recipes = WEFT_SPLIT_CROSS_LISTS,
};
/* clang-format on */
