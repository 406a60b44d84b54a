#include "plan/cost/model_costs.h"

#include "base/config.h"

#include <math.h>
#include <string.h>

/* VAE FLOPs per pixel: causal 3D encoders of 3x3x3 convolutions. At full resolution two residual
 * blocks of C channels are 4 * 27 * 2 C^2; each level below has 1/4 to 1/8 of the positions and up
 * to twice the channels, together about as much again. C = 128 (HunyuanVideo, CogVideoX), 96 (Wan).
 */
static const weft_model_preset presets[] = {
    {"wan-1.3b", "Wan2.1 1.3B: 30 layers, 12 heads, hidden 1536", WEFT_DIT_CROSS, 30, 0, 1536, 12,
     8960, 512, 5700000000, 4096, 2, 4, 8, 2.0 * 4 * 27 * 2 * 96 * 96, 81, 256, 0.25, 16},
    {"wan-14b", "Wan2.1 14B: 40 layers, 40 heads, hidden 5120", WEFT_DIT_CROSS, 40, 0, 5120, 40,
     13824, 512, 5700000000, 4096, 2, 4, 8, 2.0 * 4 * 27 * 2 * 96 * 96, 81, 256, 0.25, 16},
    {"cogvideox-5b", "CogVideoX 5B as in Arachne Table II: 30 layers, 30 heads, hidden 1920",
     WEFT_DIT_JOINT, 30, 0, 1920, 30, 7680, 226, 4700000000, 4096, 2, 4, 8,
     2.0 * 4 * 27 * 2 * 128 * 128, 48, 256, 0.25, 16},
    {"hunyuanvideo-13b",
     "HunyuanVideo 13B: 20 double- and 40 single-stream layers, 24 heads, hidden 3072",
     WEFT_DIT_DUAL, 60, 20, 3072, 24, 12288, 256, 8000000000, 4096, 2, 4, 8,
     2.0 * 4 * 27 * 2 * 128 * 128, 64, 256, 0.25, 16},
    {"st-dit-7b", "ST-DiT 7B: 21 layers, 32 heads, hidden 4096", WEFT_DIT_STDIT, 21, 0, 4096, 32,
     16384, 512, 4700000000, 4096, 2, 4, 8, 2.0 * 4 * 27 * 2 * 128 * 128, 48, 256, 0.25, 16},
    {"st-dit-12b", "ST-DiT 12B: 36 layers, 32 heads, hidden 4096", WEFT_DIT_STDIT, 36, 0, 4096, 32,
     16384, 512, 4700000000, 4096, 2, 4, 8, 2.0 * 4 * 27 * 2 * 128 * 128, 48, 256, 0.25, 16},
};

const weft_model_preset *weft_model_presets(int *count)
{
    *count = WEFT_COUNT(presets);
    return presets;
}

weft_status weft_model_find(const char *name, const weft_model_preset **out)
{
    const char *names[WEFT_COUNT(presets)];
    for (int i = 0; i < WEFT_COUNT(presets); i++) {
        names[i] = presets[i].name;
        if (!strcmp(name, presets[i].name)) {
            *out = &presets[i];
            return WEFT_OK;
        }
    }
    const char *near = weft_nearest_name(name, names, WEFT_COUNT(presets));
    return weft_fail(
        WEFT_E_NOT_FOUND,
        "model \"%s\" is not known (wan-1.3b, wan-14b, cogvideox-5b, hunyuanvideo-13b, "
        "st-dit-7b, st-dit-12b)%s%s%s",
        name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t weft_model_latent_frames(const weft_model_preset *m, int64_t frames)
{
    return 1 + divide_up(frames - 1, m->vae_time);
}

static int64_t frame_tokens(const weft_model_preset *m, int64_t height, int64_t width)
{
    return divide_up(divide_up(height, m->vae_space), m->patch) *
           divide_up(divide_up(width, m->vae_space), m->patch);
}

int64_t weft_model_tokens(const weft_model_preset *m, int64_t frames, int64_t height, int64_t width)
{
    return weft_model_latent_frames(m, frames) * frame_tokens(m, height, width);
}

int64_t weft_model_vae_tiles(const weft_model_preset *m, int64_t frames, int64_t height,
                             int64_t width)
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

double weft_model_tile_flops(const weft_model_preset *m)
{
    return m->vae_flops * (double)(m->tile_frames * m->tile_side * m->tile_side);
}

double weft_model_text_flops(const weft_model_preset *m)
{
    return 2.0 * (double)m->text_parameters * (double)m->text_tokens;
}

typedef struct maker {
    weft_arena *arena;
    weft_op_list *list;
    double tokens, hidden;
} maker;

/* A dense product of `tokens` rows with `weights` weights. Activations kept: its input. */
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

/* Flash attention: backward makes the scores again, 2.5 times the forward products. */
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

/* Norms, modulation, residuals: `passes` readings or writings of the stream; few weights. */
static weft_status memory_op(const maker *m, const char *name, double passes, double weights)
{
    const double io = 2 * passes * m->tokens * m->hidden;
    return weft_op_list_add(m->arena, m->list,
                            (weft_op_cost){.name = name,
                                           .kind = WEFT_WORK_MEMORY,
                                           .forward_bytes = io,
                                           .backward_bytes = 1.5 * io,
                                           .param_bytes = 2 * weights,
                                           .activation_bytes = 2 * m->tokens * m->hidden,
                                           .output_bytes = 2 * m->tokens * m->hidden});
}

static weft_status block_cross(const maker *m, const weft_model_preset *p)
{
    const double h = m->hidden, s = m->tokens, t = (double)p->text_tokens, f = (double)p->ffn;
    WEFT_TRY(memory_op(m, "modulate", 8, 6 * h));
    WEFT_TRY(gemm(m, "qkv", s, 3 * h * h, h, 3 * h));
    WEFT_TRY(attention(m, "attention", s, s, 1));
    WEFT_TRY(gemm(m, "proj", s, h * h, h, h));
    WEFT_TRY(gemm(m, "cross.q", s, h * h, h, h));
    WEFT_TRY(gemm(m, "cross.kv", t, 2 * h * h, h, 2 * h));
    WEFT_TRY(attention(m, "cross", s, t, 1));
    WEFT_TRY(gemm(m, "cross.proj", s, h * h, h, h));
    return gemm(m, "mlp", s, 2 * h * f, h + f, f + h);
}

static weft_status block_joint(const maker *m, const weft_model_preset *p)
{
    const double h = m->hidden, s = m->tokens + (double)p->text_tokens, f = (double)p->ffn;
    WEFT_TRY(memory_op(m, "modulate", 8, 12 * 512 * h));
    WEFT_TRY(gemm(m, "qkv", s, 3 * h * h, h, 3 * h));
    WEFT_TRY(attention(m, "attention", s, s, 1));
    WEFT_TRY(gemm(m, "proj", s, h * h, h, h));
    return gemm(m, "mlp", s, 2 * h * f, h + f, f + h);
}

static weft_status block_dual(const maker *m, const weft_model_preset *p, bool two_streams)
{
    const double h = m->hidden, t = (double)p->text_tokens, s = m->tokens + t, f = (double)p->ffn;
    WEFT_TRY(memory_op(m, "modulate", 8, (two_streams ? 12 : 3) * h * h));
    if (!two_streams) { /* one matrix for qkv and the MLP's first half, one for the way back */
        WEFT_TRY(gemm(m, "linear1", s, h * (3 * h + f), h, 3 * h + f));
        WEFT_TRY(attention(m, "attention", s, s, 1));
        return gemm(m, "linear2", s, (h + f) * h, h + f, h);
    }
    WEFT_TRY(gemm(m, "video.qkv", m->tokens, 3 * h * h, h, 3 * h));
    WEFT_TRY(gemm(m, "text.qkv", t, 3 * h * h, h, 3 * h));
    WEFT_TRY(attention(m, "attention", s, s, 1));
    WEFT_TRY(gemm(m, "video.proj", m->tokens, h * h, h, h));
    WEFT_TRY(gemm(m, "text.proj", t, h * h, h, h));
    WEFT_TRY(gemm(m, "video.mlp", m->tokens, 2 * h * f, h + f, f + h));
    return gemm(m, "text.mlp", t, 2 * h * f, h + f, f + h);
}

static weft_status block_stdit(const maker *m, const weft_model_preset *p, double frames,
                               double per_frame)
{
    static const char *const names[3][3] = {{"full.qkv", "full", "full.proj"},
                                            {"spatial.qkv", "spatial", "spatial.proj"},
                                            {"temporal.qkv", "temporal", "temporal.proj"}};
    const double h = m->hidden, s = m->tokens, f = (double)p->ffn;
    const double length[3] = {s, per_frame, frames};
    WEFT_TRY(memory_op(m, "modulate", 12, 12 * 256 * h));
    for (int i = 0; i < 3; i++) {
        WEFT_TRY(gemm(m, names[i][0], s, 3 * h * h, h, 3 * h));
        WEFT_TRY(attention(m, names[i][1], length[i], length[i], s / length[i]));
        WEFT_TRY(gemm(m, names[i][2], s, h * h, h, h));
    }
    return gemm(m, "mlp", s, 2 * h * f, h + f, f + h);
}

static weft_status build(weft_arena *arena, const weft_model_preset *p, double frames,
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
        case WEFT_DIT_CROSS: WEFT_TRY(block_cross(&m, p)); break;
        case WEFT_DIT_JOINT: WEFT_TRY(block_joint(&m, p)); break;
        case WEFT_DIT_DUAL: WEFT_TRY(block_dual(&m, p, i < p->double_layers)); break;
        case WEFT_DIT_STDIT: WEFT_TRY(block_stdit(&m, p, frames, per_frame)); break;
        }
    WEFT_TRY(gemm(&m, "unpatchify", m.tokens, patch * m.hidden, m.hidden, patch));
    *out = list;
    return WEFT_OK;
}

weft_status weft_model_costs(weft_arena *arena, const weft_model_preset *m, int64_t frames,
                             int64_t height, int64_t width, weft_op_list *out)
{
    if (frames < 1 || height < 1 || width < 1)
        return weft_fail(WEFT_E_ARG, "a clip of %lld frames of %lld x %lld pixels",
                         (long long)frames, (long long)height, (long long)width);
    return build(arena, m, (double)weft_model_latent_frames(m, frames),
                 (double)frame_tokens(m, height, width), out);
}

double weft_model_parameters(const weft_model_preset *m)
{
    weft_arena *arena = weft_arena_create();
    weft_op_list list;
    const double bytes = arena && build(arena, m, 1, 1, &list) == WEFT_OK
                             ? weft_op_list_total(&list).param_bytes
                             : 0;
    weft_arena_free(arena);
    return bytes / 2;
}
