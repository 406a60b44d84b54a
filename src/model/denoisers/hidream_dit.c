/* HiDream-I1 (diffusers' HiDreamImageTransformer2DModel): an image model with a mixture of
 * experts. Parameters have the names of the public checkpoint. Expert weights are stacked.
 *
 *   latents --patch--> x (B,S,C)          timestep, pooled text --MLPs, summed--> temb (B,C)
 *   text: [T5, last Llama layer], shared by all blocks; each block appends a Llama layer of its own
 *
 *   double blocks: separate layers for x and text, attention over both; experts for x
 *   single blocks: one stream [x, text], experts for all tokens
 *   x --> norm, modulate, project --unpatch--> prediction
 *
 * Latents that are not square are padded to the model's maximum number of tokens. Keys of
 * padding are zero, but its values participate in attention.
 * Shape letters: B batch, S image tokens, L text tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/experts.h"
#include "nn/nn.h"

enum { MAX_BLOCKS = 256, TIME_WIDTH = 256, MULTIPLE = 256 };
static const double eps = 1e-6, qk_eps = 1e-5;

typedef struct hidream {
    int64_t patch, in_channels, out_channels, layers, single_layers, head_dim, heads;
    int64_t caption[2]; /* widths of T5 and Llama */
    int64_t pooled, experts, active, axes[3], resolution[2];
    int64_t llama[MAX_BLOCKS], llamas; /* Llama layer of each block */
} hidream;
_Static_assert(sizeof(hidream) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

typedef struct conditioning {
    weft_value temb_bc;
    weft_value rope[WEFT_MAX_OUTPUTS]; /* RoPE of the stream with the image */
    weft_value real;                   /* (1,S,1,1): 0 at padding; WEFT_NONE: no padding */
} conditioning;

static int64_t width_of(const hidream *c)
{
    return c->heads * c->head_dim;
}

static int64_t inner_of(int64_t hidden)
{
    return (2 * hidden / 3 + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
}

/* ---- layers -------------------------------------------------------------------------------- */

static weft_value feed_forward(weft_graph *g, const hidream *c, const char *name, weft_value x)
{
    const int64_t hidden = 4 * width_of(c);
    const weft_nn_experts moe = {.experts = c->experts,
                                 .active = c->active,
                                 .inner = inner_of(hidden),
                                 .shared = inner_of(hidden / 2),
                                 .scale = 1};
    const bool routed = c->experts > 0 && name[3] == 'i';
    weft_graph_push(g, "%s", name);
    x = routed ? weft_nn_experts_of(g, &moe, x, NULL) : weft_nn_swiglu(g, x, inner_of(hidden));
    weft_graph_pop(g);
    return x;
}

/* Modulation rows from temb: (B,rows,C). */
static weft_value modulation(weft_graph *g, weft_value temb_bc, int64_t rows, int64_t width)
{
    const weft_value mod =
        weft_nn_linear(g, "adaLN_modulation.1", weft_unary(g, WEFT_OP_SILU, temb_bc), rows * width,
                       WEFT_LINEAR_XAVIER);
    return weft_reshape(g, mod, WEFT_SHAPE(weft_dim(g, temb_bc, 0), rows, width));
}

/* Modulates x. `first` is the row of the shift; scale and gate follow. */
static weft_value modulated(weft_graph *g, weft_value x, weft_value mod, int first)
{
    return weft_nn_modulate(g, weft_nn_plain_norm(g, x, eps), weft_nn_row(g, mod, first + 1),
                            weft_nn_row(g, mod, first));
}

/* q, k, v of one stream. `image`: positions are rotated, and keys of padding are zero. */
static void project(weft_graph *g, const hidream *c, const conditioning *to, bool image,
                    weft_value h, weft_value qkv[3])
{
    static const char *const names[2][5] = {
        {"to_q_t", "to_k_t", "to_v_t", "q_rms_norm_t", "k_rms_norm_t"},
        {"to_q", "to_k", "to_v", "q_rms_norm", "k_rms_norm"}};
    for (int i = 0; i < 3; i++) {
        qkv[i] = weft_nn_linear(g, names[image][i], h, width_of(c), WEFT_LINEAR_XAVIER);
        if (i < 2)
            qkv[i] = weft_nn_rms_norm(g, names[image][3 + i], qkv[i], qk_eps);
        qkv[i] = weft_nn_split_heads(g, qkv[i], c->heads);
        if (i == 1 && image && weft_value_ok(to->real))
            qkv[i] = weft_mul(g, qkv[i], to->real);
        if (i < 2 && image)
            qkv[i] = weft_nn_rope(g, qkv[i], to->rope, false);
    }
}

/* Attention in place: h[0] is the image or the joined stream, h[1] the text. */
static void attend(weft_graph *g, const hidream *c, const conditioning *to, int streams,
                   weft_value *h)
{
    weft_value qkv[3][2], one[3];
    weft_graph_push(g, "attn1");
    for (int s = 0; s < streams; s++) {
        project(g, c, to, s == 0, h[s], one);
        for (int i = 0; i < 3; i++)
            qkv[i][s] = one[i];
    }
    weft_nn_attend_jointly(g, streams, qkv[0], qkv[1], qkv[2], WEFT_NONE, h);
    for (int s = 0; s < streams; s++)
        h[s] = weft_nn_linear(g, s ? "to_out_t" : "to_out", weft_nn_join_heads(g, h[s]),
                              width_of(c), WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
}

/* Block of one or two streams. */
static void block(weft_graph *g, const hidream *c, const conditioning *to, int streams,
                  weft_value *x)
{
    enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2, ROWS };
    static const char *const ff[2] = {"ff_i", "ff_t"};
    weft_value h[2];
    weft_graph_push(g, "block");
    const weft_value mod = modulation(g, to->temb_bc, streams * ROWS, width_of(c));
    for (int s = 0; s < streams; s++)
        h[s] = modulated(g, x[s], mod, s * ROWS + SHIFT1);
    attend(g, c, to, streams, h);
    for (int s = 0; s < streams; s++) {
        x[s] = weft_nn_gated_add(g, x[s], h[s], weft_nn_row(g, mod, s * ROWS + GATE1));
        h[s] = feed_forward(g, c, ff[s], modulated(g, x[s], mod, s * ROWS + SHIFT2));
        x[s] = weft_nn_gated_add(g, x[s], h[s], weft_nn_row(g, mod, s * ROWS + GATE2));
    }
    weft_graph_pop(g);
}

/* ---- the model ----------------------------------------------------------------------------- */

static weft_value caption(weft_graph *g, const hidream *c, int64_t i, weft_value text)
{
    weft_graph_push(g, "caption_projection.%d", (int)i);
    text = weft_nn_linear_plain(g, "linear", text, width_of(c));
    weft_graph_pop(g);
    return text;
}

/* The Llama layer of block i, (N,B,L,D) -> (B,L,C) */
static weft_value llama(weft_graph *g, const hidream *c, int64_t i, weft_value layers)
{
    const weft_value own = weft_slice(g, layers, 0, c->llama[i], 1);
    return caption(g, c, i,
                   weft_reshape(g, own,
                                WEFT_SHAPE(weft_dim(g, layers, 1), weft_dim(g, layers, 2),
                                           weft_dim(g, layers, 3))));
}

static weft_value embed_condition(weft_graph *g, const hidream *c, const weft_ports *in)
{
    const int64_t width = width_of(c);
    weft_graph_push(g, "t_embedder");
    const weft_value time = weft_nn_embedder(
        g, "timestep_embedder", weft_nn_sinusoid(g, TIME_WIDTH, in->at[WEFT_PORT_TIMESTEP]), width,
        WEFT_NN_SILU);
    weft_graph_pop(g);
    weft_graph_push(g, "p_embedder");
    const weft_value pooled =
        weft_nn_embedder(g, "pooled_embedder", in->at[WEFT_PORT_POOLED], width, WEFT_NN_SILU);
    weft_graph_pop(g);
    return weft_add(g, time, pooled);
}

/* Positions of `size` (rows, columns), followed by `after` tokens without rotation. The first
 * `padding` of these tokens are not keys. */
static void set_positions(weft_graph *g, const hidream *c, const int64_t size[3], int64_t padding,
                          int64_t after, conditioning *to)
{
    const int64_t tokens = size[1] * size[2];
    const weft_attr_rope_table attr = {.theta = {10000, 10000, 10000},
                                       .step = {1, 1, 1},
                                       .grid = {1, size[1], size[2]},
                                       .pairs = {c->axes[0] / 2, c->axes[1] / 2, c->axes[2] / 2},
                                       .after = after,
                                       .len = tokens + after};
    weft_emit_all(g, WEFT_OP_ROPE_TABLE, NULL, 0, &attr, to->rope);
    to->real = WEFT_NONE;
    if (!padding)
        return;
    const weft_value part[3] = {weft_fill(g, WEFT_F32, WEFT_SHAPE(1, tokens, 1, 1), 1),
                                weft_fill(g, WEFT_F32, WEFT_SHAPE(1, padding, 1, 1), 0),
                                weft_fill(g, WEFT_F32, WEFT_SHAPE(1, after - padding, 1, 1), 1)};
    to->real = weft_concat(g, part, after > padding ? 3 : 2, 1);
}

/* Number of padding tokens after the image. Fails if the image has more tokens than the model
 * supports. */
static int64_t padding_of(weft_graph *g, const hidream *c, const int64_t size[3])
{
    const int64_t most = c->resolution[0] * c->resolution[1] / (c->patch * c->patch),
                  tokens = size[1] * size[2];
    if (size[0] != 1)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " frames: the model makes single images", size[0]);
    else if (size[1] != size[2] && tokens > most)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " x %" PRId64 " tokens exceed the %" PRId64 " of max_resolution",
                        size[1], size[2], most);
    return size[1] != size[2] ? most - tokens : 0;
}

static weft_value forward(weft_graph *g, const hidream *c, const weft_ports *in)
{
    const int64_t width = width_of(c), patch[3] = {1, c->patch, c->patch};
    const weft_value latents = in->at[WEFT_PORT_LATENTS], layers = in->at[WEFT_PORT_TEXT_LAYERS];
    int64_t size[3];
    conditioning to;
    weft_nn_count_tokens(g, latents, patch, size);
    const int64_t padding = padding_of(g, c, size), tokens = size[1] * size[2];
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t batch = weft_dim(g, latents, 0);
    weft_value folded = weft_nn_fold(g, latents, patch);
    folded = weft_reshape(g, folded, WEFT_SHAPE(batch, tokens, weft_dim(g, folded, 4)));
    if (padding)
        folded = weft_pad(g, folded, 1, 0, padding);
    weft_graph_push(g, "x_embedder");
    weft_value x = weft_nn_linear(g, "proj", folded, width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    to.temb_bc = embed_condition(g, c, in);
    const int64_t blocks = c->layers + c->single_layers;
    weft_value own[MAX_BLOCKS];
    for (int64_t i = 0; i < blocks; i++)
        own[i] = llama(g, c, i, layers);
    const weft_value t5 = caption(g, c, blocks, in->at[WEFT_PORT_TEXT]);
    weft_value text = weft_concat(g, (weft_value[]){t5, own[blocks - 1]}, 2, 1);
    const int64_t kept = weft_dim(g, text, 1), joined = tokens + padding + kept;
    set_positions(g, c, size, padding, padding, &to);
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "double_stream_blocks.%d", (int)i);
        weft_value stream[2] = {x, weft_concat(g, (weft_value[]){text, own[i]}, 2, 1)};
        block(g, c, &to, 2, stream);
        x = stream[0];
        text = weft_slice(g, stream[1], 1, 0, kept);
        weft_graph_pop(g);
    }
    x = weft_concat(g, (weft_value[]){x, text}, 2, 1);
    set_positions(g, c, size, padding, padding + kept + weft_dim(g, layers, 2), &to);
    for (int64_t i = 0; i < c->single_layers; i++) {
        weft_graph_push(g, "single_stream_blocks.%d", (int)i);
        weft_value all = weft_concat(g, (weft_value[]){x, own[c->layers + i]}, 2, 1);
        block(g, c, &to, 1, &all);
        x = weft_slice(g, all, 1, 0, joined);
        weft_graph_pop(g);
    }
    weft_graph_push(g, "final_layer");
    x = modulated(g, weft_slice(g, x, 1, 0, tokens), modulation(g, to.temb_bc, 2, width), 0);
    x = weft_nn_linear(g, "linear", x, c->patch * c->patch * c->out_channels, WEFT_LINEAR_ZERO);
    weft_graph_pop(g);
    return weft_nn_unpatch(g, x, size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const hidream *c = config;
    WEFT_TRY(weft_check_axes(locations, "axes_dims_rope", c->axes, c->head_dim));
    if (c->llamas != c->layers + c->single_layers || c->llamas == 0)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "llama_layers", c->llamas),
                          "%" PRId64 " layers for %" PRId64 " blocks; each block needs one",
                          c->llamas, c->layers + c->single_layers);
    if (c->experts && c->active > c->experts)
        return weft_error(
            WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "num_activated_experts", c->active),
            "%" PRId64 " is more than \"num_routed_experts\" %" PRId64, c->active, c->experts);
    return WEFT_OK;
}

static int64_t two(const void *config)
{
    (void)config;
    return 2;
}

static int64_t most_llama(const hidream *c)
{
    int64_t most = 0;
    for (int64_t i = 0; i < c->llamas; i++)
        most = c->llama[i] > most ? c->llama[i] : most;
    return most + 1;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hidream *c = config;
    switch (port) {
    case WEFT_PORT_TEXT_LAYERS:
        return WEFT_SHAPE(s->layers ? s->layers : most_llama(c), s->batch,
                          s->text2 ? s->text2 : s->text, c->caption[1]);
    case WEFT_PORT_POOLED: return WEFT_SHAPE(s->batch, c->pooled);
    default: return weft_denoiser_shape(s, port, c->in_channels, c->caption[0]);
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const hidream *c = config;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
    grid->only[0] = 1;
}

/* clang-format off */
#define AT(member) offsetof(hidream, member)
static const weft_field fields[] = {
    WEFT_PATCH_FIELD(AT(patch), "2"),
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "16"),
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "=in_channels", 1, 1 << 16,
     .help = "output channels of latents"},
    {"num_layers", WEFT_FIELD_I64, AT(layers), "16", 0, 128,
     .help = "blocks with separate layers for image and text"},
    {"num_single_layers", WEFT_FIELD_I64, AT(single_layers), "32", 0, 128,
     .help = "blocks with shared layers"},
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    WEFT_HEADS_FIELD(AT(heads), "20"),
    {"caption_channels", WEFT_FIELD_I64S, AT(caption), "[4096, 4096]", 1, 1 << 16, .capacity = 2,
     .length = two, .help = "widths of the T5 and Llama embeddings"},
    {"text_emb_dim", WEFT_FIELD_I64, AT(pooled), "2048", 1, 1 << 16,
     .help = "width of the pooled embedding"},
    {"num_routed_experts", WEFT_FIELD_I64, AT(experts), "4", 0, 1024,
     .help = "experts of a block; 0: a dense feed-forward layer"},
    {"num_activated_experts", WEFT_FIELD_I64, AT(active), "2", 1, 1024,
     .help = "experts per token"},
    WEFT_ROPE_AXES_FIELD(AT(axes), "[64, 32, 32]"),
    {"max_resolution", WEFT_FIELD_I64S, AT(resolution), "[128, 128]", 1, 1 << 16, .capacity = 2,
     .length = two, .help = "height and width whose product limits non-square latents"},
    {"llama_layers", WEFT_FIELD_I64S, AT(llama),
     "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,"
     " 25, 26, 27, 28, 29, 30, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31, 31]",
     0, 1 << 16, .capacity = MAX_BLOCKS, .count = AT(llamas),
     .help = "the Llama layer that each block reads"},
    {"force_inference_output", WEFT_FIELD_IGNORED, .fallback = "false"},
};

static const weft_named_config sizes[] = {
    {"hidream-i1", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,     false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,    false, "timesteps"},
    {WEFT_PORT_TEXT,        false, "encoder_hidden_states_t5"},
    {WEFT_PORT_TEXT_LAYERS, false, "encoder_hidden_states_llama3"},
    {WEFT_PORT_POOLED,      false, "pooled_embeds"},
    {WEFT_PORT_PREDICTION,  true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "double_stream_blocks.0.block.ff_i.shared_experts.w3.weight", NULL, 0},
};

/* ---- recipes ---- */

#define ALL {WEFT_R, 0}
#define TOKENS {WEFT_S, 1}
/* Tensor parallel: q, k, v and the first feed-forward linears are split by columns, the last ones
 * by rows. Experts are split the same way, one dim further in. Norms of q and k run over all heads
 * and need a sum over ranks. */
#define TENSOR_PARALLEL(axis, behind)                        \
    {"*attn1.to_q*",              axis, {WEFT_S, 0}},        \
    {"*attn1.to_k*",              axis, {WEFT_S, 0}},        \
    {"*attn1.to_v*",              axis, {WEFT_S, 0}},        \
    {"*attn1.q_rms_norm*",        axis, {WEFT_S, 0}},        \
    {"*attn1.k_rms_norm*",        axis, {WEFT_S, 0}},        \
    {"*attn1.to_out*.weight",     axis, {WEFT_S, 1}},        \
    {"*attn1.to_out*:linear",     axis, behind},             \
    {"*.ff_t.w1.weight",          axis, {WEFT_S, 0}, .optional = true}, \
    {"*.ff_t.w3.weight",          axis, {WEFT_S, 0}, .optional = true}, \
    {"*.ff_t.w2.weight",          axis, {WEFT_S, 1}, .optional = true}, \
    {"*.ff_i.w1.weight",          axis, {WEFT_S, 0}, .optional = true}, \
    {"*.ff_i.w3.weight",          axis, {WEFT_S, 0}, .optional = true}, \
    {"*.ff_i.w2.weight",          axis, {WEFT_S, 1}, .optional = true}

static const weft_recipe_row tp_rows[] = {TENSOR_PARALLEL("tp", ALL)},
                             sp_rows[] = {TENSOR_PARALLEL("sp", TOKENS),
                                          {"*blocks.*:layer_norm", "sp", TOKENS}},
                             cp_rows[] = {{"*blocks.*:layer_norm", "cp", TOKENS},
                                          {"*attn1:attention", "cp", TOKENS}};
#define LIST(axis, what, rows) {axis, what, rows, sizeof rows / sizeof *rows}
static const weft_recipe_list
    tp = LIST("tp", "tensor parallel",                     tp_rows),
    cp = LIST("cp", "context parallel, tokens into heads", cp_rows),
    sp = LIST("sp", "tensor parallel, tokens in between",  sp_rows);
static const weft_recipe_list *const recipes[] = {
    &tp, &weft_split_experts_tp, &cp, &sp, &weft_split_experts_sp, &weft_split_experts,
};

/* Two concatenated pooled embeddings, T5's text, and all layers of Llama. */
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", .pooled = WEFT_PORT_POOLED, .length = 128},
    {"text_encoder_2", "tokenizer_2", .pooled = WEFT_PORT_POOLED, .length = 128},
    {"text_encoder_3", "tokenizer_3", WEFT_PORT_TEXT, .length = 128},
    {"text_encoder_4", "tokenizer_4", .layers = WEFT_PORT_TEXT_LAYERS, .length = 128},
};

const weft_family weft_family_hidream_dit = {
    .class_name = "HiDreamImageTransformer2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "diffusers", .pipeline = "HiDreamImagePipeline", .autoencoder = "flux-vae",
    .frames = 1,
    .marks = {"num_routed_experts", "llama_layers"},
    .config_bytes = sizeof(hidream), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .negative = true,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .lora_targets = (const char *const[]){"to_q", "to_k", "to_v", "to_out", NULL},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = recipes, .recipes = sizeof recipes / sizeof *recipes,
};
/* clang-format on */
