/* Flux 2 image transformers (diffusers' Flux2Transformer2DModel). Parameters have the names of the
 * public checkpoints. A token is one latent of the autoencoder, which packs 2x2 of its own.
 *
 *   latents --linear--> x (B,S,C); text --linear--> y (B,L,C)
 *   timestep, guidance --MLPs, summed--> temb (B,C)
 *   temb --> modulation of all double blocks' images, of their texts, and of all single blocks
 *   double blocks: each stream has its layers; single blocks: one layer for q, k, v and the
 *   feed-forward, applied to both streams
 *   x --> norm, modulate, project --> prediction
 *
 * No layer has a bias. Positions have four axes: frame, row and column of the image, and the token
 * of the text. Images to edit have the size of the image and follow it as more tokens, at the
 * frames 10, 20, ...
 * Shape letters: B batch, S image tokens, L text tokens, C width, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "model/tp_recipes.h"

#include <math.h>

enum { AXES = 4, IMAGE = 0, TEXT = 1, STREAMS = 2 };

typedef struct flux2 {
    int64_t in_channels, out_channels, layers, single_layers, head_dim, heads, text_dim;
    int64_t time_width, axes[AXES];
    double inner_ratio, theta, eps;
    bool guidance;
} flux2;
_Static_assert(sizeof(flux2) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static int64_t width_of(const flux2 *c)
{
    return c->heads * c->head_dim;
}

static int64_t inner_of(const flux2 *c)
{
    return (int64_t)((double)width_of(c) * c->inner_ratio);
}

static int64_t out_of(const flux2 *c)
{
    return c->out_channels ? c->out_channels : c->in_channels;
}

static weft_nn_layer plain(weft_graph *g, const char *name, int64_t in, int64_t out)
{
    return weft_nn_linear_of(g, name, in, out, false, WEFT_LINEAR_XAVIER);
}

/* cos and sin (1,count,1,D/2) of images of rows x columns tokens: their frames, rows and columns on
 * the first axes. `columns` 0: positions of the text on the last axis. */
static void rope_tables(weft_graph *g, const flux2 *c, int64_t count, int64_t rows, int64_t columns,
                        weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    enum { FRAMES_APART = 10 };
    const int64_t pairs = c->head_dim / 2;
    const weft_shape shape = WEFT_SHAPE(1, count, 1, pairs);
    float *table = weft_calloc(2 * count * pairs, sizeof *table);
    cos_sin[0] = cos_sin[1] = WEFT_NONE;
    if (!table) {
        weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
        return;
    }
    for (int64_t s = 0; s < count; s++) {
        double at[AXES] = {0, 0, 0, (double)s};
        if (columns) {
            at[0] = (double)(s / (rows * columns) * FRAMES_APART);
            at[1] = (double)(s / columns % rows);
            at[2] = (double)(s % columns);
            at[3] = 0;
        }
        int64_t pair = s * pairs;
        for (int d = 0; d < AXES; d++)
            for (int64_t i = 0; i < c->axes[d] / 2; i++, pair++) {
                const double angle = at[d] / pow(c->theta, 2 * (double)i / (double)c->axes[d]);
                table[pair] = (float)cos(angle);
                table[count * pairs + pair] = (float)sin(angle);
            }
    }
    cos_sin[0] = weft_constant(g, WEFT_F32, shape, table);
    cos_sin[1] = weft_constant(g, WEFT_F32, shape, table + count * pairs);
    weft_free(table);
}

static weft_value embed_number(weft_graph *g, const flux2 *c, const char *name, weft_value number)
{
    weft_graph_push(g, "%s", name);
    const weft_value h = weft_nn_linear_plain(
        g, "linear_1", weft_nn_sinusoid(g, c->time_width, number), width_of(c));
    const weft_value out =
        weft_nn_linear_plain(g, "linear_2", weft_unary(g, WEFT_OP_SILU, h), width_of(c));
    weft_graph_pop(g);
    return out;
}

static weft_value embed_condition(weft_graph *g, const flux2 *c, const weft_ports *in)
{
    weft_graph_push(g, "time_guidance_embed");
    weft_value temb = embed_number(g, c, "timestep_embedder", in->at[WEFT_PORT_TIMESTEP]);
    if (c->guidance)
        temb =
            weft_add(g, temb, embed_number(g, c, "guidance_embedder", in->at[WEFT_PORT_GUIDANCE]));
    weft_graph_pop(g);
    return temb;
}

/* Modulation rows of all blocks of a kind: (B,rows,C). */
static weft_value modulation(weft_graph *g, const flux2 *c, const char *name, weft_value temb_bc,
                             int64_t rows)
{
    weft_graph_push(g, "%s", name);
    const weft_nn_layer layer = plain(g, "linear", width_of(c), rows * width_of(c));
    const weft_value mod = weft_mmdit_modulation(g, &layer, temb_bc, rows);
    weft_graph_pop(g);
    return mod;
}

/* norm(x), with the shift and the scale of two rows. */
static weft_value modulated(weft_graph *g, const flux2 *c, weft_value x, weft_value mod,
                            int64_t row)
{
    return weft_nn_modulate(g, weft_nn_plain_norm(g, x, c->eps), weft_nn_row(g, mod, row + 1),
                            weft_nn_row(g, mod, row));
}

/* silu of the first half of the channels, times the second half. */
static weft_value gated(weft_graph *g, weft_value x)
{
    const int64_t half = weft_dim(g, x, 2) / 2;
    return weft_mul(g, weft_unary(g, WEFT_OP_SILU, weft_slice(g, x, 2, 0, half)),
                    weft_slice(g, x, 2, half, half));
}

/* Tokens of the image and of the text. */
typedef struct streams {
    weft_value x[STREAMS], mod[STREAMS], single_mod;
    weft_value rope[STREAMS][WEFT_MAX_OUTPUTS];
} streams;

/* q, k, v of one stream (B,S,H,D) from (B,S,C) each. */
static void to_heads(weft_graph *g, const flux2 *c, const weft_nn_layer norm[2],
                     const weft_value rope[WEFT_MAX_OUTPUTS], weft_value qkv[3])
{
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_split_heads(g, qkv[i], c->heads);
        if (i < 2)
            qkv[i] = weft_nn_rope(g, weft_nn_rms_norm_by(g, &norm[i], qkv[i], c->eps), rope, false);
    }
}

static void double_block(weft_graph *g, const flux2 *c, streams *s)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 };
    static const char *const names[STREAMS][6] = {
        {"to_q", "to_k", "to_v", "norm_q", "norm_k", "to_out.0"},
        {"add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q", "norm_added_k", "to_add_out"}};
    const int64_t width = width_of(c);
    weft_value h[STREAMS], qkv[3][STREAMS], one[3];
    for (int k = 0; k < STREAMS; k++)
        h[k] = modulated(g, c, s->x[k], s->mod[k], SHIFT1);
    weft_graph_push(g, "attn");
    for (int k = 0; k < STREAMS; k++) {
        weft_nn_layer norm[2];
        for (int i = 0; i < 3; i++)
            one[i] = weft_nn_linear_plain(g, names[k][i], h[k], width);
        for (int i = 0; i < 2; i++)
            norm[i] = weft_nn_norm_of(g, names[k][3 + i], c->head_dim, false);
        to_heads(g, c, norm, s->rope[k], one);
        for (int i = 0; i < 3; i++)
            qkv[i][k] = one[i];
    }
    weft_nn_attend_jointly(g, STREAMS, qkv[0], qkv[1], qkv[2], WEFT_NONE, h);
    for (int k = 0; k < STREAMS; k++)
        h[k] = weft_nn_linear_plain(g, names[k][5], weft_nn_join_heads(g, h[k]), width);
    weft_graph_pop(g);
    for (int k = 0; k < STREAMS; k++) {
        s->x[k] = weft_nn_gated_add(g, s->x[k], h[k], weft_nn_row(g, s->mod[k], GATE1));
        weft_graph_push(g, k == TEXT ? "ff_context" : "ff");
        const weft_value wide = weft_nn_linear_plain(
            g, "linear_in", modulated(g, c, s->x[k], s->mod[k], SHIFT2), 2 * inner_of(c));
        h[k] = weft_nn_linear_plain(g, "linear_out", gated(g, wide), width);
        weft_graph_pop(g);
        s->x[k] = weft_nn_gated_add(g, s->x[k], h[k], weft_nn_row(g, s->mod[k], GATE2));
    }
}

static void single_block(weft_graph *g, const flux2 *c, streams *s)
{
    enum { SHIFT, SCALE, GATE };
    const int64_t width = width_of(c), inner = inner_of(c);
    weft_value h[STREAMS], wide[STREAMS], qkv[3][STREAMS], one[3];
    weft_graph_push(g, "attn");
    const weft_nn_layer in = plain(g, "to_qkv_mlp_proj", width, 3 * width + 2 * inner),
                        out = plain(g, "to_out", width + inner, width),
                        norm[2] = {weft_nn_norm_of(g, "norm_q", c->head_dim, false),
                                   weft_nn_norm_of(g, "norm_k", c->head_dim, false)};
    for (int k = 0; k < STREAMS; k++) {
        const weft_value all =
            weft_nn_linear_by(g, &in, modulated(g, c, s->x[k], s->single_mod, SHIFT));
        for (int i = 0; i < 3; i++)
            one[i] = weft_slice(g, all, 2, i * width, width);
        to_heads(g, c, norm, s->rope[k], one);
        for (int i = 0; i < 3; i++)
            qkv[i][k] = one[i];
        wide[k] = gated(g, weft_slice(g, all, 2, 3 * width, 2 * inner));
    }
    weft_nn_attend_jointly(g, STREAMS, qkv[0], qkv[1], qkv[2], WEFT_NONE, h);
    for (int k = 0; k < STREAMS; k++) {
        const weft_value both[] = {weft_nn_join_heads(g, h[k]), wide[k]};
        s->x[k] =
            weft_nn_gated_add(g, s->x[k], weft_nn_linear_by(g, &out, weft_concat(g, both, 2, 2)),
                              weft_nn_row(g, s->single_mod, GATE));
    }
    weft_graph_pop(g);
}

/* Tokens of the image and of images to edit: (B,(1 + N) S,C) */
static weft_value image_tokens(weft_graph *g, const weft_ports *in)
{
    const weft_value edited = in->at[WEFT_PORT_EDITED],
                     own = weft_nn_pack(g, in->at[WEFT_PORT_LATENTS], 1);
    if (!weft_value_ok(edited))
        return own;
    return weft_concat(g, (weft_value[]){own, weft_nn_pack(g, edited, 1)}, 2, 1);
}

static weft_value forward(weft_graph *g, const flux2 *c, const weft_ports *in)
{
    enum { DOUBLE_ROWS = 6, SINGLE_ROWS = 3 };
    const int64_t patch[3] = {1, 1, 1}, width = width_of(c);
    const weft_value latents = in->at[WEFT_PORT_LATENTS], text = in->at[WEFT_PORT_TEXT];
    int64_t size[3];
    streams s = {0};
    weft_nn_count_tokens(g, latents, patch, size);
    if (size[0] != 1)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " frames: the model makes single images", size[0]);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_value temb = embed_condition(g, c, in);
    s.mod[IMAGE] = modulation(g, c, "double_stream_modulation_img", temb, DOUBLE_ROWS);
    s.mod[TEXT] = modulation(g, c, "double_stream_modulation_txt", temb, DOUBLE_ROWS);
    s.single_mod = modulation(g, c, "single_stream_modulation", temb, SINGLE_ROWS);
    const weft_value tokens = image_tokens(g, in);
    const int64_t count = weft_dim(g, tokens, 1), own = size[1] * size[2];
    rope_tables(g, c, count, size[1], size[2], s.rope[IMAGE]);
    rope_tables(g, c, weft_dim(g, text, 1), 0, 0, s.rope[TEXT]);
    s.x[IMAGE] = weft_nn_linear_plain(g, "x_embedder", tokens, width);
    s.x[TEXT] = weft_nn_linear_plain(g, "context_embedder", text, width);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        double_block(g, c, &s);
        weft_graph_pop(g);
    }
    for (int64_t i = 0; i < c->single_layers; i++) {
        weft_graph_push(g, "single_transformer_blocks.%d", (int)i);
        single_block(g, c, &s);
        weft_graph_pop(g);
    }
    if (count > own)
        s.x[IMAGE] = weft_slice(g, s.x[IMAGE], 1, 0, own);
    const weft_value mod = modulation(g, c, "norm_out", temb, 2), /* scale, shift */
        x = weft_nn_modulate(g, weft_nn_plain_norm(g, s.x[IMAGE], c->eps), weft_nn_row(g, mod, 0),
                             weft_nn_row(g, mod, 1));
    const weft_nn_layer last =
        weft_nn_linear_of(g, "proj_out", width, out_of(c), false, WEFT_LINEAR_ZERO);
    return weft_nn_unpack(g, weft_nn_linear_by(g, &last, x), size, 1);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const flux2 *c = config;
    int64_t sum = 0;
    for (int d = 0; d < AXES; d++) {
        sum += c->axes[d];
        if (c->axes[d] % 2)
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "axes_dims_rope", c->axes[d]),
                              "rotations are of pairs, so each axis needs an even width");
    }
    return sum == c->head_dim
               ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "axes_dims_rope", sum),
                            "the axes add up to %" PRId64 ", not to attention_head_dim %" PRId64,
                            sum, c->head_dim);
}

static void grid(const void *config, weft_grid *grid)
{
    const flux2 *c = config;
    grid->factor[0] = grid->factor[1] = grid->factor[2] = 1;
    grid->channels = c->in_channels;
    grid->out_channels = out_of(c);
    grid->only[0] = 1;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const flux2 *c = config;
    if (port == WEFT_PORT_GUIDANCE)
        return c->guidance ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    if (port == WEFT_PORT_EDITED)
        return WEFT_SHAPE(s->batch, s->edited > 0 ? s->edited : 1, s->height, s->width,
                          c->in_channels);
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    cond->form = WEFT_FRAME_CONDITION_EDITED;
}

static int64_t axes_of(const void *config)
{
    (void)config;
    return AXES;
}

/* clang-format off */
#define AT(member) offsetof(flux2, member)
static const weft_field fields[] = {
    {"patch_size", WEFT_FIELD_FIXED, .fallback = "1"},
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "128", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "channels of a latent"},
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "null", 1, 1 << 16,
     .help = "output channels of a latent; null: in_channels"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "8", 0, 1024,
     .help = "blocks with separate layers for image and text"},
    {"num_single_layers", WEFT_FIELD_I64, AT(single_layers), "48", 0, 1024,
     .help = "blocks with shared layers"},
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    WEFT_HEADS_FIELD(AT(heads), "48"),
    {"joint_attention_dim", WEFT_FIELD_I64, AT(text_dim), "15360", 1, 1 << 20,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"timestep_guidance_channels", WEFT_FIELD_I64, AT(time_width), "256", 2, 1 << 16,
     .help = "width of the sinusoids of timestep and guidance"},
    {"mlp_ratio", WEFT_FIELD_F64, AT(inner_ratio), "3.0", 0.01, 64,
     .help = "width of the feed-forward / width of the model"},
    {"axes_dims_rope", WEFT_FIELD_I64S, AT(axes), "[32, 32, 32, 32]", 0, 1 << 12,
     .capacity = AXES, .length = axes_of,
     .help = "share of a head that frame, row, column and text position rotate"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "2000", 1, 1e9, .help = "base of the rotations"},
    {"eps", WEFT_FIELD_F64, AT(eps), "1e-06", 0, 1, .help = "epsilon of the norms"},
    {"guidance_embeds", WEFT_FIELD_BOOL, AT(guidance), "true",
     .help = "embedded guidance: the guidance scale x 1000 is an input"},
};

static const weft_named_config sizes[] = {
    {"flux2-dev", "{}"},
    {"flux2-klein-4b", "{\"num_layers\": 5, \"num_single_layers\": 20, \"num_attention_heads\": 24,"
                       "\"joint_attention_dim\": 7680, \"guidance_embeds\": false}"},
    {"flux2-klein-9b", "{\"num_layers\": 8, \"num_single_layers\": 24, \"num_attention_heads\": 32,"
                       "\"joint_attention_dim\": 12288, \"guidance_embeds\": false}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_PACKED},
    {WEFT_PORT_TIMESTEP,   false, "timestep", .unit = 1000},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_GUIDANCE,   false, "guidance", .unit = 1000},
    {WEFT_PORT_EDITED,     false, "image_latents", .form = WEFT_VIDEO_PACKED, .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_PACKED},
};

/* Key mapping of Black Forest Labs' own files. */
static const weft_rename_rule original[] = {
    {"img_in",                            "x_embedder"},
    {"txt_in",                            "context_embedder"},
    {"time_in.in_layer",                  "time_guidance_embed.timestep_embedder.linear_1"},
    {"time_in.out_layer",                 "time_guidance_embed.timestep_embedder.linear_2"},
    {"guidance_in.in_layer",              "time_guidance_embed.guidance_embedder.linear_1"},
    {"guidance_in.out_layer",             "time_guidance_embed.guidance_embedder.linear_2"},
    {"double_stream_modulation_img.lin",  "double_stream_modulation_img.linear"},
    {"double_stream_modulation_txt.lin",  "double_stream_modulation_txt.linear"},
    {"single_stream_modulation.lin",      "single_stream_modulation.linear"},
    {"final_layer.adaLN_modulation.1",    "~norm_out.linear"}, /* shift, scale there */
    {"final_layer.linear",                "proj_out"},

#define DOUBLE(theirs, ours) {"double_blocks.#." theirs, "transformer_blocks.#." ours}
    DOUBLE("img_attn.qkv",                   "attn.{to_q,to_k,to_v}"),
    DOUBLE("img_attn.norm.query_norm.scale", "attn.norm_q.weight"),
    DOUBLE("img_attn.norm.key_norm.scale",   "attn.norm_k.weight"),
    DOUBLE("img_attn.proj",                  "attn.to_out.0"),
    DOUBLE("txt_attn.qkv",                   "attn.{add_q_proj,add_k_proj,add_v_proj}"),
    DOUBLE("txt_attn.norm.query_norm.scale", "attn.norm_added_q.weight"),
    DOUBLE("txt_attn.norm.key_norm.scale",   "attn.norm_added_k.weight"),
    DOUBLE("txt_attn.proj",                  "attn.to_add_out"),
    DOUBLE("img_mlp.0",                      "ff.linear_in"),
    DOUBLE("img_mlp.2",                      "ff.linear_out"),
    DOUBLE("txt_mlp.0",                      "ff_context.linear_in"),
    DOUBLE("txt_mlp.2",                      "ff_context.linear_out"),

#define SINGLE(theirs, ours) {"single_blocks.#." theirs, "single_transformer_blocks.#." ours}
    SINGLE("norm.query_norm.scale",          "attn.norm_q.weight"),
    SINGLE("norm.key_norm.scale",            "attn.norm_k.weight"),
    SINGLE("linear1",                        "attn.to_qkv_mlp_proj"),
    SINGLE("linear2",                        "attn.to_out"),
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "single_transformer_blocks.0.attn.to_qkv_mlp_proj.weight", NULL, 0},
    {"original",  "single_stream_modulation.lin.weight", original,
     sizeof original / sizeof *original},
};

/* dev has embedded guidance and Mistral, klein neither, but Qwen3. */
static bool is_dev(const void *config)
{
    return ((const flux2 *)config)->guidance;
}

static bool is_klein(const void *config)
{
    return !is_dev(config);
}

static const char *pipeline_of(const void *config, bool image)
{
    (void)image;
    return is_dev(config) ? "Flux2Pipeline" : "Flux2KleinPipeline";
}

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .own_side = true,
     .hidden = {10, 20, 30},
     .before = "<s>[SYSTEM_PROMPT]You are an AI that reasons about image descriptions. You give "
               "structured responses focusing on object relationships, object\nattribution and "
               "actions without speculation.[/SYSTEM_PROMPT][INST]",
     .after = "[/INST]", .fits = is_dev},
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, .length = 512, .own_side = true,
     .hidden = {9, 18, 27}, .before = "<|im_start|>user\n",
     .after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", .fits = is_klein},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_flux2_dit = {
    .class_name = "Flux2Transformer2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "Flux2Pipeline", .pipeline_of = pipeline_of,
    .autoencoder = "AutoencoderKLFlux2", .frames = 1,
    .marks = {"timestep_guidance_channels", "num_single_layers"},
    .config_bytes = sizeof(flux2), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "none or an image to edit",
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN_FLUX2,
    .lora_targets = (const char *const[]){"to_q", "to_k", "to_v", "to_out.0", "to_qkv_mlp_proj",
                                          "to_out", NULL},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
