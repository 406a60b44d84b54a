#include "plan/published/dit_list.h"

#include "base/config.h"

#include <string.h>

static const weft_dit_shape presets[] = {
    {"dit-7b-8k", 28, 4096, 32, 8192, 512, 1024, 256, 0, 0},
    {"dit-7b-74k", 28, 4096, 32, 73728, 512, 1024, 256, 0, 0},
    {"dit-28b-8k", 48, 6144, 48, 8192, 512, 1024, 256, 0, 0},
    {"dit-28b-74k", 48, 6144, 48, 73728, 512, 1024, 256, 0, 0},
};

const weft_dit_shape *weft_dit_preset_at(int index)
{
    return index >= 0 && index < WEFT_COUNT(presets) ? &presets[index] : NULL;
}

const weft_dit_shape *weft_dit_preset(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(presets); i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

typedef struct maker {
    weft_arena *arena;
    weft_op_list *list;
    double n, h; /* tokens, width */
} maker;

/* `weights` parameters, `multiplies` multiply-adds, `saved` bytes for the backward. */
static weft_status add(const maker *m, const char *name, weft_work kind, double weights,
                       double multiplies, double saved, double traffic)
{
    return weft_op_list_add(
        m->arena, m->list,
        (weft_op_cost){.name = name,
                       .kind = kind,
                       .forward_flops = 2 * multiplies,
                       .backward_flops = (kind == WEFT_WORK_ATTENTION ? 5 : 4) * multiplies,
                       .forward_bytes = traffic + 2 * weights,
                       .backward_bytes = 2 * traffic + 4 * weights,
                       .param_bytes = 2 * weights,
                       .activation_bytes = saved,
                       .recompute_flops = 2 * multiplies,
                       .output_bytes = 2 * m->n * m->h});
}

static weft_status add_layer(const maker *m, const weft_dit_shape *s)
{
    const double n = m->n, h = m->h, x = n * h, t = (double)s->text_tokens,
                 w = (double)s->text_width;
    const double rank = (double)s->adaln_rank, adaln = rank > 0 ? rank * 10 * h : 9 * h * h;
    const double experts = s->experts > 1 ? (double)s->experts : 1,
                 used = s->experts > 1 ? (double)s->top_k : 1;
    WEFT_TRY(add(m, "layer input", WEFT_WORK_MEMORY, 0, 0, 2 * x, 0));
    WEFT_TRY(add(m, "adaln", WEFT_WORK_GEMM, adaln, adaln, 0, 0));
    WEFT_TRY(add(m, "norm, scale, shift", WEFT_WORK_MEMORY, 0, 0, 4 * x, 8 * x));
    WEFT_TRY(add(m, "qkv linear", WEFT_WORK_GEMM, 3 * h * h, 3 * x * h, 6 * x, 8 * x));
    WEFT_TRY(add(m, "qk norm", WEFT_WORK_MEMORY, 2 * h, 0, 4 * x, 8 * x));
    WEFT_TRY(add(m, "attention", WEFT_WORK_ATTENTION, 0, 2 * n * x,
                 2 * x + 8 * n * (double)s->heads, 8 * x));
    WEFT_TRY(add(m, "out linear", WEFT_WORK_GEMM, h * h, x * h, 2 * x, 4 * x));
    WEFT_TRY(add(m, "gate", WEFT_WORK_MEMORY, 0, 0, 2 * x, 6 * x));
    if (s->text_tokens > 0) {
        WEFT_TRY(add(m, "norm, scale, shift", WEFT_WORK_MEMORY, 0, 0, 4 * x, 8 * x));
        WEFT_TRY(add(m, "cross q linear", WEFT_WORK_GEMM, h * h, x * h, 2 * x, 4 * x));
        WEFT_TRY(add(m, "cross kv linear", WEFT_WORK_GEMM, 2 * w * h, t * 2 * w * h, 4 * t * h,
                     4 * t * h));
        WEFT_TRY(add(m, "cross attention", WEFT_WORK_ATTENTION, 0, 2 * t * x, 2 * x, 4 * x));
        WEFT_TRY(add(m, "cross out linear", WEFT_WORK_GEMM, h * h, x * h, 2 * x, 4 * x));
        WEFT_TRY(add(m, "gate", WEFT_WORK_MEMORY, 0, 0, 2 * x, 6 * x));
    }
    WEFT_TRY(add(m, "norm, scale, shift", WEFT_WORK_MEMORY, 0, 0, 4 * x, 8 * x));
    WEFT_TRY(add(m, "ffn linear 1", WEFT_WORK_GEMM, 4 * h * h * experts, 4 * x * h * used,
                 8 * x * used, 10 * x * used));
    WEFT_TRY(add(m, "gelu", WEFT_WORK_MEMORY, 0, 0, 8 * x * used, 16 * x * used));
    WEFT_TRY(add(m, "ffn linear 2", WEFT_WORK_GEMM, 4 * h * h * experts, 4 * x * h * used,
                 2 * x * used, 10 * x * used));
    return add(m, "gate", WEFT_WORK_MEMORY, 0, 0, 2 * x, 6 * x);
}

weft_status weft_dit_costs(weft_arena *arena, const weft_dit_shape *s, weft_op_list *out)
{
    if (s->layers < 1 || s->hidden < 1 || s->heads < 1 || s->tokens < 1)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_NOWHERE,
                          "%s: layers %" PRId64 ", hidden %" PRId64 ", heads %" PRId64
                          " and tokens %" PRId64 " must be positive",
                          s->name, s->layers, s->hidden, s->heads, s->tokens);
    if (s->experts > 1 && (s->top_k < 1 || s->top_k > s->experts))
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.key = "top_k", WEFT_NUMBER(s->top_k)),
                          "%s: %" PRId64 " is not from 1 to %" PRId64 ", the number of experts",
                          s->name, s->top_k, s->experts);
    *out = (weft_op_list){.name = s->name,
                          .layers = s->layers,
                          .heads = s->heads,
                          .hidden = s->hidden,
                          .tokens = s->tokens,
                          .dtype_bytes = 2};
    const maker m = {arena, out, (double)s->tokens, (double)s->hidden};
    for (int64_t l = 0; l < s->layers; l++)
        WEFT_TRY(add_layer(&m, s));
    return WEFT_OK;
}
