#include "plan/published/unet_list.h"

#include "base/config.h"

#include <string.h>

/* Letters: n tokens, h hidden width, c channels, p pixels. FLOPs count a multiply-add twice; the
 * backward pass is twice the forward pass. */

enum { WIDTH = 2 }; /* bytes of fp16 */

typedef enum family { UVIT, SDV2, HUNYUAN } family;

typedef struct size {
    weft_unet_preset preset;
    family family;
    int64_t width, depth;
} size;

/* The paper gives parameters, not shapes. Widths follow from the bytes of Table III and Fig. 14: a
 * boundary of UViT 2.7B is 258 x 2048, of Hunyuan-DiT 1024 x 1408 plus text, of SDv2 a multiple of
 * 4 x 4 x 1280 plus text. Depths follow from the parameters. */
static const size sizes[] = {
    {{"uvit-0.5b", "U-ViT-H/2 as published: width 1152, 29 blocks"}, UVIT, 1152, 29},
    {{"uvit-1b", "UViT 1B: width 1280, 49 blocks, 32x32x3"}, UVIT, 1280, 49},
    {{"uvit-2.7b", "UViT 2.7B: width 2048, 49 blocks"}, UVIT, 2048, 49},
    {{"uvit-6b", "UViT 6.0B: width 3072, 49 blocks"}, UVIT, 3072, 49},
    {{"sdv2-0.9b", "SD v2 UNet as published: 2 blocks per level, 32x32x4"}, SDV2, 0, 2},
    {{"sdv2-1.7b", "SD v2 UNet, 5 blocks per level"}, SDV2, 0, 5},
    {{"sdv2-2.5b", "SD v2 UNet, 8 blocks per level"}, SDV2, 0, 8},
    {{"sdv2-4.6b", "SD v2 UNet, 15 blocks per level"}, SDV2, 0, 15},
    {{"sdv2-7.2b", "SD v2 UNet, 24 blocks per level"}, SDV2, 0, 24},
    {{"hunyuan-dit-0.8b", "Hunyuan-DiT 0.8B: width 1408, 22 blocks, 64x64x4"}, HUNYUAN, 1408, 22},
    {{"hunyuan-dit-1.5b", "Hunyuan-DiT as published: width 1408, 40 blocks"}, HUNYUAN, 1408, 40},
    {{"hunyuan-dit-3b", "Hunyuan-DiT 3B: width 1408, 80 blocks"}, HUNYUAN, 1408, 80},
};

const weft_unet_preset *weft_unet_preset_at(int index)
{
    return index >= 0 && index < WEFT_COUNT(sizes) ? &sizes[index].preset : NULL;
}

/* ---- construction ---------------------------------------------------------------------------- */

typedef struct maker {
    weft_arena *arena;
    weft_unet_list *out;
    int64_t block, block_capacity;
    double context; /* bytes added to every output */
} maker;

/* `weights` parameters, `multiplies` multiply-adds, `output` and `saved` in elements. */
static weft_status add(maker *m, const char *name, weft_work kind, double weights,
                       double multiplies, double output, double saved)
{
    weft_op_list *l = &m->out->list;
    if (l->count == m->block_capacity) { /* doubling wastes at most half: arenas do not free */
        const int64_t capacity = m->block_capacity ? 2 * m->block_capacity : 64;
        int64_t *block;
        WEFT_TRY(WEFT_ARENA_NEW(m->arena, block, capacity, "the operators of %s", l->name));
        if (l->count > 0)
            memcpy(block, m->out->block, (size_t)l->count * sizeof *block);
        m->out->block = block;
        m->block_capacity = capacity;
    }
    m->out->block[l->count] = m->block;
    m->out->parameters += weights;
    const double traffic = WIDTH * (weights + saved + output);
    return weft_op_list_add(m->arena, l,
                            (weft_op_cost){.name = name,
                                           .kind = kind,
                                           .forward_flops = 2 * multiplies,
                                           .backward_flops = 4 * multiplies,
                                           .forward_bytes = traffic,
                                           .backward_bytes = 2 * traffic,
                                           .param_bytes = WIDTH * weights,
                                           .activation_bytes = WIDTH * saved,
                                           .recompute_flops = 2 * multiplies,
                                           .output_bytes = WIDTH * output + m->context});
}

static weft_status skip(maker *m, int64_t from, int64_t to, double elements)
{
    return weft_op_list_skip(m->arena, &m->out->list,
                             (weft_skip){(int32_t)from, (int32_t)to, WIDTH * elements});
}

static maker begin(weft_arena *arena, const char *name, weft_unet_list *out)
{
    *out = (weft_unet_list){.list = {.name = name, .dtype_bytes = WIDTH}};
    return (maker){.arena = arena, .out = out};
}

static weft_status check_size(const char *what, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = what, WEFT_NUMBER(value)),
                          "%" PRId64 " is not from %" PRId64 " to %" PRId64, value, low, high);
    return WEFT_OK;
}

/* ---- UViT: patches of 2, tokens + class + time, every second half block joins a skip --------- */

weft_status weft_uvit_costs(weft_arena *arena, int64_t hidden, int64_t depth, weft_unet_list *out)
{
    WEFT_TRY(check_size("hidden width", hidden, 8, 1 << 20));
    WEFT_TRY(check_size("depth", depth, 1, 10000));
    maker m = begin(arena, "uvit", out);
    const double h = (double)hidden, n = 16 * 16 + 2, x = n * h;
    const int64_t half = depth / 2;
    out->list.layers = depth;
    out->list.hidden = hidden;
    out->list.heads = hidden / 64;
    out->list.tokens = 16 * 16 + 2;
    WEFT_TRY(add(&m, "embed", WEFT_WORK_GEMM, 12 * h + n * h, 256 * 12 * h, x, x));
    int64_t *end;
    WEFT_TRY(WEFT_ARENA_NEW(arena, end, half + 1, "%" PRId64 " blocks", depth));
    for (int64_t b = 0; b < depth; b++) {
        /* embedding and head belong to the first and last block */
        m.block = b;
        const int64_t from = depth - 1 - b; /* block whose output this one joins */
        if (b > from) {
            WEFT_TRY(
                add(&m, "skip_linear", WEFT_WORK_GEMM, 2 * h * h + h, n * 2 * h * h, x, 2 * x));
            WEFT_TRY(skip(&m, end[from], out->list.count - 1, x));
        }
        WEFT_TRY(add(&m, "attention", WEFT_WORK_GEMM, 4 * h * h + 3 * h,
                     n * 4 * h * h + 2 * n * n * h, x, 6 * x));
        WEFT_TRY(add(&m, "mlp", WEFT_WORK_GEMM, 8 * h * h + 7 * h, n * 8 * h * h, x, 10 * x));
        if (b < half)
            end[b] = out->list.count - 1;
    }
    return add(&m, "decode", WEFT_WORK_GEMM, 12 * h + 2 * h + 9 * 3 * 3, 256 * 12 * h, 32 * 32 * 3,
               x);
}

/* ---- SD v2 UNet ------------------------------------------------------------------------------ */

enum { LEVELS = 4, TIME = 1280, TEXT = 77, TEXT_WIDTH = 1024 };
static const double channels[LEVELS] = {320, 640, 1280, 1280};

/* Two 3x3 convolutions, the time embedding, and a 1x1 shortcut if widths differ. */
static weft_status resnet(maker *m, const char *name, double in, double out, double pixels)
{
    const double shortcut = in != out ? in * out : 0;
    const double weights = 9 * in * out + 9 * out * out + shortcut + TIME * out + 3 * out +
                           (shortcut > 0 ? out : 0) + 2 * in + 2 * out;
    return add(m, name, WEFT_WORK_CONV, weights,
               pixels * (9 * in * out + 9 * out * out + shortcut) + TIME * out, pixels * out,
               pixels * (3 * in + 3 * out)); /* norm, activation and input of both convolutions */
}

/* Projection in, self-attention, cross-attention to the text, gated MLP, projection out. */
static weft_status transformer(maker *m, const char *name, double c, double n)
{
    const double weights = 20 * c * c + 2 * TEXT_WIDTH * c + 22 * c;
    const double multiplies =
        n * 20 * c * c + TEXT * 2.0 * TEXT_WIDTH * c + 2 * n * n * c + 2 * n * TEXT * c;
    return add(m, name, WEFT_WORK_GEMM, weights, multiplies, n * c, n * c * 27);
}

static weft_status sd_encoder(maker *m, int64_t per_level, double latent, int64_t *from,
                              double *wide, int64_t *count)
{
    weft_op_list *l = &m->out->list;
    double side = latent, c = channels[0];
    WEFT_TRY(add(m, "conv_in", WEFT_WORK_CONV, 9 * 4 * c + c + (c + 1) * TIME + (TIME + 1.0) * TIME,
                 side * side * 36 * c + (c + TIME) * TIME, side * side * c, side * side * 4));
    for (int64_t level = 0; level < LEVELS; level++) {
        from[*count] = l->count - 1; /* the convolution before the blocks of the level */
        wide[(*count)++] = c;
        for (int64_t i = 0; i < per_level; i++) {
            m->block++;
            WEFT_TRY(resnet(m, "down.res", c, channels[level], side * side));
            c = channels[level];
            if (level < LEVELS - 1)
                WEFT_TRY(transformer(m, "down.attn", c, side * side));
            from[*count] = l->count - 1;
            wide[(*count)++] = c;
        }
        if (level < LEVELS - 1) {
            m->block++;
            side /= 2;
            WEFT_TRY(add(m, "down", WEFT_WORK_CONV, 9 * c * c + c, side * side * 9 * c * c,
                         side * side * c, 4 * side * side * c));
        }
    }
    return WEFT_OK;
}

weft_status weft_sdv2_costs(weft_arena *arena, int64_t per_level, int64_t latent,
                            weft_unet_list *out)
{
    WEFT_TRY(check_size("blocks per level", per_level, 1, 1000));
    WEFT_TRY(check_size("latent side", latent, 8, 4096));
    maker m = begin(arena, "sdv2", out);
    weft_op_list *l = &out->list;
    const int64_t most = LEVELS * (per_level + 1);
    int64_t *from = weft_arena_calloc(arena, most, sizeof *from), count = 0;
    double *wide = weft_arena_calloc(arena, most, sizeof *wide);
    WEFT_TRY(WEFT_ALLOCATED(from && wide, "%" PRId64 " skips", most));
    m.context = out->context_bytes = (double)WIDTH * TEXT * TEXT_WIDTH;
    l->layers = 8 * per_level;
    l->hidden = 1280;
    l->heads = 20;
    l->tokens = latent * latent;
    WEFT_TRY(sd_encoder(&m, per_level, (double)latent, from, wide, &count));
    double side = (double)latent / 8, c = channels[LEVELS - 1];
    m.block++;
    WEFT_TRY(resnet(&m, "mid.res", c, c, side * side));
    WEFT_TRY(transformer(&m, "mid.attn", c, side * side));
    WEFT_TRY(resnet(&m, "mid.res", c, c, side * side));
    for (int64_t level = LEVELS - 1; level >= 0; level--) {
        for (int64_t i = 0; i <= per_level; i++) {
            m.block++;
            count--;
            WEFT_TRY(resnet(&m, "up.res", c + wide[count], channels[level], side * side));
            WEFT_TRY(skip(&m, from[count], l->count - 1, side * side * wide[count]));
            c = channels[level];
            if (level < LEVELS - 1)
                WEFT_TRY(transformer(&m, "up.attn", c, side * side));
        }
        if (level > 0) {
            side *= 2;
            WEFT_TRY(add(&m, "up", WEFT_WORK_CONV, 9 * c * c + c, side * side * 9 * c * c,
                         side * side * c, side * side * c));
        }
    }
    return add(&m, "conv_out", WEFT_WORK_CONV, 9 * c * 4 + 4 + 2 * c, side * side * 36 * c,
               side * side * 4, 2 * side * side * c);
}

/* ---- Hunyuan-DiT: self- and cross-attention; text of 77 CLIP and 256 T5 tokens --------------- */

weft_status weft_hunyuan_dit_costs(weft_arena *arena, int64_t hidden, int64_t depth,
                                   weft_unet_list *out)
{
    WEFT_TRY(check_size("hidden width", hidden, 16, 1 << 20));
    WEFT_TRY(check_size("depth", depth, 1, 10000));
    enum { TOKENS = 32 * 32, TEXT_TOKENS = 77 + 256 };
    maker m = begin(arena, "hunyuan-dit", out);
    const double h = (double)hidden, n = TOKENS, t = TEXT_TOKENS, x = n * h;
    const double wide = (double)(int64_t)(h * 4.3637); /* width of the MLP */
    const int64_t half = depth / 2 - 1;                /* blocks 0 .. half - 1 have a skip */
    /* a trained projection processes the text, and the time vector modulates every block: both are
     * sent with x, and so are their gradients */
    m.context = WIDTH * (t * TEXT_WIDTH + h);
    out->list.layers = depth;
    out->list.hidden = hidden;
    out->list.heads = 16;
    out->list.tokens = TOKENS;
    int64_t *end;
    WEFT_TRY(WEFT_ARENA_NEW(arena, end, depth + 1, "%" PRId64 " blocks", depth));
    WEFT_TRY(add(&m, "embed", WEFT_WORK_GEMM,
                 16 * h + 2048 * 8192.0 + 8192 * 1024.0 + 1280 * h + h * h,
                 n * 16 * h + 256 * (2048 * 8192.0 + 8192 * 1024.0), x, 16 * n + 256 * 8192));
    for (int64_t b = 0; b < depth; b++) {
        m.block = b; /* embedding and head belong to the first and last block */
        const int64_t from = depth - 1 - b;
        if (b > depth / 2 && from < half) {
            WEFT_TRY(
                add(&m, "skip_linear", WEFT_WORK_GEMM, 2 * h * h + 5 * h, n * 2 * h * h, x, 4 * x));
            WEFT_TRY(skip(&m, end[from], out->list.count - 1, x));
        }
        WEFT_TRY(add(&m, "attention", WEFT_WORK_GEMM, 5 * h * h + 8 * h,
                     n * 4 * h * h + h * h + 2 * n * n * h, x, 8 * x));
        WEFT_TRY(add(&m, "cross", WEFT_WORK_GEMM, 2 * h * h + 2 * TEXT_WIDTH * h + 8 * h,
                     n * 2 * h * h + t * 2 * TEXT_WIDTH * h + 2 * n * t * h, x, 5 * x + 2 * t * h));
        WEFT_TRY(add(&m, "mlp", WEFT_WORK_GEMM, 2 * h * wide + wide + 3 * h, n * 2 * h * wide, x,
                     2 * x + 2 * n * wide));
        end[b] = out->list.count - 1;
    }
    return add(&m, "final", WEFT_WORK_GEMM, 2 * h * h + 32 * h, n * 32 * h, n * 32, 2 * x);
}

weft_status weft_unet_costs(weft_arena *arena, const char *preset, weft_unet_list *out)
{
    for (int i = 0; i < WEFT_COUNT(sizes); i++) {
        const size *s = &sizes[i];
        if (strcmp(preset, s->preset.name) != 0)
            continue;
        switch (s->family) {
        case UVIT: WEFT_TRY(weft_uvit_costs(arena, s->width, s->depth, out)); break;
        case SDV2: WEFT_TRY(weft_sdv2_costs(arena, s->depth, 32, out)); break;
        case HUNYUAN: WEFT_TRY(weft_hunyuan_dit_costs(arena, s->width, s->depth, out)); break;
        }
        out->list.name = s->preset.name;
        return WEFT_OK;
    }
    weft_buf names = {0};
    for (int i = 0; i < WEFT_COUNT(sizes); i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", sizes[i].preset.name);
    const weft_status_code status = weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.value = preset),
                                               "no model '%.80s' with long skips; use one of %s",
                                               preset, names.data ? names.data : "others");
    weft_buf_free(&names);
    return status;
}
