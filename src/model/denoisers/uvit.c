/* U-ViT (Bao et al. 2023; baofff/U-ViT): a transformer over image patches with long skips,
 * conditioned on a class label or a text. Parameters have the names of the public checkpoints.
 *
 *   tokens: [label, time, patches] or [time, text, patches], all with learned positions
 *   in blocks --push--> mid block --> out blocks, each: x = linear(concat(x, popped skip))
 *   --> norm, project, drop the extra tokens, unpatch (and a 3x3 convolution)
 *
 *   block: x += attn(norm1 x);  x += mlp(norm2 x)
 *
 * Shape letters: B batch, S tokens, C width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/nn.h"

#include <math.h>

enum { MAX_SKIPS = 128 };
static const double eps = 1e-5;

typedef struct uvit {
    int64_t image, patch, channels, width, depth, heads, classes;
    double mlp_ratio;
    bool qkv_bias, time_mlp, conv;
    int64_t clip_dim, clip_tokens; /* 0: labels instead of text */
} uvit;
_Static_assert(sizeof(uvit) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static bool has_labels(const uvit *c)
{
    return !c->clip_dim && c->classes > 0;
}

/* Number of tokens before the patches. */
static int64_t extras(const uvit *c)
{
    return c->clip_dim ? 1 + c->clip_tokens : 1 + has_labels(c);
}

static weft_value attention(weft_graph *g, const uvit *c, weft_value x_bsc)
{
    const int64_t width = c->width;
    weft_graph_push(g, "attn");
    const weft_value qkv = c->qkv_bias
                               ? weft_nn_linear(g, "qkv", x_bsc, 3 * width, WEFT_LINEAR_XAVIER)
                               : weft_nn_linear_plain(g, "qkv", x_bsc, 3 * width);
    const weft_value q = weft_slice(g, qkv, 2, 0, width), k = weft_slice(g, qkv, 2, width, width),
                     v = weft_slice(g, qkv, 2, 2 * width, width);
    const weft_value out = weft_nn_linear(g, "proj", weft_nn_attention(g, q, k, v, c->heads, NULL),
                                          width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return out;
}

static weft_value mlp(weft_graph *g, const uvit *c, weft_value x_bsc)
{
    const int64_t inner = (int64_t)((double)c->width * c->mlp_ratio);
    weft_graph_push(g, "mlp");
    weft_value h = weft_nn_linear(g, "fc1", x_bsc, inner, WEFT_LINEAR_XAVIER);
    h = weft_emit(g, WEFT_OP_GELU, &h, 1, &(weft_attr_gelu){.exact = true});
    h = weft_nn_linear(g, "fc2", h, c->width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    return h;
}

/* `skip_bsc` WEFT_NONE: no long skip. */
static weft_value block(weft_graph *g, const uvit *c, weft_value x_bsc, weft_value skip_bsc)
{
    if (weft_value_ok(skip_bsc))
        x_bsc =
            weft_nn_linear(g, "skip_linear", weft_concat(g, (weft_value[]){x_bsc, skip_bsc}, 2, 2),
                           c->width, WEFT_LINEAR_XAVIER);
    x_bsc = weft_add(g, x_bsc, attention(g, c, weft_nn_layer_norm(g, "norm1", x_bsc, eps)));
    return weft_add(g, x_bsc, mlp(g, c, weft_nn_layer_norm(g, "norm2", x_bsc, eps)));
}

static weft_value label_token(weft_graph *g, const uvit *c, weft_value label_b)
{
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.02};
    const weft_value table =
        weft_param(g, "label_emb.weight", WEFT_F32, WEFT_SHAPE(c->classes, c->width), small);
    const weft_value ids = weft_reshape(g, label_b, WEFT_SHAPE(weft_dim(g, label_b, 0), 1));
    return weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, ids}, 2, NULL);
}

static weft_value time_token(weft_graph *g, const uvit *c, weft_value timestep_b)
{
    weft_value t = weft_nn_sinusoid(g, c->width, timestep_b);
    if (c->time_mlp) {
        weft_graph_push(g, "time_embed");
        t = weft_nn_linear(g, "0", t, 4 * c->width, WEFT_LINEAR_XAVIER);
        t = weft_nn_linear(g, "2", weft_unary(g, WEFT_OP_SILU, t), c->width, WEFT_LINEAR_XAVIER);
        weft_graph_pop(g);
    }
    return weft_reshape(g, t, WEFT_SHAPE(weft_dim(g, t, 0), 1, c->width));
}

/* Tokens [label, time, patches], [time, text, patches] or [time, patches], with positions. */
static weft_value embed(weft_graph *g, const uvit *c, const weft_ports *in)
{
    const int64_t side = c->image / c->patch, patch[3] = {1, c->patch, c->patch};
    const weft_init small = {.kind = WEFT_INIT_NORMAL, .value = 0.02};
    weft_value part[3];
    int parts = 0;
    if (has_labels(c))
        part[parts++] = label_token(g, c, in->at[WEFT_PORT_LABEL]);
    part[parts++] = time_token(g, c, in->at[WEFT_PORT_TIMESTEP]);
    if (c->clip_dim)
        part[parts++] = weft_nn_linear(g, "context_embed", in->at[WEFT_PORT_TEXT], c->width,
                                       WEFT_LINEAR_XAVIER);
    part[parts++] = weft_nn_patch(g, "patch_embed.proj", in->at[WEFT_PORT_LATENTS], c->width, patch,
                                  WEFT_PATCH_2D, true);
    return weft_add(g, weft_concat(g, part, parts, 1),
                    weft_param(g, "pos_embed", WEFT_F32,
                               WEFT_SHAPE(1, extras(c) + side * side, c->width), small));
}

static weft_value forward(weft_graph *g, const uvit *c, const weft_ports *in)
{
    const weft_value latents_btyxc = in->at[WEFT_PORT_LATENTS];
    const int64_t batch = weft_dim(g, latents_btyxc, 0), p = c->patch, side = c->image / p;
    const int64_t half = c->depth / 2;
    weft_value skip[MAX_SKIPS];
    if (weft_dim(g, latents_btyxc, 1) != 1 || weft_dim(g, latents_btyxc, 2) != c->image ||
        weft_dim(g, latents_btyxc, 3) != c->image)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "a U-ViT has positions for one frame of %" PRId64 "x%" PRId64
                               ", not for %" PRId64 " of "
                               "%" PRId64 "x%" PRId64,
                               c->image, c->image, weft_dim(g, latents_btyxc, 1),
                               weft_dim(g, latents_btyxc, 3), weft_dim(g, latents_btyxc, 2));
    if (c->clip_dim && weft_dim(g, in->at[WEFT_PORT_TEXT], 1) != c->clip_tokens)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "%" PRId64 " tokens of text; this U-ViT takes %" PRId64,
                               weft_dim(g, in->at[WEFT_PORT_TEXT], 1), c->clip_tokens);
    weft_value x = embed(g, c, in);
    for (int64_t i = 0; i < half; i++) {
        weft_graph_push(g, "in_blocks.%d", (int)i);
        skip[i] = x = block(g, c, x, WEFT_NONE);
        weft_graph_pop(g);
    }
    weft_graph_push(g, "mid_block");
    x = block(g, c, x, WEFT_NONE);
    weft_graph_pop(g);
    for (int64_t i = 0; i < half; i++) {
        weft_graph_push(g, "out_blocks.%d", (int)i);
        x = block(g, c, x, skip[half - 1 - i]);
        weft_graph_pop(g);
    }
    x = weft_nn_layer_norm(g, "norm", x, eps);
    x = weft_nn_linear(g, "decoder_pred", x, p * p * c->channels, WEFT_LINEAR_XAVIER);
    x = weft_slice(g, x, 1, extras(c), side * side);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, side, side, p, p * c->channels));
    x = weft_permute(g, x, (int[]){0, 1, 3, 2, 4});
    x = weft_reshape(g, x, WEFT_SHAPE(batch, 1, c->image, c->image, c->channels));
    const weft_conv_shape same = {
        .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .before = {0, 1, 1}, .after = {0, 1, 1}};
    return c->conv ? weft_nn_conv(g, "final_layer", x, c->channels, same, true) : x;
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const uvit *c = config;
    if (c->classes == 0)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "num_classes", c->classes),
                          "0 labels; write -1 for a model without labels");
    if (c->width % c->heads)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "embed_dim", c->width),
                          "%" PRId64 " is not a multiple of \"num_heads\" %" PRId64, c->width,
                          c->heads);
    if (c->image % c->patch)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "img_size", c->image),
                          "%" PRId64 " is not a multiple of \"patch_size\" %" PRId64, c->image,
                          c->patch);
    if ((c->clip_dim != 0) != (c->clip_tokens != 0))
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "clip_dim", c->clip_dim),
                          "the width of the text's tokens is %" PRId64 ", and their number "
                          "(\"num_clip_token\") is %" PRId64 "; set both or none",
                          c->clip_dim, c->clip_tokens);
    return WEFT_OK;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const uvit *c = config;
    switch (port) {
    case WEFT_PORT_LATENTS:
        return WEFT_SHAPE(s->batch, s->frames, s->height, s->width, c->channels);
    case WEFT_PORT_TIMESTEP: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_LABEL: return has_labels(c) ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    case WEFT_PORT_TEXT:
        return c->clip_dim ? WEFT_SHAPE(s->batch, s->text, c->clip_dim) : WEFT_SCALAR;
    default: return WEFT_SCALAR;
    }
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const uvit *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = grid->out_channels = c->channels;
    grid->text = c->clip_tokens;
    grid->only[0] = 1;
    grid->only[1] = grid->only[2] = c->image;
}

/* clang-format off */
#define AT(member) offsetof(uvit, member)
static const weft_field fields[] = {
    {"img_size", WEFT_FIELD_I64, AT(image), "32", 1, 1 << 14, .help = "side of the latents"},
    WEFT_PATCH_FIELD(AT(patch), "2"),
    {"in_chans", WEFT_FIELD_I64, AT(channels), "4", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS, .help = "latent channels"},
    {"embed_dim", WEFT_FIELD_I64, AT(width), "768", 2, 1 << 16, .help = "width, even"},
    {"depth", WEFT_FIELD_I64, AT(depth), "12", 0, 2 * MAX_SKIPS,
     .help = "in blocks and out blocks, half each; one more block is in the middle"},
    {"num_heads", WEFT_FIELD_I64, AT(heads), "12", 1, 1024, .help = "attention heads"},
    {"mlp_ratio", WEFT_FIELD_F64, AT(mlp_ratio), "4", 0.01, 64,
     .help = "inner width of the feed-forward layers over embed_dim"},
    {"qkv_bias", WEFT_FIELD_BOOL, AT(qkv_bias), "false",
     .help = "bias of queries, keys and values"},
    {"mlp_time_embed", WEFT_FIELD_BOOL, AT(time_mlp), "false",
     .help = "an MLP on the time embedding"},
    {"num_classes", WEFT_FIELD_I64, AT(classes), "1001", -1, 1 << 24,
     .help = "number of labels; -1: the model takes none"},
    {"conv", WEFT_FIELD_BOOL, AT(conv), "true", .help = "a 3x3 convolution at the end"},
    {"skip", WEFT_FIELD_FIXED, .fallback = "true"},
    {"clip_dim", WEFT_FIELD_I64, AT(clip_dim), "null", 1, 1 << 16,
     .help = "width of the text embeddings that replace labels; null: labels"},
    {"num_clip_token", WEFT_FIELD_I64, AT(clip_tokens), "null", 1, 1 << 16,
     .help = "text tokens"},
};

static const weft_named_config sizes[] = {
    {"uvit-h", "{\"embed_dim\": 1152, \"depth\": 28, \"num_heads\": 16, \"conv\": false}"},
    {"uvit-s-t2i", "{\"embed_dim\": 512, \"num_heads\": 8, \"clip_dim\": 768,"
                   " \"num_clip_token\": 77}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "x"},
    {WEFT_PORT_TIMESTEP,   false, "timesteps"},
    {WEFT_PORT_LABEL,      false, "y"},
    {WEFT_PORT_TEXT,       false, "context"},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"original", "mid_block.attn.qkv.weight", NULL, 0},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT},
};

const weft_family weft_family_uvit = {
    .class_name = "UViT", .also = "UViT_t2i", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .library = "weft", .pipeline = "UViTPipeline",
    .autoencoder = "sd-vae", .frames = 1,
    .marks = {"mlp_time_embed", "in_chans"},
    .config_bytes = sizeof(uvit), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .lora_targets = (const char *const[]){"qkv", "proj", NULL},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
