/* Qwen-Image transformers (diffusers' QwenImageTransformer2DModel), from text and with images to
 * edit. Parameters have the names of the public checkpoints. A token packs 2x2 latents, channels
 * slowest.
 *
 *   latents --pack, linear--> x (B,S,C); text --norm, linear--> y (B,L,C)
 *   timestep, per sample or per token --MLP--> temb (B,C) or (B,S,C)
 *   double blocks (model/denoisers/mmdit.h) of other names, with rotary positions of the text
 *   x --> norm, modulate, project --unpack--> prediction
 *
 * Rows and columns of an image are counted from its centre. The text follows on the diagonal. With
 * WEFT_PORT_POSITIONS, the latents are one row of tokens of several images: the image, then images
 * to edit. WEFT_PORT_EDITED has the tokens of images to edit after an image. With "zero_cond_t"
 * images to edit have the timestep 0; text and projection have the first token's.
 * Shape letters: B batch, S image tokens, L text tokens, C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "model/tp_recipes.h"

#include <math.h>

typedef struct qwen_image {
    int64_t side, in_channels, out_channels, layers, head_dim, heads, text_dim, axes[3];
    bool zero_cond, extra_cond, layered;
} qwen_image;
_Static_assert(sizeof(qwen_image) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static const double theta = 10000, text_eps = 1e-6;
static const weft_mmdit_names names = {{"img_mod", "txt_mod"}, "1", {"img_mlp.net", "txt_mlp.net"}};

static int64_t width_of(const qwen_image *c)
{
    return c->heads * c->head_dim;
}

/* Channels of an output latent. */
static int64_t out_of(const qwen_image *c)
{
    return c->out_channels ? c->out_channels : c->in_channels;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Writes frame, row and column of the tokens of an image or video whose first frame is `frame`. */
static float *write_positions(float *at, int64_t frame, const int64_t size[3])
{
    for (int64_t s = 0; s < size[0] * size[1] * size[2]; s++, at += 3) {
        at[0] = (float)(frame + s / (size[1] * size[2]));
        at[1] = (float)(s / size[2] % size[1] - (size[1] - size[1] / 2));
        at[2] = (float)(s % size[2] - (size[2] - size[2] / 2));
    }
    return at;
}

/* Frame, row and column of the tokens of one image or video and of images to edit (NULL: none),
 * then of the text: (1,S+E+L,3). */
static weft_value positions_of(weft_graph *g, const qwen_image *c, const int64_t size[3],
                               const weft_image_tokens *edited, int64_t text)
{
    const int64_t tokens =
        size[0] * size[1] * size[2] + (edited ? weft_image_tokens_count(edited) : 0);
    int64_t after = (size[1] > size[2] ? size[1] : size[2]) / 2;
    float *all = weft_calloc(3 * (tokens + text), sizeof *all), *at = all;
    if (!all)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for positions");
    at = write_positions(at, 0, size);
    for (int64_t s = 0; s < size[0] * size[1] * size[2] && c->layered; s++)
        all[3 * s] = -1;
    for (int i = 0; edited && i < edited->count; i++) {
        const int64_t rows = edited->of[i].rows, columns = edited->of[i].columns,
                      half = (rows > columns ? rows : columns) / 2;
        at = write_positions(at, i + 1, (int64_t[]){1, rows, columns});
        after = half > after ? half : after;
    }
    for (int64_t i = 0; i < 3 * text; i++)
        at[i] = (float)(after + i / 3);
    const weft_value v = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, tokens + text, 3), all);
    weft_free(all);
    return v;
}

/* cos and sin (B or 1,count,1,D/2) of the tokens [first, first + count). */
static void rope_tables(weft_graph *g, const qwen_image *c, weft_value positions, int64_t first,
                        int64_t count, weft_value cos_sin[WEFT_MAX_OUTPUTS])
{
    const weft_value own = weft_slice(g, positions, 1, first, count);
    weft_value part[3];
    for (int d = 0; d < 3; d++)
        part[d] = weft_mmdit_angles(g, weft_slice(g, own, 2, d, 1), theta, c->axes[d] / 2);
    const weft_value angle =
        weft_reshape(g, weft_concat(g, part, 3, 2),
                     WEFT_SHAPE(weft_dim(g, positions, 0), count, 1, c->head_dim / 2));
    cos_sin[0] = weft_unary(g, WEFT_OP_COS, angle);
    cos_sin[1] = weft_unary(g, WEFT_OP_SIN, angle);
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value embed_condition(weft_graph *g, const qwen_image *c, const weft_ports *in)
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    const int64_t width = width_of(c), batch = weft_dim(g, t, 0);
    weft_graph_push(g, "time_text_embed");
    weft_value temb = weft_nn_embedder(
        g, "timestep_embedder", weft_nn_sinusoid(g, WEFT_MMDIT_TIME, t), width, WEFT_NN_SILU);
    if (c->extra_cond) {
        const weft_value table =
            weft_param(g, "addition_t_embedding.weight", WEFT_F32, WEFT_SHAPE(2, width),
                       (weft_init){.kind = WEFT_INIT_NORMAL, .value = 1});
        const weft_value extra =
            weft_emit(g, WEFT_OP_EMBED, (weft_value[]){table, in->at[WEFT_PORT_LABEL]}, 2, NULL);
        const bool per_token = weft_value_ok(temb) && weft_value_get(g, temb)->shape.rank == 3;
        temb = weft_add(g, temb,
                        per_token ? weft_reshape(g, extra, WEFT_SHAPE(batch, 1, width)) : extra);
    }
    weft_graph_pop(g);
    return temb;
}

/* temb for `own` tokens, then temb at time 0 for `edited` tokens: (B,S+E,C). */
static weft_value embed_edited(weft_graph *g, const qwen_image *c, const weft_ports *in,
                               int64_t own, int64_t edited)
{
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    const int64_t batch = weft_dim(g, t, 0), width = width_of(c);
    weft_ports both = *in;
    both.at[WEFT_PORT_TIMESTEP] =
        weft_concat(g,
                    (weft_value[]){weft_reshape(g, t, WEFT_SHAPE(batch, 1)),
                                   weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, 1), 0)},
                    2, 1);
    const weft_value temb = embed_condition(g, c, &both);
    return weft_concat(
        g,
        (weft_value[]){
            weft_broadcast(g, weft_slice(g, temb, 1, 0, 1), WEFT_SHAPE(batch, own, width)),
            weft_broadcast(g, weft_slice(g, temb, 1, 1, 1), WEFT_SHAPE(batch, edited, width))},
        2, 1);
}

/* temb of the first token: (B,C) */
static weft_value first_of(weft_graph *g, weft_value temb)
{
    return weft_value_ok(temb) && weft_value_get(g, temb)->shape.rank == 3
               ? weft_reshape(g, weft_slice(g, temb, 1, 0, 1),
                              WEFT_SHAPE(weft_dim(g, temb, 0), weft_dim(g, temb, 2)))
               : temb;
}

static weft_value forward(weft_graph *g, const qwen_image *c, const weft_ports *in)
{
    const weft_mmdit blocks = {.heads = c->heads,
                               .head_dim = c->head_dim,
                               .inner = 4 * width_of(c),
                               .names = &names,
                               .text_rope = true};
    const int64_t patch[3] = {1, c->side, c->side};
    const weft_value latents = in->at[WEFT_PORT_LATENTS], text = in->at[WEFT_PORT_TEXT];
    int64_t size[3];
    weft_nn_count_tokens(g, latents, patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_value to_edit = in->at[WEFT_PORT_EDITED], given = in->at[WEFT_PORT_POSITIONS];
    const bool edits = weft_value_ok(to_edit);
    const int64_t own = size[0] * size[1] * size[2], edited = edits ? weft_dim(g, to_edit, 1) : 0,
                  tokens = own + edited, length = weft_dim(g, text, 1);
    if (edits && !weft_value_ok(given) && !in->images)
        return weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                               "images to edit have no sizes, which their positions need");
    const weft_value temb = edits && c->zero_cond ? embed_edited(g, c, in, own, edited)
                                                  : embed_condition(g, c, in),
                     first = first_of(g, temb);
    const weft_value positions = weft_value_ok(given)
                                     ? weft_permute(g, given, (int[]){0, 2, 1})
                                     : positions_of(g, c, size, in->images, length);
    weft_value x = weft_nn_pack(g, latents, c->side);
    if (edits)
        x = weft_concat(g, (weft_value[]){x, weft_nn_pack(g, to_edit, c->side)}, 2, 1);
    weft_mmdit_stream stream[2] = {{.temb_bc = temb}, {.temb_bc = first, .text = true}};
    rope_tables(g, c, positions, 0, tokens, stream[0].rope);
    rope_tables(g, c, positions, tokens, length, stream[1].rope);
    stream[0].x = weft_nn_linear(g, "img_in", x, width_of(c), WEFT_LINEAR_XAVIER);
    stream[1].x = weft_nn_linear(g, "txt_in", weft_nn_rms_norm(g, "txt_norm", text, text_eps),
                                 width_of(c), WEFT_LINEAR_XAVIER);
    const weft_value bias = weft_mmdit_key_bias(g, in->at[WEFT_PORT_TEXT_MASK], tokens);
    for (int64_t i = 0; i < c->layers; i++) {
        stream[1].last = i == c->layers - 1;
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        weft_mmdit_double(g, &blocks, stream, 2, bias);
        weft_graph_pop(g);
    }
    x = edits ? weft_slice(g, stream[0].x, 1, 0, own) : stream[0].x;
    x = weft_mmdit_last(g, &blocks, x, first, c->side * c->side * out_of(c));
    return weft_nn_unpack(g, x, size, c->side);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const qwen_image *c = config;
    if (c->in_channels % (c->side * c->side))
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "in_channels", c->in_channels),
                          "%" PRId64 " channels of a token are not a multiple of %" PRId64
                          ", the square of \"patch_size\"",
                          c->in_channels, c->side * c->side);
    return weft_check_axes(locations, "axes_dims_rope", c->axes, c->head_dim);
}

static void grid(const void *config, weft_grid *grid)
{
    const qwen_image *c = config;
    grid->factor[0] = 1;
    grid->factor[1] = grid->factor[2] = c->side;
    grid->channels = c->in_channels / (c->side * c->side);
    grid->out_channels = out_of(c);
    grid->only[0] = 1;
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const qwen_image *c = config;
    const int64_t tokens = s->frames * s->height * s->width / (c->side * c->side);
    switch (port) {
    case WEFT_PORT_TIMESTEP:
        return c->zero_cond && s->times > 1 ? WEFT_SHAPE(s->batch, s->times) : WEFT_SHAPE(s->batch);
    case WEFT_PORT_POSITIONS: return WEFT_SHAPE(s->batch, 3, tokens + s->text);
    case WEFT_PORT_EDITED:
        return WEFT_SHAPE(s->batch, s->edited > 0 ? s->edited : 1, c->side, c->side,
                          c->in_channels / (c->side * c->side));
    case WEFT_PORT_LABEL: return c->extra_cond ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels / (c->side * c->side), c->text_dim);
    }
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_EDITED, .asks = true};
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

/* clang-format off */
#define AT(member) offsetof(qwen_image, member)
static const weft_field fields[] = {
    WEFT_PATCH_FIELD(AT(side), "2"),
    {"in_channels", WEFT_FIELD_I64, AT(in_channels), "64", 1, 1 << 16,
     .help = "input channels of a token"},
    {"out_channels", WEFT_FIELD_I64, AT(out_channels), "16", 1, 1 << 16,
     .help = "output channels of a latent"},
    WEFT_BLOCKS_FIELD(AT(layers), "60"),
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    WEFT_HEADS_FIELD(AT(heads), "24"),
    {"joint_attention_dim", WEFT_FIELD_I64, AT(text_dim), "3584", 1, 1 << 16,
     .default_source = WEFT_DEFAULT_SOURCE_TEXT, .help = "width of the text embeddings"},
    {"guidance_embeds", WEFT_FIELD_FIXED, .fallback = "false"},
    WEFT_ROPE_AXES_FIELD(AT(axes), "[16, 56, 56]"),
    {"zero_cond_t", WEFT_FIELD_BOOL, AT(zero_cond), "false",
     .help = "images to edit have the timestep 0"},
    {"use_additional_t_cond", WEFT_FIELD_BOOL, AT(extra_cond), "false",
     .help = "a learned vector of the input 0 or 1 is added to the timestep's"},
    {"use_layer3d_rope", WEFT_FIELD_BOOL, AT(layered), "false",
     .help = "layers of an image: the last image of the tokens has the frame -1"},
};

static const weft_named_config sizes[] = {
    {"qwen-image", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states", .form = WEFT_VIDEO_PACKED},
    {WEFT_PORT_TIMESTEP,   false, "timestep", .unit = 1000},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_hidden_states_mask", .optional = true},
    {WEFT_PORT_LABEL,      false, "additional_t_cond"},
    {WEFT_PORT_POSITIONS,  false, "positions", .optional = true}, /* here: img_shapes */
    {WEFT_PORT_EDITED,     false, "image_latents", .form = WEFT_VIDEO_PACKED, .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample", .form = WEFT_VIDEO_PACKED},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "transformer_blocks.0.img_mod.1.weight", NULL, 0},
};

/* The template asks the language model to describe an image. Embeddings of the part before the
 * prompt are dropped. */
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512, .crop = 34,
     .hidden = {WEFT_HIDDEN_LAST},
     .before = "<|im_start|>system\nDescribe the image by detailing the color, shape, size, "
               "texture, quantity, text, spatial relationships of the objects and "
               "background:<|im_end|>\n<|im_start|>user\n",
     .after = "<|im_end|>\n<|im_start|>assistant\n"},
};

#define EDIT_BEFORE                                                                               \
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, "      \
    "texture, objects, background), then explain how the user's text instruction should alter "   \
    "or modify the image. Generate a new image that meets the user's requirements while "         \
    "maintaining consistency with the original input where appropriate.<|im_end|>\n"              \
    "<|im_start|>user\n"
#define EDIT_IMAGE "<|vision_start|><|image_pad|><|vision_end|>"
static const weft_edit_pipeline edit_pipelines[] = {
    {"QwenImageEditPipeline", 1, 1024 * 1024, 1024 * 1024, EDIT_BEFORE, EDIT_IMAGE,
     "<|image_pad|>", "<|im_end|>\n<|im_start|>assistant\n", 64},
    {"QwenImageEditPlusPipeline", WEFT_MAX_IMAGES, 1024 * 1024, 384 * 384, EDIT_BEFORE,
     "Picture #: <|vision_start|><|image_pad|><|vision_end|>", "<|image_pad|>",
     "<|im_end|>\n<|im_start|>assistant\n", 64},
    {NULL},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_qwen_image_dit = {
    .class_name = "QwenImageTransformer2DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "QwenImagePipeline",
    .autoencoder = "AutoencoderKLQwenImage", .frames = 1,
    .config_bytes = sizeof(qwen_image), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .guidance = "cfg_norm", .frame_condition = frame_condition,
    .frame_condition_help = "folders of QwenImageEditPipeline and QwenImageEditPlusPipeline: "
                            "images to edit",
    .edit_pipeline = edit_pipelines,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
