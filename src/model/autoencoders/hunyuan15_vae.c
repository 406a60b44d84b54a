/* HunyuanVideo 1.5's autoencoder (diffusers' AutoencoderKLHunyuanVideo15): 1 + 4n frames of 16x16
 * pixels to 1 + n latent frames of 32 channels.
 *
 *   encoder: conv_in -> levels x (residual blocks, shrink) -> mid (block, attention, block)
 *            -> norm, silu, conv_out + mean of channel groups
 *   decoder: conv_in + repeated channels -> mid -> levels x (residual blocks, grow)
 *            -> norm, silu, conv_out
 *
 * shrink: a convolution, then blocks of frames and pixels become channels. grow: the inverse. Both
 * have a shortcut without parameters: means of channels, or repeated channels. The first frame is
 * separate: its blocks are of pixels only.
 *
 * Every convolution reads two preceding frames. The edge is repeated before the first frame and
 * around the image. A frame attends to all preceding frames, so temporal chunks are not supported.
 *
 * Shape letters: B batch, T/Y/X frames, rows, columns, C channels, Z latent channels. */
#include "graph/builder_helpers.h"
#include "model/common_fields.h"
#include "model/config_fields.h"
#include "model/model.h"
#include "nn/resnet.h"

enum { MAX_LEVELS = 8, MAX_Z = 128 };

typedef struct hunyuan15_vae {
    int64_t in_channels, out_channels;
    int64_t levels, width[MAX_LEVELS];
    int64_t layers, z;
    weft_statistics latents;
    int64_t space, time;              /* pixels and frames per latent */
    bool shrink_widens, grow_narrows; /* a level's shrink or grow has the next level's width */
} hunyuan15_vae;
_Static_assert(sizeof(hunyuan15_vae) <= WEFT_MODEL_CONFIG_BYTES,
               "the config must fit into a weft_model");

static weft_value conv(weft_nn_coder *co, const char *name, weft_value x, int64_t out, int64_t k)
{
    return k == 1 ? weft_nn_conv_point(co->g, name, x, out) /* conv_shortcut */
                  : weft_nn_conv_edge(co->g, name, x, out, k, (int64_t[]){1, 1, 1});
}

/* x sqrt(C) / ||x|| gamma; gamma is stored as (C,1,1,1). */
static weft_value norm(weft_nn_coder *co, const char *name, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t c = weft_dim(g, x, 4);
    const weft_attr_norm attr = {.eps = 1e-12, .l2 = true};
    weft_graph_push(g, "%s", name);
    const weft_value gamma = weft_param(g, "gamma", WEFT_F32, WEFT_SHAPE(c, 1, 1, 1),
                                        (weft_init){.kind = WEFT_INIT_FILL, .value = 1});
    x = weft_emit(g, WEFT_OP_RMS_NORM, (weft_value[]){x, weft_reshape(g, gamma, WEFT_SHAPE(c))}, 2,
                  &attr);
    weft_graph_pop(g);
    return x;
}

/* ---- channels ------------------------------------------------------------------------------- */

/* Means of groups of consecutive channels, `out` groups. */
static weft_value mean_channels(weft_graph *g, weft_value x, int64_t out)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), each = weft_dim(g, x, 4) / out;
    if (each == 1)
        return x;
    x = weft_sum(g, weft_reshape(g, x, WEFT_SHAPE(b, t * y * w, out, each)), 1u << 3);
    return weft_reshape(g, weft_affine(g, x, 1.0 / (double)each, 0), WEFT_SHAPE(b, t, y, w, out));
}

/* Every channel several times in a row, `out` channels in total. */
static weft_value repeat_channels(weft_graph *g, weft_value x, int64_t out)
{
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    if (out == c)
        return x;
    x = weft_broadcast(g, weft_reshape(g, x, WEFT_SHAPE(b, t * y * w, c, 1)),
                       WEFT_SHAPE(b, t * y * w, c, out / c));
    return weft_reshape(g, x, WEFT_SHAPE(b, t, y, w, out));
}

/* Channels to blocks of frames and pixels, channels fastest. */
static weft_value unfold(weft_graph *g, weft_value x, const int64_t step[3])
{
    const int64_t size[3] = {weft_dim(g, x, 1), weft_dim(g, x, 2), weft_dim(g, x, 3)};
    x = weft_reshape(g, x,
                     WEFT_SHAPE(weft_dim(g, x, 0), size[0] * size[1] * size[2], weft_dim(g, x, 4)));
    return weft_nn_unpatch(g, x, size, step);
}

static const int64_t in_space[3] = {1, 2, 2}, in_time[3] = {2, 2, 2};

/* Applies `first` to the first frame and `next` to the others. */
typedef weft_value frame_rule(weft_graph *g, weft_value x, int64_t out);
static weft_value by_frames(weft_graph *g, weft_value x, int64_t out, frame_rule *first,
                            frame_rule *next)
{
    const int64_t t = weft_dim(g, x, 1);
    const weft_value head = first(g, weft_slice(g, x, 1, 0, 1), out);
    if (t == 1)
        return head;
    const weft_value rest = next(g, weft_slice(g, x, 1, 1, t - 1), out);
    return weft_concat(g, (weft_value[]){head, rest}, 2, 1);
}

static weft_value fold_first(weft_graph *g, weft_value x, int64_t out)
{
    const weft_value h = weft_nn_fold(g, x, in_space);
    (void)out;
    return weft_concat(g, (weft_value[]){h, h}, 2, 4);
}

static weft_value fold_next(weft_graph *g, weft_value x, int64_t out)
{
    (void)out;
    return weft_nn_fold(g, x, in_time);
}

static weft_value mean_first(weft_graph *g, weft_value x, int64_t out)
{
    return mean_channels(g, weft_nn_fold(g, x, in_space), out);
}

static weft_value mean_next(weft_graph *g, weft_value x, int64_t out)
{
    return mean_channels(g, weft_nn_fold(g, x, in_time), out);
}

static weft_value unfold_first(weft_graph *g, weft_value x, int64_t out)
{
    return weft_slice(g, unfold(g, x, in_space), 4, 0, out);
}

static weft_value unfold_next(weft_graph *g, weft_value x, int64_t out)
{
    (void)out;
    return unfold(g, x, in_time);
}

static weft_value repeat_first(weft_graph *g, weft_value x, int64_t out)
{
    return repeat_channels(g, unfold(g, x, in_space), out);
}

static weft_value repeat_next(weft_graph *g, weft_value x, int64_t out)
{
    return repeat_channels(g, unfold(g, x, in_time), out);
}

static weft_value shrink(weft_nn_coder *co, weft_value x, int64_t out, bool time)
{
    weft_graph *g = co->g;
    const weft_value h = conv(co, "downsamplers.0.conv", x, out / (time ? 8 : 4), 3);
    if (time)
        return weft_add(g, by_frames(g, h, out, fold_first, fold_next),
                        by_frames(g, x, out, mean_first, mean_next));
    return weft_add(g, weft_nn_fold(g, h, in_space), mean_first(g, x, out));
}

static weft_value grow(weft_nn_coder *co, weft_value x, int64_t out, bool time)
{
    weft_graph *g = co->g;
    const weft_value h = conv(co, "upsamplers.0.conv", x, out * (time ? 8 : 4), 3);
    if (time)
        return weft_add(g, by_frames(g, h, out, unfold_first, unfold_next),
                        by_frames(g, x, out, repeat_first, repeat_next));
    return weft_add(g, unfold(g, h, in_space), unfold(g, repeat_channels(g, x, 4 * out), in_space));
}

/* ---- the two halves ------------------------------------------------------------------------- */

static weft_value attention(weft_nn_coder *co, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t b = weft_dim(g, x, 0), t = weft_dim(g, x, 1), y = weft_dim(g, x, 2),
                  w = weft_dim(g, x, 3), c = weft_dim(g, x, 4);
    static const char *const names[] = {"to_q", "to_k", "to_v"};
    weft_value qkv[3];
    weft_graph_push(g, "attentions.0");
    const weft_value h = norm(co, "norm", x);
    for (int i = 0; i < 3; i++)
        qkv[i] = weft_reshape(g, weft_nn_conv_point(g, names[i], h, c), WEFT_SHAPE(b, t, y * w, c));
    const weft_value made = weft_reshape(g, weft_nn_attend_frames(g, qkv[0], qkv[1], qkv[2]),
                                         WEFT_SHAPE(b, t, y, w, c));
    x = weft_add(g, weft_nn_conv_point(g, "proj_out", made, c), x);
    weft_graph_pop(g);
    return x;
}

static weft_value middle(weft_nn_coder *co, weft_value x)
{
    const int64_t c = weft_dim(co->g, x, 4);
    weft_graph_push(co->g, "mid_block");
    x = weft_nn_res_block(co, "resnets.0", x, c);
    x = weft_nn_res_block(co, "resnets.1", attention(co, x), c);
    weft_graph_pop(co->g);
    return x;
}

static weft_value norm_out(weft_nn_coder *co, weft_value x, int64_t out)
{
    return conv(co, "conv_out", weft_nn_norm_silu(co, "norm_out", x), out, 3);
}

static weft_value encode(weft_nn_coder *co, const hunyuan15_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t space = weft_nn_halvings(c->space), time = weft_nn_halvings(c->time);
    weft_graph_push(g, "encoder");
    x = conv(co, "conv_in", x, c->width[0], 3);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "down_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, c->width[i], c->layers);
        if (i < space)
            x = shrink(co, x, c->width[c->shrink_widens ? i + 1 : i], i >= space - time);
        weft_graph_pop(g);
    }
    x = middle(co, x);
    x = weft_add(g, norm_out(co, x, 2 * c->z), mean_channels(g, x, 2 * c->z));
    weft_graph_pop(g);
    return x;
}

static weft_value decode(weft_nn_coder *co, const hunyuan15_vae *c, weft_value x)
{
    weft_graph *g = co->g;
    const int64_t space = weft_nn_halvings(c->space), time = weft_nn_halvings(c->time),
                  last = c->levels - 1;
    weft_graph_push(g, "decoder");
    x = weft_add(g, conv(co, "conv_in", x, c->width[last], 3),
                 repeat_channels(g, x, c->width[last]));
    x = middle(co, x);
    for (int64_t i = 0; i < c->levels; i++) {
        weft_graph_push(g, "up_blocks.%d", (int)i);
        x = weft_nn_res_blocks(co, x, c->width[last - i], c->layers + 1);
        if (i < space)
            x = grow(co, x, c->width[c->grow_narrows ? last - i - 1 : last - i], i < time);
        weft_graph_pop(g);
    }
    x = norm_out(co, x, c->out_channels);
    weft_graph_pop(g);
    return x;
}

/* ---- the family ----------------------------------------------------------------------------- */

/* Widths of the values before and after a shrink or grow must be multiples of one another. */
static bool divides(int64_t a, int64_t b)
{
    return a % b == 0;
}

static weft_status check(const void *config, const weft_config_locations *locations)
{
    const hunyuan15_vae *c = config;
    const int64_t space = weft_nn_halvings(c->space), time = weft_nn_halvings(c->time),
                  last = c->levels - 1;
    bool fits = c->levels > space && space >= time && 1 << space == c->space &&
                1 << time == c->time && divides(c->width[last], 2 * c->z);
    for (int64_t i = 0; fits && i < space; i++) {
        const int64_t next = c->width[c->shrink_widens ? i + 1 : i], from = c->width[last - i],
                      to = c->width[c->grow_narrows ? last - i - 1 : last - i];
        const int64_t down = i >= space - time ? 8 : 4, up = i < time ? 8 : 4;
        fits = divides(next, down) && divides(4 * c->width[i], next) && divides(from, up) &&
               divides(up * to, from) && divides(4 * to, from);
    }
    return fits ? WEFT_OK
                : weft_error(WEFT_MSG_MODEL_CONFIG_UNSUPPORTED,
                             WEFT_AT_FIELD(locations, "block_out_channels", c->levels),
                             "these widths of %" PRId64 " levels do not fit compression by %" PRId64
                             " in time and %" PRId64
                             " in space. The factors are powers of two, there are more levels than "
                             "halvings of space, and means and repetitions of channels need widths "
                             "that divide one another.",
                             c->levels, c->time, c->space);
}

static weft_shape shape(const void *config, const weft_model_size *s, weft_port port)
{
    const hunyuan15_vae *c = config;
    return weft_autoencoder_shape(s, port, c->in_channels, c->z);
}

static void build(weft_graph *g, const void *config, weft_call call, weft_ports *ports)
{
    const hunyuan15_vae *c = config;
    weft_nn_coder co = {.g = g, .conv = conv, .norm = norm};
    if (call.kind == WEFT_CALL_DECODE)
        ports->at[WEFT_PORT_RECONSTRUCTION] = decode(&co, c, ports->at[WEFT_PORT_LATENTS]);
    else
        weft_ports_set_posterior(g, encode(&co, c, ports->at[WEFT_PORT_VIDEO]), ports);
}

static void grid(const void *config, weft_grid *grid)
{
    const hunyuan15_vae *c = config;
    grid->factor[0] = c->time;
    grid->factor[1] = grid->factor[2] = c->space;
    grid->causal = true;
    grid->channels = grid->out_channels = c->z;
}

/* clang-format off */
#define AT(member) offsetof(hunyuan15_vae, member)
static const weft_field fields[] = {
    WEFT_VIDEO_IN_FIELD(AT(in_channels), "3"),
    WEFT_VIDEO_OUT_FIELD(AT(out_channels), "3"),
    WEFT_LATENT_CHANNELS_FIELD(AT(z), "32", MAX_Z),
    {"block_out_channels", WEFT_FIELD_I64S, AT(width), "[128, 256, 512, 1024, 1024]", 1, 65536,
     .capacity = MAX_LEVELS, .count = AT(levels), .help = "width of each level"},
    WEFT_LEVEL_BLOCKS_FIELD(AT(layers), "2"),
    {"spatial_compression_ratio", WEFT_FIELD_I64, AT(space), "16", 1, 128,
     .help = "pixel rows and columns per latent"},
    {"temporal_compression_ratio", WEFT_FIELD_I64, AT(time), "4", 1, 8,
     .help = "frames per latent frame"},
    {"downsample_match_channel", WEFT_FIELD_BOOL, AT(shrink_widens), "true",
     .help = "downsampling has the next level's width"},
    {"upsample_match_channel", WEFT_FIELD_BOOL, AT(grow_narrows), "true",
     .help = "upsampling has the next level's width"},
    WEFT_SCALE_FIELD(AT(latents.scale), "1.03682"),
};

static const weft_named_config sizes[] = {
    {"hunyuan-video-1.5-vae", "{}"},
    {NULL, NULL},
};

/* Key mapping of Tencent's files. Both halves count their levels in the order of computation. */
static const weft_rename_rule original[] = {
    {"encoder.down.#",       "encoder.down_blocks.#"},
    {"decoder.up.#",         "decoder.up_blocks.#"},
    {"block",                "resnets"},
    {"downsample",           "downsamplers.0"},
    {"upsample",             "upsamplers.0"},
    {"nin_shortcut",         "conv_shortcut"},
    {"mid.block_1",          "mid_block.resnets.0"},
    {"mid.block_2",          "mid_block.resnets.1"},
    {"mid.attn_1.norm",      "mid_block.attentions.0.norm"},
    {"mid.attn_1.q",         "mid_block.attentions.0.to_q"},
    {"mid.attn_1.k",         "mid_block.attentions.0.to_k"},
    {"mid.attn_1.v",         "mid_block.attentions.0.to_v"},
    {"mid.attn_1.proj_out",  "mid_block.attentions.0.proj_out"},
};
static const weft_key_mapping mappings[] = {
    {"diffusers", "decoder.mid_block.attentions.0.proj_out.weight", NULL, 0},
    {"original",  "decoder.mid.attn_1.norm.gamma", original, sizeof original / sizeof *original},
};

const weft_family weft_family_hunyuan15_vae = {
    .class_name = "AutoencoderKLHunyuanVideo15", .role = WEFT_ROLE_AUTOENCODER,
    .scope = "vae", .stem = "diffusion_pytorch_model", .library = "diffusers",
    .marks = {"downsample_match_channel", "upsample_match_channel"},
    .config_bytes = sizeof(hunyuan15_vae),
    .field = fields, .fields = sizeof fields / sizeof *fields,
    .check = check, .sizes = sizes,
    .port = weft_autoencoder_ports, .ports = WEFT_AUTOENCODER_PORTS, .shape = shape, .build = build,
    .grid = grid, .statistics = AT(latents), .tile = {{0, 256, 256}, {0, 192, 192}},
    .mapping = mappings, .mappings = sizeof mappings / sizeof *mappings,
};
/* clang-format on */
