#include "plan/published/video_list.h"

#include "base/config.h"

#include <math.h>
#include <string.h>

/* Video encoders: causal 3D networks of 3x3x3 convolutions. At full resolution two residual blocks
 * of C channels are 4 * 27 * 2 C^2 FLOPs per pixel. Each resolution level below has 1/4 to 1/8 of
 * the positions and up to twice the channels; all levels below together need about the same FLOPs
 * again. The largest activations of a tile are C channels, in and out, bf16. */
#define VAE(CHANNELS, FRAMES)                                                                      \
    .vae_time = 4, .vae_space = 8, .latent_channels = 16, .tile_side = 256, .tile_overlap = 0.25,  \
    .tile_frames = (FRAMES), .vae_channels = (CHANNELS)
/* T5-XXL encoder, or umT5 or Llama of equal size */
#define TEXT(TOKENS, PARAMETERS)                                                                   \
    .text_tokens = (TOKENS), .text_parameters = (PARAMETERS), .text_hidden = 4096

static const weft_video_preset presets[] = {
    {.name = "wan-1.3b",
     .help = "Wan2.1 1.3B: 30 layers, 12 heads, hidden 1536",
     .kind = WEFT_DIT_GRAPH,
     .patch = 2,
     TEXT(512, 5700000000),
     VAE(96, 81)},
    {.name = "wan-14b",
     .help = "Wan2.1 14B: 40 layers, 40 heads, hidden 5120",
     .kind = WEFT_DIT_GRAPH,
     .patch = 2,
     TEXT(512, 5700000000),
     VAE(96, 81)},
    /* Arachne Table II calls this model 5B; these sizes are the published 2B */
    {.name = "cogvideox-2b",
     .help = "CogVideoX 2B: 30 layers, 30 heads, hidden 1920 (Arachne Table II calls it 5B)",
     .kind = WEFT_DIT_JOINT,
     .layers = 30,
     .hidden = 1920,
     .heads = 30,
     .ffn = 7680,
     .patch = 2,
     TEXT(226, 4700000000),
     VAE(128, 48)},
    {.name = "cogvideox-5b",
     .help = "CogVideoX 5B: 42 layers, 48 heads, hidden 3072",
     .kind = WEFT_DIT_JOINT,
     .layers = 42,
     .hidden = 3072,
     .heads = 48,
     .ffn = 12288,
     .patch = 2,
     TEXT(226, 4700000000),
     VAE(128, 48)},
    {.name = "hunyuanvideo-13b",
     .help = "HunyuanVideo 13B: 20 double- and 40 single-stream layers, 24 heads, hidden 3072",
     .kind = WEFT_DIT_DUAL,
     .layers = 60,
     .double_layers = 20,
     .hidden = 3072,
     .heads = 24,
     .ffn = 12288,
     .patch = 2,
     TEXT(256, 8000000000),
     VAE(128, 64)},
    {.name = "st-dit-7b",
     .help = "ST-DiT 7B: 21 layers, 32 heads, hidden 4096",
     .kind = WEFT_DIT_STDIT,
     .layers = 21,
     .hidden = 4096,
     .heads = 32,
     .ffn = 16384,
     .patch = 2,
     TEXT(512, 4700000000),
     VAE(128, 48)},
    {.name = "st-dit-12b",
     .help = "ST-DiT 12B: 36 layers, 32 heads, hidden 4096",
     .kind = WEFT_DIT_STDIT,
     .layers = 36,
     .hidden = 4096,
     .heads = 32,
     .ffn = 16384,
     .patch = 2,
     TEXT(512, 4700000000),
     VAE(128, 48)},
};

const weft_video_preset *weft_video_preset_at(int index)
{
    return index >= 0 && index < WEFT_COUNT(presets) ? &presets[index] : NULL;
}

const weft_video_preset *weft_video_preset_find(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(presets); i++)
        if (!strcmp(name, presets[i].name))
            return &presets[i];
    return NULL;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t weft_video_latent_frames(const weft_video_preset *m, int64_t frames)
{
    return 1 + divide_up(frames - 1, m->vae_time);
}

static int64_t frame_tokens(const weft_video_preset *m, int64_t height, int64_t width)
{
    return divide_up(divide_up(height, m->vae_space), m->patch) *
           divide_up(divide_up(width, m->vae_space), m->patch);
}

static int64_t tiles_of(const weft_video_preset *m, int64_t frames, int64_t height, int64_t width)
{
    const double step = (double)m->tile_side * (1 - m->tile_overlap);
    const double time_step = (double)m->tile_frames * (1 - m->tile_overlap);
    const double sizes[3] = {(double)frames, (double)height, (double)width};
    int64_t tiles = 1;
    for (int i = 0; i < 3; i++) {
        const double side = i ? (double)m->tile_side : (double)m->tile_frames;
        const double more = ceil((sizes[i] - side) / (i ? step : time_step));
        tiles *= 1 + (more > 0 ? (int64_t)more : 0);
    }
    return tiles;
}

void weft_video_clip(const weft_video_preset *m, int64_t frames, int64_t height, int64_t width,
                     weft_clip_work *out)
{
    const double tile = (double)(m->tile_frames * m->tile_side * m->tile_side),
                 channels = (double)m->vae_channels;
    *out =
        (weft_clip_work){.frames = frames,
                         .height = height,
                         .width = width,
                         .tiles = tiles_of(m, frames, height, width),
                         .tile_flops = 2.0 * 4 * 27 * 2 * channels * channels * tile,
                         .tile_bytes = tile * channels * 2 * 2,
                         .text_flops = 2.0 * (double)m->text_parameters * (double)m->text_tokens,
                         .latent_frames = weft_video_latent_frames(m, frames),
                         .latent_bytes = (double)weft_video_latent_frames(m, frames) *
                                         (double)(height / m->vae_space * (width / m->vae_space)) *
                                         (double)m->latent_channels * 2,
                         .text_bytes = (double)(m->text_tokens * m->text_hidden) * 2};
}

typedef struct maker {
    weft_arena *arena;
    weft_op_list *list;
    double tokens, hidden;
} maker;

/* Dense product of `tokens` rows with `weights` weights. Saves its input. */
static weft_status gemm(const maker *m, const char *name, double tokens, double weights, double in,
                        double out)
{
    const double flops = 2 * tokens * weights, io = 2 * (tokens * (in + out) + weights);
    return weft_op_list_add(m->arena, m->list,
                            (weft_op_cost){.name = name,
                                           .kind = WEFT_WORK_GEMM,
                                           .forward_flops = flops,
                                           .backward_flops = 2 * flops,
                                           .forward_bytes = io,
                                           .backward_bytes = 2 * io,
                                           .param_bytes = 2 * weights,
                                           .activation_bytes = 2 * tokens * in,
                                           .recompute_flops = flops,
                                           .output_bytes = 2 * m->tokens * m->hidden});
}

/* Flash attention: the backward recomputes the scores, 2.5 times the forward products. */
static weft_status attention(const maker *m, const char *name, double queries, double keys,
                             double batch)
{
    const double flops = 4 * batch * queries * keys * m->hidden;
    const double io = 2 * batch * (2 * queries + 2 * keys) * m->hidden;
    return weft_op_list_add(
        m->arena, m->list,
        (weft_op_cost){.name = name,
                       .kind = WEFT_WORK_ATTENTION,
                       .forward_flops = flops,
                       .backward_flops = 2.5 * flops,
                       .forward_bytes = io,
                       .backward_bytes = 2 * io,
                       .activation_bytes = 2 * batch * (queries + 2 * keys) * m->hidden,
                       .recompute_flops = flops,
                       .output_bytes = 2 * m->tokens * m->hidden});
}

/* Norms, modulation, residuals: `passes` reads or writes of the stream, and few weights. `saved`
 * streams are saved for the backward. A norm saves its input and the modulated tensor, a gate the
 * gated tensor, a query-key norm queries and keys before and after. */
static weft_status memory_op(const maker *m, const char *name, double passes, double saved,
                             double weights)
{
    const double io = 2 * passes * m->tokens * m->hidden;
    return weft_op_list_add(m->arena, m->list,
                            (weft_op_cost){.name = name,
                                           .kind = WEFT_WORK_MEMORY,
                                           .forward_bytes = io,
                                           .backward_bytes = 1.5 * io,
                                           .param_bytes = 2 * weights,
                                           .activation_bytes = 2 * saved * m->tokens * m->hidden,
                                           .output_bytes = 2 * m->tokens * m->hidden});
}

static weft_status block_joint(const maker *m, const weft_video_preset *p)
{
    const double h = m->hidden, s = m->tokens + (double)p->text_tokens, f = (double)p->ffn;
    WEFT_TRY(memory_op(m, "modulate", 8, 10, 12 * 512 * h));
    WEFT_TRY(gemm(m, "qkv", s, 3 * h * h, h, 3 * h));
    WEFT_TRY(attention(m, "attention", s, s, 1));
    WEFT_TRY(gemm(m, "proj", s, h * h, h, h));
    return gemm(m, "mlp", s, 2 * h * f, h + 2 * f, f + h);
}

static weft_status block_dual(const maker *m, const weft_video_preset *p, bool two_streams)
{
    const double h = m->hidden, t = (double)p->text_tokens, s = m->tokens + t, f = (double)p->ffn;
    WEFT_TRY(memory_op(m, "modulate", 8, two_streams ? 10 : 7, (two_streams ? 12 : 3) * h * h));
    if (!two_streams) { /* one matrix for qkv and the MLP's first half, one for both outputs */
        WEFT_TRY(gemm(m, "linear1", s, h * (3 * h + f), h, 3 * h + f));
        WEFT_TRY(attention(m, "attention", s, s, 1));
        return gemm(m, "linear2", s, (h + f) * h, h + 2 * f, h);
    }
    WEFT_TRY(gemm(m, "video.qkv", m->tokens, 3 * h * h, h, 3 * h));
    WEFT_TRY(gemm(m, "text.qkv", t, 3 * h * h, h, 3 * h));
    WEFT_TRY(attention(m, "attention", s, s, 1));
    WEFT_TRY(gemm(m, "video.proj", m->tokens, h * h, h, h));
    WEFT_TRY(gemm(m, "text.proj", t, h * h, h, h));
    WEFT_TRY(gemm(m, "video.mlp", m->tokens, 2 * h * f, h + 2 * f, f + h));
    return gemm(m, "text.mlp", t, 2 * h * f, h + 2 * f, f + h);
}

static weft_status block_stdit(const maker *m, const weft_video_preset *p, double frames,
                               double per_frame)
{
    static const char *const names[3][3] = {{"full.qkv", "full", "full.proj"},
                                            {"spatial.qkv", "spatial", "spatial.proj"},
                                            {"temporal.qkv", "temporal", "temporal.proj"}};
    const double h = m->hidden, s = m->tokens, f = (double)p->ffn;
    const double length[3] = {s, per_frame, frames};
    WEFT_TRY(memory_op(m, "modulate", 12, 12, 12 * 256 * h));
    for (int i = 0; i < 3; i++) {
        WEFT_TRY(gemm(m, names[i][0], s, 3 * h * h, h, 3 * h));
        WEFT_TRY(attention(m, names[i][1], length[i], length[i], s / length[i]));
        WEFT_TRY(gemm(m, names[i][2], s, h * h, h, h));
    }
    return gemm(m, "mlp", s, 2 * h * f, h + 2 * f, f + h);
}

static weft_status build(weft_arena *arena, const weft_video_preset *p, double frames,
                         double per_frame, weft_op_list *out)
{
    weft_op_list list = {.name = p->name,
                         .layers = p->layers,
                         .heads = p->heads,
                         .hidden = p->hidden,
                         .tokens = (int64_t)(frames * per_frame),
                         .dtype_bytes = 2};
    const maker m = {arena, &list, frames * per_frame, (double)p->hidden};
    const double patch = (double)(p->patch * p->patch * p->latent_channels);
    WEFT_TRY(gemm(&m, "patchify", m.tokens, patch * m.hidden, patch, m.hidden));
    WEFT_TRY(gemm(&m, "text.in", (double)p->text_tokens,
                  (double)p->text_hidden * m.hidden + m.hidden * m.hidden, (double)p->text_hidden,
                  m.hidden));
    for (int64_t i = 0; i < p->layers; i++)
        switch (p->kind) {
        case WEFT_DIT_GRAPH:
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "%s has a graph", p->name);
        case WEFT_DIT_JOINT: WEFT_TRY(block_joint(&m, p)); break;
        case WEFT_DIT_DUAL: WEFT_TRY(block_dual(&m, p, i < p->double_layers)); break;
        case WEFT_DIT_STDIT: WEFT_TRY(block_stdit(&m, p, frames, per_frame)); break;
        }
    WEFT_TRY(gemm(&m, "unpatchify", m.tokens, patch * m.hidden, m.hidden, patch));
    *out = list;
    return WEFT_OK;
}

weft_status weft_video_list(weft_arena *arena, const weft_video_preset *m, int64_t frames,
                            int64_t height, int64_t width, weft_op_list *out)
{
    return build(arena, m, (double)weft_video_latent_frames(m, frames),
                 (double)frame_tokens(m, height, width), out);
}
