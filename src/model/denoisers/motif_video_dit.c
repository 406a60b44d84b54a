/* Motif-Video's diffusion transformer (diffusers' MotifVideoTransformer3DModel), text and image to
 * video. Parameters have the names of the public checkpoints.
 *
 *   latents --patch--> x (B,S,C); text --MLP-->, image --MLP--> y (B,L,C); timestep --MLP--> temb
 *   double blocks, then single blocks (model/denoisers/mmdit.h) on x and y
 *   decoder: the last single blocks, on the patches of the input, with x in the place of y
 *   tokens of the decoder --> norm, modulate, project --unpatch--> prediction
 *
 * Before the decoder, blocks may have an attention of x to the text alone. Tokens of x that the
 * decoder sees have no positions. All tokens of an image are visible.
 *
 * Shape letters: B batch, S video tokens, L tokens of image and text, C width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/mmdit.h"
#include "model/model.h"
#include "model/tp_recipes.h"

typedef struct motif_video {
    int64_t in_channels, out_channels, heads, head_dim, layers, single_layers, decoder_layers;
    double mlp_ratio;
    int64_t patch, patch_t, text_dim, image_dim; /* image_dim 0: no image tokens */
    double theta;
    int64_t axes[3];
    bool cross_double, cross_single;
} motif_video;
_Static_assert(sizeof(motif_video) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

enum { IMAGE_TOKENS = 4096 }; /* of the published image encoder */

static int64_t width_of(const motif_video *c)
{
    return c->heads * c->head_dim;
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_value embed_time(weft_graph *g, const motif_video *c, weft_value t_b)
{
    weft_graph_push(g, "time_text_embed");
    const weft_value temb =
        weft_nn_embedder(g, "timestep_embedder", weft_nn_sinusoid(g, WEFT_MMDIT_TIME, t_b),
                         width_of(c), WEFT_NN_SILU);
    weft_graph_pop(g);
    return temb;
}

/* Bias of the joined keys of `count` streams, whose last is the text. WEFT_NONE without a mask. */
static weft_value joint_bias(weft_graph *g, weft_value mask, const weft_mmdit_stream *stream,
                             int count)
{
    int64_t tokens = 0;
    for (int s = 0; s < count - 1; s++)
        tokens += weft_dim(g, stream[s].x, 1);
    return weft_mmdit_key_bias(g, mask, tokens);
}

/* Runs blocks of one kind from `first` up to `end`. */
static void run_blocks(weft_graph *g, const weft_mmdit *blocks, bool single, int64_t first,
                       int64_t end, weft_mmdit_stream *stream, int count, weft_value bias)
{
    for (int64_t i = first; i < end; i++) {
        weft_graph_push(g, single ? "single_transformer_blocks.%d" : "transformer_blocks.%d",
                        (int)i);
        if (single)
            weft_mmdit_single(g, blocks, stream, count, bias);
        else
            weft_mmdit_double(g, blocks, stream, count, bias);
        weft_graph_pop(g);
    }
}

/* Streams of the encoder: video, image if given, text. Returns their number. */
static int streams_of(weft_graph *g, const motif_video *c, const weft_ports *in, weft_value temb,
                      weft_mmdit_stream stream[WEFT_MMDIT_STREAMS])
{
    const int64_t patch[3] = {c->patch_t, c->patch, c->patch};
    int count = 0;
    stream[count++].x = weft_nn_patch(g, "x_embedder.proj", in->at[WEFT_PORT_LATENTS], width_of(c),
                                      patch, WEFT_PATCH_3D, true);
    const weft_value text = weft_nn_embedder(g, "context_embedder", in->at[WEFT_PORT_TEXT],
                                             width_of(c), WEFT_NN_GELU_TANH);
    if (c->image_dim) {
        const bool given = weft_value_ok(in->at[WEFT_PORT_IMAGE]);
        const weft_value none =
            weft_fill(g, WEFT_F32, WEFT_SHAPE(weft_dim(g, text, 0), 1, c->image_dim), 0);
        const weft_value image = weft_mmdit_image_tokens(g, given ? in->at[WEFT_PORT_IMAGE] : none,
                                                         width_of(c)); /* else not used */
        if (given)
            stream[count++] = (weft_mmdit_stream){.x = image, .text = true};
    }
    stream[count++] = (weft_mmdit_stream){.x = text, .text = true};
    for (int s = 0; s < count; s++)
        stream[s].temb_bc = temb;
    return count;
}

static weft_value forward(weft_graph *g, const motif_video *c, const weft_ports *in)
{
    const weft_value mask = in->at[WEFT_PORT_TEXT_MASK];
    const int64_t patch[3] = {c->patch_t, c->patch, c->patch},
                  encoders = c->single_layers - c->decoder_layers;
    weft_mmdit blocks = {.heads = c->heads,
                         .head_dim = c->head_dim,
                         .inner = (int64_t)((double)width_of(c) * c->mlp_ratio)};
    int64_t size[3];
    weft_mmdit_stream stream[WEFT_MMDIT_STREAMS] = {{.text = false}};
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_mmdit_video_rope(g, c->theta, c->axes, 0, size, stream[0].rope);
    const weft_value temb = embed_time(g, c, in->at[WEFT_PORT_TIMESTEP]);
    const int count = streams_of(g, c, in, temb, stream);
    const weft_value hidden = weft_value_ok(mask) ? weft_nn_hide(g, weft_cast(g, mask, WEFT_F32))
                                                  : WEFT_NONE,
                     bias = joint_bias(g, mask, stream, count), begin = stream[0].x;
    blocks.text_cross = c->cross_double ? &hidden : NULL;
    run_blocks(g, &blocks, false, 0, c->layers, stream, count, bias);
    blocks.text_cross = c->cross_single ? &hidden : NULL;
    run_blocks(g, &blocks, true, 0, encoders, stream, count, bias);
    if (c->decoder_layers > 0) {
        stream[1] = (weft_mmdit_stream){.x = stream[0].x, .temb_bc = temb, .text = true};
        stream[0].x = begin;
        blocks.text_cross = NULL;
        run_blocks(g, &blocks, true, encoders, c->single_layers, stream, 2, WEFT_NONE);
    }
    const weft_value x = weft_mmdit_last(g, &blocks, stream[0].x, temb,
                                         patch[0] * patch[1] * patch[2] * c->out_channels);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, x, c->out_channels), size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const motif_video *c = config;
    if (c->decoder_layers > c->single_layers)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "num_decoder_layers", c->decoder_layers),
                          "the decoder has more blocks than \"num_single_layers\" %" PRId64,
                          c->single_layers);
    return weft_check_axes(locations, "rope_axes_dim", c->axes, c->head_dim);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const motif_video *c = config;
    if (port == WEFT_PORT_IMAGE)
        return c->image_dim ? WEFT_SHAPE(s->batch, s->image ? s->image : IMAGE_TOKENS, c->image_dim)
                            : WEFT_SCALAR;
    return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] = forward(g, config, ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const motif_video *c = config;
    grid->factor[0] = c->patch_t;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const motif_video *c = config;
    if (c->in_channels == 2 * c->out_channels + 1)
        *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_CHANNELS,
                                       .mark_after = true,
                                       .also_none = true,
                                       .resized = true,
                                       .unrounded = true,
                                       .image_encoder = "text_encoder"};
}

/* clang-format off */
#define AT(member) offsetof(motif_video, member)
static const weft_field fields[] = {
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "33"),
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),
    WEFT_HEADS_FIELD(AT(heads), "24"),
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),
    {"num_layers", WEFT_FIELD_I64, AT(layers), "20", 0, 1024,
     .help = "blocks with separate layers for video and text"},
    {"num_single_layers", WEFT_FIELD_I64, AT(single_layers), "40", 0, 1024,
     .help = "blocks with the same layers for video and text"},
    {"num_decoder_layers", WEFT_FIELD_I64, AT(decoder_layers), "0", 0, 1024,
     .help = "number of the last blocks that run on the input, with the video in the place of "
             "the text"},
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "4.0"),
    WEFT_PATCH_FIELD(AT(patch), "2"),
    {"patch_size_t", WEFT_FIELD_I64, AT(patch_t), "1", 1, 64, .help = "latent frames of a token"},
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm\""},
    {"norm_type", WEFT_FIELD_FIXED, .fallback = "\"layer_norm\""},
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", AT(text_dim), "4096"),
    {"image_embed_dim", WEFT_FIELD_I64, AT(image_dim), "null", 1, 1 << 16,
     .help = "width of the image embeddings; null: no image tokens"},
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "256.0", 1, 1e9,
     .help = "base of the rotary frequencies"},
    {"rope_axes_dim", WEFT_FIELD_I64S, AT(axes), "[16, 56, 56]", 0, 4096, .capacity = 3,
     .length = weft_three,
     .help = "channels of a head that RoPE rotates by frames, rows and columns"},
    {"enable_text_cross_attention_dual", WEFT_FIELD_BOOL, AT(cross_double), "false",
     .help = "attention of the video to the text alone, in blocks with separate layers"},
    {"enable_text_cross_attention_single", WEFT_FIELD_BOOL, AT(cross_single), "false",
     .help = "attention of the video to the text alone, in other blocks before the decoder"},
};

static const weft_named_config sizes[] = {
    {"motif-video-2b",
     "{\"num_attention_heads\": 12, \"num_layers\": 12, \"num_single_layers\": 24,"
     " \"num_decoder_layers\": 8, \"text_embed_dim\": 2560, \"image_embed_dim\": 1152,"
     " \"enable_text_cross_attention_dual\": true, \"enable_text_cross_attention_single\": true}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_IMAGE,      false, "image_embeds", .optional = true},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "context_embedder.linear_1.weight", NULL, 0},
};

static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 512,
     .own_side = true},
};

/* Feature cache rule: the change of the first block's residual, measured on models of six blocks
 * relative to Wan (bench/cache.md). */
static bool has_decoder(const void *config)
{
    const motif_video *c = config;
    return c->decoder_layers > 0;
}
static const weft_feature_cache_row caches[] = {
    {has_decoder, 0, WEFT_SIGNAL_BLOCK, {0}, 0.03, 0.08, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.07, 0.13, 0},
};

const weft_family weft_family_motif_video_dit = {
    .class_name = "MotifVideoTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "MotifVideoPipeline",
    .autoencoder = "AutoencoderKLWan",
    .marks = {"num_decoder_layers", "enable_text_cross_attention_dual"},
    .config_bytes = sizeof(motif_video), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "with twice the latent channels and a mask: none or a first frame",
    .fps = 24,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
