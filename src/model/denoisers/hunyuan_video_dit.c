/* HunyuanVideo diffusion transformer (diffusers' HunyuanVideoTransformer3DModel), text to video
 * and both forms of image to video, and Framepack (HunyuanVideoFramepackTransformer3DModel), which
 * generates a section of a video. Parameters have the names of the public checkpoints.
 *
 *   latents --patch--> x (B,S,C); text --refiner--> y (B,L,C)
 *   timestep, guidance, pooled text --MLPs, summed--> temb (B,C)
 *   double blocks: separate layers for x and y, attention over both
 *   single blocks: the same layers for x and y, attention parallel to the feed-forward
 *   x --> norm, modulate, project --unpatch--> prediction
 *
 * Streams stay separate: only keys and values are joined, video first. With "token_replace", the
 * first latent frame is a given image: a separate stream, modulated with time 0.
 *
 * Framepack has a stream of tokens of other latent frames, in three sizes of patches: a
 * token is 1x2x2, 2x4x4 or 4x8x8 latents. All frames have given time positions; tokens of image
 * embeddings precede the text.
 * Shape letters: B batch, S video tokens, L text tokens, C width, D head width. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/denoisers/latent_history.h"
#include "model/denoisers/mmdit.h"
#include "model/denoisers/token_refiner.h"
#include "model/model.h"
#include "model/tp_recipes.h"
#include "nn/nn.h"

typedef struct hunyuan {
    int64_t in_channels, out_channels, heads, head_dim;
    int64_t layers, single_layers, refiner_layers;
    double mlp_ratio;
    int64_t patch, patch_t;
    bool guidance;
    int64_t text_dim, pooled_dim;
    double theta;
    int64_t axes[3];
    int64_t image;     /* enum image */
    int64_t image_dim; /* Framepack: width of the image embeddings; 0: not Framepack */
} hunyuan;
_Static_assert(sizeof(hunyuan) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

enum image { IMAGE_NONE, IMAGE_LATENTS, IMAGE_TOKENS };

static int64_t width_of(const hunyuan *c)
{
    return c->heads * c->head_dim;
}

static int64_t inner_of(const hunyuan *c)
{
    return (int64_t)((double)width_of(c) * c->mlp_ratio);
}

/* Bias of the joined keys (B,S+L). The number of real text keys is the sum of the mask. */
static weft_value key_bias(weft_graph *g, weft_value mask_bl, int64_t video)
{
    const int64_t batch = weft_dim(g, mask_bl, 0), text = weft_dim(g, mask_bl, 1);
    float *position = weft_calloc(text, sizeof *position);
    if (!position)
        return weft_graph_fail(g, WEFT_MSG_OUT_OF_MEMORY, "out of memory for %" PRId64 " positions",
                               text);
    for (int64_t i = 0; i < text; i++)
        position[i] = (float)i;
    const weft_value positions = weft_constant(g, WEFT_F32, WEFT_SHAPE(1, text), position);
    weft_free(position);
    const weft_value count = weft_sum(g, mask_bl, 1u << 1);
    const weft_value seen = weft_clamp(g, weft_sub(g, count, positions), 0, 1);
    return weft_concat(
        g,
        (weft_value[]){weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, video), 0), weft_nn_hide(g, seen)},
        2, 1);
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Conditioning of every block: temb, and temb of a given image, at time 0 and without guidance. */
static void embed_condition(weft_graph *g, const hunyuan *c, const weft_ports *in,
                            weft_value *temb_bc, weft_value *image_bc)
{
    const int64_t width = width_of(c);
    const weft_value t = in->at[WEFT_PORT_TIMESTEP];
    weft_graph_push(g, "time_text_embed");
    weft_graph_push(g, "timestep_embedder");
    const weft_nn_layer first = weft_nn_linear_of(g, "linear_1", WEFT_MMDIT_TIME, width, true,
                                                  WEFT_LINEAR_XAVIER),
                        second = weft_nn_linear_of(g, "linear_2", width, width, true,
                                                   WEFT_LINEAR_XAVIER);
    weft_value time[2] = {t, weft_affine(g, t, 0, 0)};
    for (int i = 0; i < (c->image == IMAGE_TOKENS ? 2 : 1); i++) {
        time[i] = weft_nn_linear_by(g, &first, weft_nn_sinusoid(g, WEFT_MMDIT_TIME, time[i]));
        time[i] = weft_nn_linear_by(g, &second, weft_unary(g, WEFT_OP_SILU, time[i]));
    }
    weft_graph_pop(g);
    const weft_value pooled =
        weft_nn_embedder(g, "text_embedder", in->at[WEFT_PORT_POOLED], width, WEFT_NN_SILU);
    if (c->guidance)
        time[0] = weft_add(
            g, time[0],
            weft_nn_embedder(g, "guidance_embedder",
                             weft_nn_sinusoid(g, WEFT_MMDIT_TIME, in->at[WEFT_PORT_GUIDANCE]),
                             width, WEFT_NN_SILU));
    weft_graph_pop(g);
    *temb_bc = weft_add(g, time[0], pooled);
    *image_bc = c->image == IMAGE_TOKENS ? weft_add(g, time[1], pooled) : *temb_bc;
}

/* Splits the video tokens into one stream, or into the given frame and the rest. Returns the number
 * of streams. */
static int video_streams(weft_graph *g, const hunyuan *c, weft_value x, const int64_t size[3],
                         weft_value temb_bc, weft_value image_bc, weft_mmdit_stream *stream)
{
    const int64_t frame = size[1] * size[2];
    const bool apart = c->image == IMAGE_TOKENS;
    int count = 0;
    for (int64_t first = 0; first < size[0]; count++) {
        const int64_t frames = apart && first == 0 ? 1 : size[0] - first;
        stream[count].text = stream[count].last = false;
        stream[count].temb_bc = apart && first == 0 ? image_bc : temb_bc;
        stream[count].x =
            frames == size[0] ? x : weft_slice(g, x, 1, first * frame, frames * frame);
        weft_mmdit_video_rope(g, c->theta, c->axes, first, (int64_t[]){frames, size[1], size[2]},
                              stream[count].rope);
        first += frames;
    }
    return count;
}

static weft_value refine_text(weft_graph *g, const hunyuan *c, const weft_ports *in,
                              weft_value mask_bl)
{
    const weft_token_refiner refiner = {.heads = c->heads,
                                        .head_dim = c->head_dim,
                                        .layers = c->refiner_layers,
                                        .first_visible = true};
    return weft_token_refine(g, &refiner, in->at[WEFT_PORT_TEXT], mask_bl,
                             in->at[WEFT_PORT_TIMESTEP]);
}

/* Runs all blocks; the text is stream `videos`. */
static void run_blocks(weft_graph *g, const hunyuan *c, weft_mmdit_stream *stream, int videos,
                       weft_value bias)
{
    const weft_mmdit blocks = {.heads = c->heads, .head_dim = c->head_dim, .inner = inner_of(c)};
    for (int64_t i = 0; i < c->layers; i++) {
        weft_graph_push(g, "transformer_blocks.%d", (int)i);
        weft_mmdit_double(g, &blocks, stream, videos + 1, bias);
        weft_graph_pop(g);
    }
    for (int64_t i = 0; i < c->single_layers; i++) {
        weft_graph_push(g, "single_transformer_blocks.%d", (int)i);
        weft_mmdit_single(g, &blocks, stream, videos + 1, bias);
        weft_graph_pop(g);
    }
}

static weft_value forward(weft_graph *g, const hunyuan *c, const weft_ports *in)
{
    const weft_mmdit blocks = {.heads = c->heads, .head_dim = c->head_dim, .inner = inner_of(c)};
    const int64_t patch[3] = {c->patch_t, c->patch, c->patch};
    int64_t size[3];
    weft_mmdit_stream stream[WEFT_MMDIT_STREAMS];
    weft_value temb_bc, image_bc;
    weft_nn_count_tokens(g, in->at[WEFT_PORT_LATENTS], patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const weft_value mask_bl =
        weft_token_mask(g, in->at[WEFT_PORT_TEXT_MASK], in->at[WEFT_PORT_TEXT]);
    const weft_value x = weft_nn_patch(g, "x_embedder.proj", in->at[WEFT_PORT_LATENTS], width_of(c),
                                       patch, WEFT_PATCH_3D, true);
    embed_condition(g, c, in, &temb_bc, &image_bc);
    const weft_value text = refine_text(g, c, in, mask_bl);
    const int videos = video_streams(g, c, x, size, temb_bc, image_bc, stream);
    stream[videos].x = text;
    stream[videos].temb_bc = temb_bc;
    stream[videos].text = true;
    stream[videos].last = false;
    run_blocks(g, c, stream, videos, key_bias(g, mask_bl, size[0] * size[1] * size[2]));
    weft_value parts[WEFT_MMDIT_STREAMS];
    for (int s = 0; s < videos; s++)
        parts[s] = stream[s].x;
    const weft_value last =
        weft_mmdit_last(g, &blocks, videos > 1 ? weft_concat(g, parts, videos, 1) : parts[0],
                        temb_bc, patch[0] * patch[1] * patch[2] * c->out_channels);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, last, c->out_channels), size, patch);
}

/* ---- Framepack ------------------------------------------------------------------------------ */

static const char *const history_layers[] = {"proj", "proj_2x", "proj_4x"};

/* Streams of the history and of x, with their rotary tables. A history that is not given is zeros,
 * as at the end of a video. */
static void pack_video(weft_graph *g, const hunyuan *c, const weft_ports *in, weft_value x,
                       const int64_t size[3], weft_mmdit_stream *stream)
{
    const weft_value latents = in->at[WEFT_PORT_LATENTS];
    const weft_latent_history history = {.width = width_of(c),
                                         .layer = history_layers,
                                         .theta = c->theta,
                                         .axes = c->axes,
                                         .size = {size[1], size[2]}};
    weft_history_part part[WEFT_LATENT_HISTORIES];
    int64_t first = 1 + size[0];
    for (int i = 0; i < WEFT_LATENT_HISTORIES; i++) {
        part[i] = weft_latent_history_part(g, in, i, latents);
        const int64_t frames = weft_dim(g, part[i].latents, 1);
        part[i].index = weft_latent_history_index(g, part[i].index, part[i].latents, first, frames);
        first += frames;
    }
    const weft_value index =
        weft_latent_history_index(g, in->at[WEFT_PORT_INDEX], latents, 1, size[0]);
    stream[1] = (weft_mmdit_stream){.x = x};
    weft_latent_history_rope(g, &history, index, 1, stream[1].rope);
    weft_graph_push(g, "clean_x_embedder");
    stream[0] = (weft_mmdit_stream){0};
    stream[0].x = weft_latent_history_tokens(g, &history, part, stream[0].rope);
    weft_graph_pop(g);
}

/* Image embeddings (B,I,image_dim), projected, before the text; *mask_bl becomes the mask of both.
 * An image that is not given is one embedding of zeros. */
static weft_value with_image(weft_graph *g, const hunyuan *c, weft_value image, weft_value text,
                             weft_value *mask_bl)
{
    const int64_t width = width_of(c), batch = weft_dim(g, text, 0);
    if (!weft_value_ok(image))
        image = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, 1, c->image_dim), 0);
    weft_graph_push(g, "image_projection");
    weft_value h = weft_nn_linear(g, "up", image, 3 * width, WEFT_LINEAR_XAVIER);
    h = weft_nn_linear(g, "down", weft_unary(g, WEFT_OP_SILU, h), width, WEFT_LINEAR_XAVIER);
    weft_graph_pop(g);
    const weft_value masks[] = {weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, weft_dim(g, image, 1)), 1),
                                *mask_bl};
    *mask_bl = weft_concat(g, masks, 2, 1);
    return weft_concat(g, (weft_value[]){h, text}, 2, 1);
}

static weft_value forward_section(weft_graph *g, const hunyuan *c, const weft_ports *in)
{
    const weft_mmdit blocks = {.heads = c->heads, .head_dim = c->head_dim, .inner = inner_of(c)};
    const int64_t patch[3] = {c->patch_t, c->patch, c->patch};
    const weft_value latents = in->at[WEFT_PORT_LATENTS];
    int64_t size[3];
    weft_mmdit_stream stream[WEFT_MMDIT_STREAMS];
    weft_value temb_bc, image_bc;
    weft_nn_count_tokens(g, latents, patch, size);
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    weft_value mask_bl = weft_token_mask(g, in->at[WEFT_PORT_TEXT_MASK], in->at[WEFT_PORT_TEXT]);
    const weft_value x =
        weft_nn_patch(g, "x_embedder.proj", latents, width_of(c), patch, WEFT_PATCH_3D, true);
    embed_condition(g, c, in, &temb_bc, &image_bc);
    const weft_value text = refine_text(g, c, in, mask_bl);
    pack_video(g, c, in, x, size, stream);
    stream[2] = (weft_mmdit_stream){.x = with_image(g, c, in->at[WEFT_PORT_IMAGE], text, &mask_bl),
                                    .text = true};
    for (int i = 0; i < 3; i++)
        stream[i].temb_bc = temb_bc;
    if (weft_graph_check(g) != WEFT_OK)
        return WEFT_NONE;
    const int64_t videos = weft_dim(g, stream[0].x, 1) + weft_dim(g, x, 1);
    run_blocks(g, c, stream, 2, key_bias(g, mask_bl, videos));
    const weft_value last = weft_mmdit_last(g, &blocks, stream[1].x, temb_bc,
                                            patch[0] * patch[1] * patch[2] * c->out_channels);
    return weft_nn_unpatch(g, weft_nn_channels_last(g, last, c->out_channels), size, patch);
}

/* ---- the family ----------------------------------------------------------------------------- */

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const hunyuan *c = config;
    return weft_check_axes(locations, "rope_axes_dim", c->axes, c->head_dim);
}

static weft_status section_check(const void *config, const weft_config_locations *locations)
{
    const hunyuan *c = config;
    if (c->patch != 2)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "patch_size", c->patch),
                          "the history has patches of 2, 4 and 8 latents; use 2, not %" PRId64,
                          c->patch);
    if (c->patch_t != 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "patch_size_t", c->patch_t),
                          "each latent frame has a time position; use 1, not %" PRId64, c->patch_t);
    return check(config, locations);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hunyuan *c = config;
    switch (port) {
    case WEFT_PORT_POOLED: return WEFT_SHAPE(s->batch, c->pooled_dim);
    case WEFT_PORT_GUIDANCE: return c->guidance ? WEFT_SHAPE(s->batch) : WEFT_SCALAR;
    default: return weft_denoiser_shape(s, port, c->in_channels, c->text_dim);
    }
}

static weft_shape section_shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hunyuan *c = config;
    const weft_shape history = weft_latent_history_shape(s, port, c->in_channels);
    if (history.rank)
        return history;
    if (port == WEFT_PORT_IMAGE)
        return WEFT_SHAPE(s->batch, s->image, c->image_dim);
    return shape(config, s, port);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const hunyuan *c = config;
    (void)call;
    ports->at[WEFT_PORT_PREDICTION] =
        c->image_dim ? forward_section(g, c, ports) : forward(g, c, ports);
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    const hunyuan *c = config;
    if (c->image == IMAGE_LATENTS)
        *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_CHANNELS,
                                       .mark_after = true,
                                       .image_token_step = 2,
                                       .image_noise_share = 0.001,
                                       .lead = 1};
    else if (c->image == IMAGE_TOKENS)
        *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_IMPLICIT,
                                       .image_token_step = 4,
                                       .image_noise_share = 0.001};
}

static void section_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    *cond = (weft_frame_condition){
        .form = WEFT_FRAME_CONDITION_HISTORY, .resized = true, .last = true, .section = 9};
}

static void grid(const void *config, weft_grid *grid)
{
    const hunyuan *c = config;
    grid->factor[0] = c->patch_t;
    grid->factor[1] = grid->factor[2] = c->patch;
    grid->channels = c->in_channels;
    grid->out_channels = c->out_channels;
}

/* clang-format off */
static const char *const image_words[] = {"null", "\"latent_concat\"", "\"token_replace\"", NULL};
#define AT(member) offsetof(hunyuan, member)
#define COMMON_FIELDS                                                                             \
    WEFT_LATENTS_IN_FIELD(AT(in_channels), "16"),                                                 \
    WEFT_LATENTS_OUT_FIELD(AT(out_channels), "16"),                                               \
    WEFT_HEADS_FIELD(AT(heads), "24"),                                                            \
    WEFT_HEAD_WIDTH_FIELD(AT(head_dim), "128"),                                                   \
    {"num_layers", WEFT_FIELD_I64, AT(layers), "20", 0, 1024,                                     \
     .help = "blocks with separate layers for video and text"},                                   \
    {"num_single_layers", WEFT_FIELD_I64, AT(single_layers), "40", 0, 1024,                       \
     .help = "blocks with shared layers"},                                                        \
    {"num_refiner_layers", WEFT_FIELD_I64, AT(refiner_layers), "2", 0, 1024,                      \
     .help = "blocks over text tokens only"},                                                     \
    WEFT_MLP_RATIO_FIELD(AT(mlp_ratio), "4.0"),                                                   \
    WEFT_PATCH_FIELD(AT(patch), "2"),                                                             \
    {"patch_size_t", WEFT_FIELD_I64, AT(patch_t), "1", 1, 64, .help = "latent frames of a token"},\
    {"qk_norm", WEFT_FIELD_FIXED, .fallback = "\"rms_norm\""},                                    \
    {"guidance_embeds", WEFT_FIELD_BOOL, AT(guidance), "true",                                    \
     .help = "embedded guidance: the guidance scale x 1000 is an input"},                         \
    WEFT_TEXT_WIDTH_FIELD("text_embed_dim", AT(text_dim), "4096"),                                \
    {"pooled_projection_dim", WEFT_FIELD_I64, AT(pooled_dim), "768", 1, 1 << 16,                  \
     .help = "width of the pooled embedding"},                                                    \
    {"rope_theta", WEFT_FIELD_F64, AT(theta), "256.0", 1, 1e9,                                    \
     .help = "base of the rotary frequencies"},                                                   \
    {"rope_axes_dim", WEFT_FIELD_I64S, AT(axes), "[16, 56, 56]", 0, 4096, .capacity = 3,          \
     .length = weft_three,                                                                        \
     .help = "channels of a head that RoPE rotates by frames, rows and columns"}

static const weft_field fields[] = {
    COMMON_FIELDS,
    {"image_condition_type", WEFT_FIELD_WORD, AT(image), .words = image_words,
     .help = "image to video: the image is more channels, or the first frame's tokens"},
};

static const weft_field section_fields[] = {
    COMMON_FIELDS,
    {"image_condition_type", WEFT_FIELD_FIXED, .fallback = "null"},
    {"has_image_proj", WEFT_FIELD_FIXED, .fallback = "true"},
    {"image_proj_dim", WEFT_FIELD_I64, AT(image_dim), "1152", 1, 1 << 16,
     .help = "width of the image embeddings"},
    {"has_clean_x_embedder", WEFT_FIELD_FIXED, .fallback = "true"},
};

static const weft_named_config sizes[] = {
    {"hunyuan-video", "{}"},
    {"hunyuan-video-i2v", "{\"in_channels\": 33, \"guidance_embeds\": false,"
                          " \"image_condition_type\": \"latent_concat\"}"},
    {"hunyuan-video-i2v-replace", "{\"image_condition_type\": \"token_replace\"}"},
    {NULL, NULL},
};
static const weft_named_config section_sizes[] = {
    {"framepack", "{}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_LATENTS,    false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,   false, "timestep"},
    {WEFT_PORT_TEXT,       false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,  false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_POOLED,     false, "pooled_projections"},
    {WEFT_PORT_GUIDANCE,   false, "guidance"},
    {WEFT_PORT_PREDICTION, true,  "sample"},
};

static const weft_port_row section_ports[] = {
    {WEFT_PORT_LATENTS,          false, "hidden_states"},
    {WEFT_PORT_TIMESTEP,         false, "timestep"},
    {WEFT_PORT_TEXT,             false, "encoder_hidden_states"},
    {WEFT_PORT_TEXT_MASK,        false, "encoder_attention_mask", .optional = true},
    {WEFT_PORT_POOLED,           false, "pooled_projections"},
    {WEFT_PORT_GUIDANCE,         false, "guidance"},
    {WEFT_PORT_IMAGE,            false, "image_embeds", .optional = true},
    {WEFT_PORT_INDEX,            false, "indices_latents", .optional = true},
    {WEFT_PORT_HISTORY,          false, "latents_clean", .optional = true},
    {WEFT_PORT_HISTORY_2X,       false, "latents_history_2x", .optional = true},
    {WEFT_PORT_HISTORY_4X,       false, "latents_history_4x", .optional = true},
    {WEFT_PORT_HISTORY_INDEX,    false, "indices_latents_clean", .optional = true},
    {WEFT_PORT_HISTORY_2X_INDEX, false, "indices_latents_history_2x", .optional = true},
    {WEFT_PORT_HISTORY_4X_INDEX, false, "indices_latents_history_4x", .optional = true},
    {WEFT_PORT_PREDICTION,       true,  "sample"},
};

/* Key mapping of Tencent's files, and of ComfyUI's variants ("img_attn.qkv", "img_mlp.0"). */
static const weft_rename_rule original[] = {
    {"img_attn.qkv",                        "img_attn_qkv"},
    {"img_attn.proj",                       "img_attn_proj"},
    {"img_attn.norm.query_norm.scale",      "img_attn_q_norm.weight"},
    {"img_attn.norm.key_norm.scale",        "img_attn_k_norm.weight"},
    {"txt_attn.qkv",                        "txt_attn_qkv"},
    {"txt_attn.proj",                       "txt_attn_proj"},
    {"txt_attn.norm.query_norm.scale",      "txt_attn_q_norm.weight"},
    {"txt_attn.norm.key_norm.scale",        "txt_attn_k_norm.weight"},
    {"norm.query_norm.scale",               "q_norm.weight"},
    {"norm.key_norm.scale",                 "k_norm.weight"},
    {"self_attn.qkv",                       "self_attn_qkv"},
    {"self_attn.proj",                      "self_attn_proj"},
    {"lin",                                 "linear"},
    {"t_embedder.in_layer",                 "t_embedder.mlp.0"},
    {"t_embedder.out_layer",                "t_embedder.mlp.2"},
    {"time_in.in_layer",                    "time_in.mlp.0"},
    {"time_in.out_layer",                   "time_in.mlp.2"},
    {"guidance_in.in_layer",                "guidance_in.mlp.0"},
    {"guidance_in.out_layer",               "guidance_in.mlp.2"},
    {"c_embedder.in_layer",                 "c_embedder.linear_1"},
    {"c_embedder.out_layer",                "c_embedder.linear_2"},
#define COMFY 21 /* number of rules above, for ComfyUI's names */

    {"blocks.#.mlp.fc1",                    "blocks.#.mlp.0"},
    {"blocks.#.mlp.fc2",                    "blocks.#.mlp.2"},
    {"img_mlp.fc1",                         "img_mlp.0"},
    {"img_mlp.fc2",                         "img_mlp.2"},
    {"txt_mlp.fc1",                         "txt_mlp.0"},
    {"txt_mlp.fc2",                         "txt_mlp.2"},
    {"img_in.proj",                         "x_embedder.proj"},
    {"txt_in.t_embedder.mlp.0",             
     "context_embedder.time_text_embed.timestep_embedder.linear_1"},
    {"txt_in.t_embedder.mlp.2",             
     "context_embedder.time_text_embed.timestep_embedder.linear_2"},
    {"txt_in.c_embedder",                   "context_embedder.time_text_embed.text_embedder"},
    {"txt_in.input_embedder",               "context_embedder.proj_in"},
    {"txt_in.individual_token_refiner.blocks", "context_embedder.token_refiner.refiner_blocks"},
    {"refiner_blocks.#.self_attn_qkv",      "refiner_blocks.#.attn.{to_q,to_k,to_v}"},
    {"refiner_blocks.#.self_attn_proj",     "refiner_blocks.#.attn.to_out.0"},
    {"refiner_blocks.#.mlp.0",              "refiner_blocks.#.ff.net.0.proj"},
    {"refiner_blocks.#.mlp.2",              "refiner_blocks.#.ff.net.2"},
    {"refiner_blocks.#.adaLN_modulation.1", "refiner_blocks.#.norm_out.linear"},
    {"time_in.mlp.0",                       "time_text_embed.timestep_embedder.linear_1"},
    {"time_in.mlp.2",                       "time_text_embed.timestep_embedder.linear_2"},
    {"vector_in.in_layer",                  "time_text_embed.text_embedder.linear_1"},
    {"vector_in.out_layer",                 "time_text_embed.text_embedder.linear_2"},
    {"guidance_in.mlp.0",                   "time_text_embed.guidance_embedder.linear_1"},
    {"guidance_in.mlp.2",                   "time_text_embed.guidance_embedder.linear_2"},
    {"final_layer.adaLN_modulation.1",      "~norm_out.linear"}, /* shift, scale there */
    {"final_layer.linear",                  "proj_out"},

#define DOUBLE(theirs, ours) {"double_blocks.#." theirs, "transformer_blocks.#." ours}
    DOUBLE("img_mod",         "norm1"),
    DOUBLE("txt_mod",         "norm1_context"),
    DOUBLE("img_attn_q_norm", "attn.norm_q"),
    DOUBLE("img_attn_k_norm", "attn.norm_k"),
    DOUBLE("img_attn_qkv",    "attn.{to_q,to_k,to_v}"),
    DOUBLE("img_attn_proj",   "attn.to_out.0"),
    DOUBLE("txt_attn_q_norm", "attn.norm_added_q"),
    DOUBLE("txt_attn_k_norm", "attn.norm_added_k"),
    DOUBLE("txt_attn_qkv",    "attn.{add_q_proj,add_k_proj,add_v_proj}"),
    DOUBLE("txt_attn_proj",   "attn.to_add_out"),
    DOUBLE("img_mlp.0",       "ff.net.0.proj"),
    DOUBLE("img_mlp.2",       "ff.net.2"),
    DOUBLE("txt_mlp.0",       "ff_context.net.0.proj"),
    DOUBLE("txt_mlp.2",       "ff_context.net.2"),

#define SINGLE(theirs, ours) {"single_blocks.#." theirs, "single_transformer_blocks.#." ours}
    SINGLE("modulation",      "norm"),
    SINGLE("q_norm",          "attn.norm_q"),
    SINGLE("k_norm",          "attn.norm_k"),
    SINGLE("linear1",         "{attn.to_q,attn.to_k,attn.to_v,proj_mlp}"),
    SINGLE("linear2",         "proj_out"),
};

static const weft_key_mapping mappings[] = {
    {"diffusers", "context_embedder.token_refiner.refiner_blocks.0.attn.to_q.weight", NULL, 0},
    {"original",  "txt_in.individual_token_refiner.blocks.0.norm1.weight", original,
     sizeof original / sizeof *original, COMFY},
};

/* Prompt template for image to video, with the image as input of the language model. */
#define ASPECTS                                                                                   \
    "1. The main content and theme of the video."                                                 \
    "2. The color, shape, size, texture, quantity, text, and spatial relationships of the "       \
    "objects."                                                                                    \
    "3. Actions, events, behaviors temporal relationships, physical movement changes of the "     \
    "objects."                                                                                    \
    "4. background environment, light, style and atmosphere."                                     \
    "5. camera angles, movements, and transitions used in the video:<|eot_id|>"
static const weft_vision_input vision = {
    .before = "<|start_header_id|>system<|end_header_id|>\n\n<image>\nDescribe the video by "
              "detailing the following aspects according to the reference image: " ASPECTS
              "\n\n<|start_header_id|>user<|end_header_id|>\n\n",
    .after = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    .crop = 103, .image = "<image>", .closes = "<|end_header_id|>",
    .at = 5, .patches = 576, .cut = 4, .closings = 3,
};

/* The template asks the language model to describe a video. Embeddings of the template are
 * dropped. */
static const weft_text_encoder_row text_encoders[] = {
    {"text_encoder", "tokenizer", WEFT_PORT_TEXT, WEFT_PORT_TEXT_MASK, .length = 256,
     .crop = 95, .vision = &vision,
     .before = "<|start_header_id|>system<|end_header_id|>\n\nDescribe the video by detailing the "
               "following aspects: " ASPECTS "<|start_header_id|>user<|end_header_id|>\n\n",
     .after = "<|eot_id|>"},
    {"text_encoder_2", "tokenizer_2", .pooled = WEFT_PORT_POOLED, .length = 77},
};

/* Feature cache rules: TeaCache's polynomial and thresholds as published. Other sizes: the change
 * of the first block's residual (FBCache's threshold, and twice that). */
static bool is_published(const void *config)
{
    const hunyuan *c = config;
    return c->layers == 20 && c->single_layers == 40 && c->heads == 24;
}
static const weft_feature_cache_row caches[] = {
    {is_published, 0, WEFT_SIGNAL_INPUT,
     {7.33226126e2, -4.01131952e2, 6.75869174e1, -3.14987800e0, 9.61237896e-2}, 0.1, 0.15, 0},
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.06, 0.12, 0},
};

const weft_family weft_family_hunyuan_video_dit = {
    .class_name = "HunyuanVideoTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "HunyuanVideoPipeline",
    .autoencoder = "AutoencoderKLHunyuanVideo",
    .image_pipeline = "HunyuanVideoImageToVideoPipeline",
    .marks = {"num_refiner_layers", "num_single_layers"},
    .config_bytes = sizeof(hunyuan), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "with image_condition_type latent_concat or token_replace: first frame",
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .noise_levels = WEFT_LEVELS_EVEN,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};

static const weft_key_mapping section_mappings[] = {
    {"diffusers", "clean_x_embedder.proj.weight", NULL, 0},
};

const weft_family weft_family_framepack_dit = {
    .class_name = "HunyuanVideoFramepackTransformer3DModel",
    .also = "HunyuanVideoTransformer3DModelPacked", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches + 1, .caches = 1,
    .library = "diffusers", .pipeline = "HunyuanVideoFramepackPipeline",
    .autoencoder = "AutoencoderKLHunyuanVideo",
    .marks = {"has_clean_x_embedder", "num_single_layers"},
    .config_bytes = sizeof(hunyuan), .field = section_fields,
    .fields = sizeof section_fields / sizeof *section_fields,
    .check = section_check, .sizes = section_sizes,
    .port = section_ports, .ports = sizeof section_ports / sizeof *section_ports,
    .shape = section_shape, .build = build, .grid = grid,
    .text_encoder = text_encoders, .text_encoders = sizeof text_encoders / sizeof *text_encoders,
    .frame_condition = section_condition,
    .frame_condition_help = "first frame, optionally with a last one",
    .noise_levels = WEFT_LEVELS_EVEN_SHIFT7, .fps = 30,
    .mapping = section_mappings, .mappings = sizeof section_mappings / sizeof *section_mappings,
    .recipe = weft_split_blocks, .recipes = WEFT_SPLIT_LISTS,
};
/* clang-format on */
