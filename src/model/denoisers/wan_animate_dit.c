/* Wan Animate diffusion transformers (diffusers' WanAnimateTransformer3DModel): Wan's
 * image-to-video model with a video of poses and a video of a face. The first latent frame is the
 * image of the character.
 *
 *   poses --patch--> added to the tokens of the frames after the first
 *   face  --motion encoder--> a vector per frame --face encoder--> N tokens per latent frame
 *   x = block(x);  x += adapter(x, face tokens), after every n-th block
 *
 * An adapter is attention inside latent frames: a token attends to the face tokens of its frame.
 * The motion encoder is StyleGAN 2's discriminator (Karras et al. 2020): weights have a deviation
 * of 1 and are scaled when they are used, and the image is blurred before it is halved. Its last
 * layer combines orthonormal directions of motion (Wang et al. 2022, "Latent Image Animator").
 * Shape letters: B batch, S video tokens, T latent frames, F frames of the face, N face tokens,
 * C width, H heads, D head width. */
#include "graph/builder_helpers.h"
#include "model/config_fields.h"
#include "model/denoisers/wan_blocks.h"
#include "model/model.h"
#include "nn/orthonormal.h"

#include <math.h>

/* Sides of the motion encoder's images: 4, 8 ... 1024. */
enum { SIDES = 9, FIRST_SIDE = 4, LAYERS = 5, TAPS = 3, MASK_FRAMES = 4 };

typedef struct animate {
    weft_wan wan;
    int64_t latents;         /* channels of the latents of poses and image */
    int64_t channels[SIDES]; /* of the motion encoder at each side; all 0: `published` */
    int64_t side, style, motion, vector;
    int64_t face_width, face_heads, every;
} animate;
_Static_assert(sizeof(animate) <= WEFT_MODEL_CONFIG_BYTES, "the config must fit into a weft_model");

static const int64_t published[SIDES] = {512, 512, 512, 512, 256, 128, 64, 32, 16};

/* Index of the largest side. */
static int last_side(const animate *c)
{
    int i = 0;
    while (i < SIDES - 1 && FIRST_SIDE << i < c->side)
        i++;
    return i;
}

static int64_t channels_at(const animate *c, int side)
{
    int64_t sum = 0;
    for (int i = 0; i < SIDES; i++)
        sum += c->channels[i];
    return sum ? c->channels[side] : published[side];
}

/* ---- config --------------------------------------------------------------------------------- */

static weft_status check_motion(const animate *c, const weft_config_locations *locations)
{
    if (FIRST_SIDE << last_side(c) != c->side)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "motion_encoder_size", c->side),
                          "the side of the face is halved down to %d, so it must be a power of two "
                          "from %d to %d",
                          FIRST_SIDE, FIRST_SIDE, FIRST_SIDE << (SIDES - 1));
    for (int i = 0; i <= last_side(c); i++)
        if (!channels_at(c, i))
            return weft_error(WEFT_MSG_MODEL_CONFIG,
                              WEFT_AT_FIELD(locations, "motion_encoder_channel_sizes",
                                            (int64_t)(FIRST_SIDE << i)),
                              "channels at the side %d are needed for \"motion_encoder_size\" "
                              "%" PRId64,
                              FIRST_SIDE << i, c->side);
    if (c->motion > c->vector)
        return weft_error(WEFT_MSG_MODEL_CONFIG, WEFT_AT_FIELD(locations, "motion_dim", c->motion),
                          "%" PRId64 " orthogonal directions need \"motion_encoder_dim\" of at "
                          "least as many; it is %" PRId64,
                          c->motion, c->vector);
    return WEFT_OK;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const animate *c = config;
    const int64_t given = 2 * c->latents + MASK_FRAMES;
    if (c->wan.in_channels != given)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "in_channels", c->wan.in_channels),
                          "noisy latents, %d channels of a mask and the latents of given frames "
                          "are 2 x \"latent_channels\" + %d = %" PRId64,
                          MASK_FRAMES, MASK_FRAMES, given);
    if (c->wan.patch[0] != 1)
        return weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                          WEFT_AT_FIELD(locations, "patch_size", c->wan.patch[0]),
                          "a token has one latent frame, because poses begin at the second");
    if (c->wan.layers % c->every)
        return weft_error(WEFT_MSG_MODEL_CONFIG,
                          WEFT_AT_FIELD(locations, "inject_face_latents_blocks", c->every),
                          "every %" PRId64 "th block has an adapter after it, so num_layers must "
                          "be a multiple; it is %" PRId64,
                          c->every, c->wan.layers);
    WEFT_TRY(check_motion(c, locations));
    return weft_wan_check(config, locations);
}

/* Default of in_channels. */
static int64_t channels_in(const void *config)
{
    return 2 * ((const animate *)config)->latents + MASK_FRAMES;
}

/* ---- motion encoder ------------------------------------------------------------------------- */

static weft_value parameter(weft_graph *g, const char *name, weft_shape shape, double deviation)
{
    return weft_param(g, name, WEFT_F32, shape,
                      deviation > 0 ? (weft_init){.kind = WEFT_INIT_NORMAL, .value = deviation}
                                    : (weft_init){.kind = WEFT_INIT_ZERO});
}

/* max(x, x / 5) sqrt(2) */
static weft_value leaky(weft_graph *g, weft_value x)
{
    const double root = sqrt(2), least = 0.2, largest = 3e38;
    return weft_add(g, weft_affine(g, x, least * root, 0),
                    weft_affine(g, weft_clamp(g, x, 0, largest), (1 - least) * root, 0));
}

/* Matrix that adds the blur to the kernel of a convolution. The blur is 1 3 3 1 in both directions.
 * It extends a kernel of `side` rows and columns to side + TAPS. */
static weft_value blur_matrix(weft_graph *g, int64_t side, double scale)
{
    static const double blur[TAPS + 1] = {0.125, 0.375, 0.375, 0.125};
    const int64_t wide = side + TAPS, rows = side * side, columns = wide * wide;
    float *to = weft_arena_calloc(weft_graph_arena(g), rows * columns, sizeof *to);
    for (int64_t i = 0; to && i < rows * columns; i++) {
        const int64_t from = i / columns, y = i % columns / wide - from / side,
                      x = i % wide - from % side;
        if (y >= 0 && y <= TAPS && x >= 0 && x <= TAPS)
            to[i] = (float)(blur[y] * blur[x] * scale);
    }
    return to ? weft_constant(g, WEFT_F32, WEFT_SHAPE(rows, columns), to) : WEFT_NONE;
}

/* Convolution of each frame x (B,F,Y,X,I) with a kernel of `side` rows and columns. `half`: blurs
 * and halves the frame. `active`: a bias and the activation follow. */
static weft_value convolve(weft_graph *g, const char *name, weft_value x, int64_t out, int64_t side,
                           int64_t padding, bool half, bool active)
{
    const int64_t in = weft_dim(g, x, 4), wide = half ? side + TAPS : side, step = half ? 2 : 1,
                  edge = half ? (side + 1) / 2 : padding;
    const weft_conv_shape shape = {.kernel = {1, wide, wide},
                                   .stride = {1, step, step},
                                   .before = {0, edge, edge},
                                   .after = {0, edge, edge}};
    const double scale = 1 / sqrt((double)(in * side * side));
    weft_nn_layer layer = {.name = name, .bias = WEFT_NONE};
    weft_graph_push(g, "%s", name);
    layer.weight = parameter(g, "weight", WEFT_SHAPE(out, in, side, side), 1);
    if (half)
        layer.weight =
            weft_matmul(g, weft_reshape(g, layer.weight, WEFT_SHAPE(out * in, side * side)),
                        blur_matrix(g, side, scale), false, false);
    else
        layer.weight = weft_affine(g, layer.weight, scale, 0);
    layer.weight = weft_reshape(g, layer.weight, WEFT_SHAPE(out, in, 1, wide, wide));
    if (active)
        layer.bias = parameter(g, "act_fn.bias", WEFT_SHAPE(out), 0);
    x = weft_nn_conv_by(g, &layer, x, &shape);
    weft_graph_pop(g);
    return active ? leaky(g, x) : x;
}

static weft_value residual_block(weft_graph *g, weft_value x, int64_t out)
{
    const int64_t in = weft_dim(g, x, 4);
    const weft_value inner = convolve(g, "conv1", x, in, 3, 1, false, true),
                     h = convolve(g, "conv2", inner, out, 3, 0, true, true),
                     skip = convolve(g, "conv_skip", x, out, 1, 0, true, false);
    return weft_affine(g, weft_add(g, h, skip), 1 / sqrt(2), 0);
}

static weft_value scaled_linear(weft_graph *g, const char *name, weft_value x, int64_t out)
{
    const int64_t in = weft_dim(g, x, 2);
    weft_nn_layer layer = {.name = name};
    weft_graph_push(g, "%s", name);
    layer.weight =
        weft_affine(g, parameter(g, "weight", WEFT_SHAPE(out, in), 1), 1 / sqrt((double)in), 0);
    layer.bias = parameter(g, "bias", WEFT_SHAPE(out), 0);
    weft_graph_pop(g);
    return weft_nn_linear_by(g, &layer, x);
}

/* "motion_encoder": frames of the face (B,F,Y,X,3) to vectors (B,F,vector). */
static weft_value encode_motion(weft_graph *g, const animate *c, weft_value face)
{
    const int64_t batch = weft_dim(g, face, 0), frames = weft_dim(g, face, 1);
    const int last = last_side(c);
    char name[32];
    weft_graph_push(g, "motion_encoder");
    weft_value x = convolve(g, "conv_in", face, channels_at(c, last), 1, 0, false, true);
    for (int i = last; i > 0; i--) {
        weft_graph_push(g, "res_blocks.%d", last - i);
        x = residual_block(g, x, channels_at(c, i - 1));
        weft_graph_pop(g);
    }
    x = convolve(g, "conv_out", x, c->style, FIRST_SIDE, 0, false, false);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, frames, c->style));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "motion_network.%d", i);
        x = scaled_linear(g, name, x, i + 1 < LAYERS ? c->style : c->motion);
    }
    const double least = 1e-8; /* the reference adds it to avoid columns of zeros */
    const weft_value weight =
        parameter(g, "motion_synthesis_weight", WEFT_SHAPE(c->vector, c->motion), 1);
    const weft_value direction =
        weft_nn_orthonormal(g, weft_affine(g, weft_cast(g, weight, WEFT_F32), 1, least));
    x = weft_matmul(g, x, direction, false, true);
    weft_graph_pop(g);
    return x;
}

/* ---- face encoder --------------------------------------------------------------------------- */

/* Convolution over the frames of x (B,F,N,1,I), in which the first frame is repeated in front. Norm
 * and activation of (B,F/step,heads N,1,out/heads) follow. */
static weft_value convolve_frames(weft_graph *g, const char *name, weft_value x, int64_t out,
                                  int64_t step, int64_t heads)
{
    const int64_t batch = weft_dim(g, x, 0), groups = weft_dim(g, x, 2), in = weft_dim(g, x, 4);
    const weft_conv_shape shape = {.kernel = {TAPS, 1, 1}, .stride = {step, 1, 1}};
    const weft_value first = weft_slice(g, x, 1, 0, 1);
    const double reach = 1 / sqrt((double)(in * TAPS));
    weft_nn_layer layer = {.name = name};
    weft_graph_push(g, "%s", name);
    layer.weight = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(out, in, TAPS),
                              (weft_init){.kind = WEFT_INIT_UNIFORM, .value = reach});
    layer.weight = weft_reshape(g, layer.weight, WEFT_SHAPE(out, in, TAPS, 1, 1));
    layer.bias = parameter(g, "bias", WEFT_SHAPE(out), 0);
    x = weft_nn_conv_by(g, &layer, weft_concat(g, (weft_value[]){first, first, x}, TAPS, 1),
                        &shape);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, weft_dim(g, x, 1), groups * heads, 1, out / heads));
    x = weft_unary(g, WEFT_OP_SILU, weft_nn_plain_norm(g, x, 1e-6));
    weft_graph_pop(g);
    return x;
}

/* "face_encoder": vectors (B,F,vector) to the face tokens (B,T,N,C) of latent frames. The tokens of
 * the first, the image, are zeros. */
static weft_value encode_face(weft_graph *g, const animate *c, weft_value x)
{
    const int64_t batch = weft_dim(g, x, 0), width = c->wan.heads * c->wan.head_dim;
    weft_graph_push(g, "face_encoder");
    x = weft_reshape(g, x, WEFT_SHAPE(batch, weft_dim(g, x, 1), 1, 1, c->vector));
    x = convolve_frames(g, "conv1_local", x, c->face_width * c->face_heads, 1, c->face_heads);
    x = convolve_frames(g, "conv2", x, c->face_width, 2, 1);
    x = convolve_frames(g, "conv3", x, c->face_width, 2, 1);
    const int64_t frames = weft_dim(g, x, 1);
    x = weft_nn_linear(g, "out_proj", x, width, WEFT_LINEAR_XAVIER);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, frames, c->face_heads, width));
    const weft_value stored = parameter(g, "padding_tokens", WEFT_SHAPE(1, 1, 1, width), 0),
                     more = weft_cast(g, stored, WEFT_F32);
    x = weft_concat(
        g, (weft_value[]){x, weft_broadcast(g, more, WEFT_SHAPE(batch, frames, 1, width))}, 2, 2);
    weft_graph_pop(g);
    return weft_pad(g, x, 1, 1, 0);
}

/* Queries, keys or values of the adapter, with a norm per head: x (B,..,C) to (B,S,H,D). */
static weft_value project(weft_graph *g, const animate *c, const char *name, const char *norm,
                          weft_value x)
{
    const int64_t width = c->wan.heads * c->wan.head_dim, batch = weft_dim(g, x, 0);
    x = weft_nn_linear(g, name, x, width, WEFT_LINEAR_XAVIER);
    x = weft_nn_split_heads(g, weft_reshape(g, x, WEFT_SHAPE(batch, -1, width)), c->wan.heads);
    return norm ? weft_nn_rms_norm(g, norm, x, c->wan.eps) : x;
}

/* Items (B,S,H,D) of T frames as (B T,S/T,H,D). */
static weft_value by_frames(weft_graph *g, weft_value x, int64_t frames)
{
    const int64_t batch = weft_dim(g, x, 0), items = weft_dim(g, x, 1);
    return weft_reshape(
        g, x, WEFT_SHAPE(batch * frames, items / frames, weft_dim(g, x, 2), weft_dim(g, x, 3)));
}

/* Attention of tokens x (B,S,C) to the face tokens (B,T,N,C) of their latent frame. */
static weft_value adapter(weft_graph *g, const animate *c, weft_value x, weft_value face)
{
    const int64_t frames = weft_dim(g, face, 1), width = c->wan.heads * c->wan.head_dim;
    const weft_value context = weft_nn_plain_norm(g, face, c->wan.eps);
    weft_graph_push(g, "tokens");
    const weft_value tokens = weft_nn_plain_norm(g, x, c->wan.eps);
    weft_graph_pop(g);
    weft_value q = project(g, c, "to_q", "norm_q", tokens),
               k = project(g, c, "to_k", "norm_k", context),
               v = project(g, c, "to_v", NULL, context);
    const weft_shape all = weft_value_ok(q) ? weft_value_get(g, q)->shape : WEFT_SCALAR;
    weft_graph_push(g, "frames"); /* ranks have some heads of all tokens here */
    q = by_frames(g, q, frames);
    k = by_frames(g, k, frames);
    v = by_frames(g, v, frames);
    weft_value h = weft_nn_attend(g, q, k, v, WEFT_NONE);
    weft_graph_pop(g);
    weft_graph_push(g, "joined");
    h = weft_reshape(g, h, all);
    weft_graph_pop(g);
    return weft_nn_linear(g, "to_out", weft_nn_join_heads(g, h), width, WEFT_LINEAR_ZERO);
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Rejects poses and faces of another size than the latents need. */
static void check_inputs(weft_graph *g, const animate *c, const weft_ports *in)
{
    const weft_value x = in->at[WEFT_PORT_LATENTS], pose = in->at[WEFT_PORT_CONTROL],
                     face = in->at[WEFT_PORT_FACE];
    const int64_t frames = weft_dim(g, x, 1);
    if (frames < 2)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "%" PRId64 " latent frame; the image and at least one frame are needed",
                        frames);
    for (int d = 1; d < 4 && weft_value_ok(pose); d++)
        if (weft_dim(g, pose, d) != weft_dim(g, x, d) - (d == 1))
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "the poses have %" PRId64 " latent %s; %" PRId64 " are needed",
                            weft_dim(g, pose, d),
                            (const char *[]){"frames", "rows", "columns"}[d - 1],
                            weft_dim(g, x, d) - (d == 1));
    const int64_t needed = MASK_FRAMES * (frames - 2) + 1;
    if (weft_value_ok(face) && weft_dim(g, face, 1) != needed)
        weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                        "the face has %" PRId64 " frames; %" PRId64 " latent frames need %" PRId64,
                        weft_dim(g, face, 1), frames, needed);
    for (int d = 2; d < 4 && weft_value_ok(face); d++)
        if (weft_dim(g, face, d) != c->side)
            weft_graph_fail(g, WEFT_MSG_MODEL_SHAPE,
                            "the face has %" PRId64
                            " %s of pixels; motion_encoder_size is %" PRId64,
                            weft_dim(g, face, d), d == 2 ? "rows" : "columns", c->side);
}

/* Tokens (B,S,C) of the latents, with the poses. */
static weft_value embed(weft_graph *g, const animate *c, const weft_ports *in,
                        const int64_t size[3])
{
    const int64_t width = c->wan.heads * c->wan.head_dim;
    const weft_value x = weft_nn_patch(g, "patch_embedding", in->at[WEFT_PORT_LATENTS], width,
                                       c->wan.patch, WEFT_PATCH_3D, true),
                     pose = weft_nn_patch(g, "pose_patch_embedding", in->at[WEFT_PORT_CONTROL],
                                          width, c->wan.patch, WEFT_PATCH_3D, true);
    return weft_add(g, x, weft_pad(g, pose, 1, size[1] * size[2], 0));
}

/* latents (B,T,Y,X,in), poses (B,T-1,Y,X,latents), face (B,F,side,side,3), timestep (B) in
 * [0, 1000], text (B,L,text_dim), image (B,L,image_dim) -> prediction (B,T,Y,X,out) */
static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const animate *c = config;
    const weft_wan *wan = &c->wan;
    int64_t size[3];
    weft_wan_condition to = {0};
    (void)call;
    if (!weft_wan_count_tokens(g, wan, ports->at[WEFT_PORT_LATENTS], size))
        return;
    check_inputs(g, c, ports);
    if (weft_graph_check(g) != WEFT_OK)
        return;
    weft_wan_rope(g, wan, size, 1, to.rope);
    weft_value x = embed(g, c, ports, size);
    weft_wan_embed(g, wan, weft_wan_sinusoid(g, wan, ports->at[WEFT_PORT_TIMESTEP]), ports, &to);
    const weft_value face = encode_face(g, c, encode_motion(g, c, ports->at[WEFT_PORT_FACE]));
    for (int64_t i = 0; i < wan->layers; i++) {
        weft_graph_push(g, "blocks.%d", (int)i);
        x = weft_wan_block(g, wan, x, &to);
        weft_graph_pop(g);
        if (i % c->every)
            continue;
        weft_graph_push(g, "face_adapter.%d", (int)(i / c->every));
        x = weft_add(g, x, adapter(g, c, x, face));
        weft_graph_pop(g);
    }
    ports->at[WEFT_PORT_PREDICTION] = weft_wan_last(g, wan, x, &to, size);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const animate *c = config;
    const int64_t frames = s->frames > 2 ? s->frames - 1 : 1; /* without the image */
    switch (port) {
    case WEFT_PORT_TIMESTEP: return WEFT_SHAPE(s->batch);
    case WEFT_PORT_CONTROL: return WEFT_SHAPE(s->batch, frames, s->height, s->width, c->latents);
    case WEFT_PORT_FACE:
        return WEFT_SHAPE(s->batch, MASK_FRAMES * (frames - 1) + 1, c->side, c->side, 3);
    default: return weft_wan_shape(config, s, port);
    }
}

static void grid(const void *config, weft_grid *grid)
{
    weft_wan_grid(config, grid);
    grid->least = 2;
}

static void frame_condition(const void *config, weft_frame_condition *cond)
{
    (void)config;
    *cond = (weft_frame_condition){.form = WEFT_FRAME_CONDITION_CHARACTER, .marks = true};
}

/* clang-format off */
#define AT(member) offsetof(animate, member)
#define CHANNELS(side, index)                                                                      \
    {side, WEFT_FIELD_I64, AT(channels) + (index) * sizeof(int64_t), "0", 0, 1 << 16,              \
     .also = "motion_encoder_channel_sizes." side, .object = "motion_encoder_channel_sizes",       \
     .help = "channels of the motion encoder at " side " x " side "; all 0: the published ones"}
static const weft_field fields[] = {
    WEFT_WAN_FIRST_FIELDS("40"),
    {"latent_channels", WEFT_FIELD_I64, AT(latents), "16", 1, 1 << 15,
     .default_source = WEFT_DEFAULT_SOURCE_LATENTS,
     .help = "channels of the latents of poses and image"},
    {"in_channels", WEFT_FIELD_I64, AT(wan.in_channels), NULL, 1, 1 << 17, .length = channels_in,
     .help = "noisy latents, mask and given latents: 2 x latent_channels + 4"},
    {"out_channels", WEFT_FIELD_I64, AT(wan.out_channels), "=latent_channels", 1, 1 << 16,
     .help = "output channels of latents"},
    WEFT_WAN_LAST_FIELDS("13824", "40"), WEFT_WAN_IMAGE_FIELDS,
    CHANNELS("4", 0), CHANNELS("8", 1), CHANNELS("16", 2), CHANNELS("32", 3), CHANNELS("64", 4),
    CHANNELS("128", 5), CHANNELS("256", 6), CHANNELS("512", 7), CHANNELS("1024", 8),
    {"motion_encoder_size", WEFT_FIELD_I64, AT(side), "512", FIRST_SIDE, 1024,
     .help = "rows and columns of the video of the face, a power of two"},
    {"motion_style_dim", WEFT_FIELD_I64, AT(style), "512", 1, 1 << 16,
     .help = "width of the motion encoder's linear layers"},
    {"motion_dim", WEFT_FIELD_I64, AT(motion), "20", 1, 1 << 12,
     .help = "orthonormal directions of motion"},
    {"motion_encoder_dim", WEFT_FIELD_I64, AT(vector), "512", 1, 1 << 16,
     .help = "width of the vector of a frame of the face"},
    {"face_encoder_hidden_dim", WEFT_FIELD_I64, AT(face_width), "1024", 1, 1 << 16,
     .help = "width of the face encoder"},
    {"face_encoder_num_heads", WEFT_FIELD_I64, AT(face_heads), "4", 1, 1024,
     .help = "face tokens of a latent frame, besides the learned one"},
    {"inject_face_latents_blocks", WEFT_FIELD_I64, AT(every), "5", 1, 1024,
     .help = "blocks from one adapter to the next"},
};

static const weft_unused_field unused[] = {
    {"motion_encoder_batch_size"}, /* frames of the face that the reference encodes at once */
    {NULL},
};

static const weft_named_config sizes[] = {
    {"wan2.2-animate-14b", "{\"image_dim\": 1280, \"added_kv_proj_dim\": 5120}"},
    {NULL, NULL},
};

static const weft_port_row ports[] = {
    {WEFT_PORT_CONTROL,    false, "pose_hidden_states"},
    {WEFT_PORT_FACE,       false, "face_pixel_values"},
    WEFT_WAN_PORTS,
};

/* The blurs of the authors' files are 1 3 3 1 in both directions. */
#define CONVS "motion_encoder.enc.net_app.convs."
#define BLOCKS "motion_encoder.res_blocks."
#define HALVED(theirs, ours)                                                            \
    {CONVS theirs ".conv1.0", BLOCKS ours ".conv1"},                                    \
    {CONVS theirs ".conv1.1", BLOCKS ours ".conv1.act_fn", .channels = true},           \
    {CONVS theirs ".conv2.0", ""},                                                      \
    {CONVS theirs ".conv2.1", BLOCKS ours ".conv2"},                                    \
    {CONVS theirs ".conv2.2", BLOCKS ours ".conv2.act_fn", .channels = true},           \
    {CONVS theirs ".skip.0",  ""},                                                      \
    {CONVS theirs ".skip.1",  BLOCKS ours ".conv_skip"}
static const weft_rename_rule original[] = {
    {"face_adapter.fuser_blocks.#.linear1_kv", "face_adapter.#.{to_k,to_v}"},
    {"face_adapter.fuser_blocks.#.linear1_q",  "face_adapter.#.to_q"},
    {"face_adapter.fuser_blocks.#.linear2",    "face_adapter.#.to_out"},
    {"face_adapter.fuser_blocks.#.q_norm",     "face_adapter.#.norm_q"},
    {"face_adapter.fuser_blocks.#.k_norm",     "face_adapter.#.norm_k"},
    {"face_encoder.conv1_local.conv",          "face_encoder.conv1_local"},
    {"face_encoder.conv2.conv",                "face_encoder.conv2"},
    {"face_encoder.conv3.conv",                "face_encoder.conv3"},
    {"motion_encoder.enc.net_app.convs.0.0",   "motion_encoder.conv_in"},
    {"motion_encoder.enc.net_app.convs.0.1",   "motion_encoder.conv_in.act_fn", .channels = true},
    HALVED("1", "0"), HALVED("2", "1"), HALVED("3", "2"), HALVED("4", "3"), HALVED("5", "4"),
    HALVED("6", "5"), HALVED("7", "6"),
    {"motion_encoder.enc.net_app.convs.8",     "motion_encoder.conv_out"},
    {"motion_encoder.enc.fc.#",                "motion_encoder.motion_network.#"},
    {"motion_encoder.dec.direction.weight",    "motion_encoder.motion_synthesis_weight"},
    WEFT_WAN_ORIGINAL,
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "face_adapter.0.to_q.weight", NULL, 0},
    {"original", "face_adapter.fuser_blocks.0.linear1_q.weight", original,
     sizeof original / sizeof *original},
};

/* Feature cache rule: the change of the first block's residual, measured on a model of six blocks
 * relative to Wan (bench/cache.md). */
static const weft_feature_cache_row caches[] = {
    {NULL, 0, WEFT_SIGNAL_BLOCK, {0}, 0.1, 0.2, 0},
};

const weft_family weft_family_wan_animate_dit = {
    .class_name = "WanAnimateTransformer3DModel", .role = WEFT_ROLE_DENOISER,
    .scope = "transformer", .stem = "diffusion_pytorch_model",
    .cache = caches, .caches = sizeof caches / sizeof *caches,
    .library = "diffusers", .pipeline = "WanAnimatePipeline", .autoencoder = "AutoencoderKLWan",
    .marks = {"num_attention_heads", "inject_face_latents_blocks"},
    .config_bytes = sizeof(animate), .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .unused = unused, .sizes = sizes,
    .port = ports, .ports = sizeof ports / sizeof *ports, .shape = shape, .build = build,
    .grid = grid, .frame_condition = frame_condition,
    .frame_condition_help = "the image of a character, which poses and a face move",
    .fps = 30,
    .text_encoder = weft_wan_text_encoders, .text_encoders = WEFT_WAN_TEXT_ENCODERS,
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
    .recipe = weft_wan_recipes, .recipes = WEFT_WAN_RECIPES,
};
/* clang-format on */
