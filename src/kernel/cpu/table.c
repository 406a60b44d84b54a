/* One row per op, filled through op.def: an op without a row here does not compile. And the wrapper
 * that lets every kernel see f32: bf16, f16 and f8 operands are widened into the workspace around
 * it. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/simd.h"

/* Rows marked `native` take narrow storage themselves. */
typedef struct cpu_row {
    weft_kernel kernel;
    bool native;
} cpu_row;

/* OWN(op): sources, aliases and layout conversions, which the runtime does itself.
 * KERNEL(op, run, workspace, prepare, release, in_place, native). Both are defined twice below. */
#define PLAIN(op, f)          KERNEL(op, f, NULL, NULL, NULL, 0, false)
#define SAME(op, f)           KERNEL(op, f, NULL, NULL, NULL, 1, false) /* out may be input 0 */
#define SAME2(op, f)          KERNEL(op, f, NULL, NULL, NULL, 3, false) /* input 0 or 1 */
#define MOVER(op, f)          KERNEL(op, f, NULL, NULL, NULL, 0, true)
#define SCRATCH(op, f, space) KERNEL(op, f, space, NULL, NULL, 0, false)
#define CONV(op, f)           KERNEL(op, f, f##_workspace, f##_prepare, cpu_conv_release, 0, false)
#define TEAM(op, f)                                                                                \
    KERNEL(op, f, f##_workspace, cpu_attention_prepare, weft_free, 0, false)

#define K_INPUT(op)           OWN(op)
#define K_PARAM(op)           OWN(op)
#define K_STATE(op)           OWN(op)
#define K_CONSTANT(op)        OWN(op)
#define K_FILL(op)            MOVER(op, cpu_fill)
#define K_RANDOM_NORMAL(op)   PLAIN(op, cpu_random_normal)
#define K_RANDOM_UNIFORM(op)  PLAIN(op, cpu_random_uniform)
#define K_NEG(op)             SAME(op, cpu_neg)
#define K_AFFINE(op)          SAME(op, cpu_affine)
#define K_CAST(op)            MOVER(op, cpu_cast)
#define K_EXP(op)             SAME(op, cpu_exp)
#define K_LOG(op)             SAME(op, cpu_log)
#define K_SQRT(op)            SAME(op, cpu_sqrt)
#define K_RSQRT(op)           SAME(op, cpu_rsqrt)
#define K_SQUARE(op)          SAME(op, cpu_square)
#define K_SIN(op)             SAME(op, cpu_sin)
#define K_COS(op)             SAME(op, cpu_cos)
#define K_TANH(op)            SAME(op, cpu_tanh)
#define K_SIGMOID(op)         SAME(op, cpu_sigmoid)
#define K_SILU(op)            SAME(op, cpu_silu)
#define K_SILU_GRAD(op)       SAME2(op, cpu_silu_grad)
#define K_GELU(op)            SAME(op, cpu_gelu)
#define K_GELU_GRAD(op)       SAME2(op, cpu_gelu_grad)
#define K_CLAMP(op)           SAME(op, cpu_clamp)
#define K_CLAMP_GRAD(op)      SAME2(op, cpu_clamp_grad)
#define K_ADD(op)             PLAIN(op, cpu_add)
#define K_SUB(op)             PLAIN(op, cpu_sub)
#define K_MUL(op)             PLAIN(op, cpu_mul)
#define K_DIV(op)             PLAIN(op, cpu_div)
#define K_SUM(op)             SCRATCH(op, cpu_sum, cpu_sum_workspace)
#define K_BROADCAST(op)       MOVER(op, cpu_broadcast)
#define K_RESHAPE(op)         OWN(op)
#define K_PERMUTE(op)         MOVER(op, cpu_permute)
#define K_SLICE(op)           MOVER(op, cpu_slice)
#define K_PAD(op)             MOVER(op, cpu_pad)
#define K_CONCAT(op)          MOVER(op, cpu_concat)
#define K_MATMUL(op)          PLAIN(op, cpu_matmul)
#define K_LINEAR(op)          KERNEL(op, cpu_linear, cpu_linear_workspace, NULL, NULL, 0, true)
#define K_CONV3D(op)          CONV(op, cpu_conv3d)
#define K_CONV3D_DX(op)       CONV(op, cpu_conv3d_dx)
#define K_CONV3D_DW(op)       CONV(op, cpu_conv3d_dw)
#define K_ATTENTION(op)       TEAM(op, cpu_attention)
#define K_ATTENTION_GRAD(op)  TEAM(op, cpu_attention_grad)
#define K_ATTENTION_MERGE(op) KERNEL(op, cpu_attention_merge, NULL, NULL, NULL, 5, false)
#define K_ATTENTION_MERGE_GRAD(op) PLAIN(op, cpu_attention_merge_grad)
#define K_LAYER_NORM(op)      SAME(op, cpu_layer_norm)
#define K_LAYER_NORM_GRAD(op) SCRATCH(op, cpu_layer_norm_grad, cpu_norm_grad_workspace)
#define K_RMS_NORM(op)        SAME(op, cpu_rms_norm)
#define K_RMS_NORM_GRAD(op)   SCRATCH(op, cpu_rms_norm_grad, cpu_norm_grad_workspace)
#define K_MODULATE(op)        SAME(op, cpu_modulate)
#define K_MODULATE_GRAD(op)   SCRATCH(op, cpu_modulate_grad, cpu_modulate_grad_workspace)
#define K_GATED_ADD(op)       SAME2(op, cpu_gated_add)
#define K_GATED_ADD_GRAD(op)  SCRATCH(op, cpu_gated_add_grad, cpu_modulate_grad_workspace)
#define K_ROPE(op)            SAME(op, cpu_rope)
#define K_EMBED(op)           MOVER(op, cpu_embed)
#define K_EMBED_GRAD(op)      PLAIN(op, cpu_embed_grad)
#define K_SUM_SQUARES(op)     SCRATCH(op, cpu_sum_squares, cpu_sum_squares_workspace)
#define K_CLIP_SCALE(op)      PLAIN(op, cpu_clip_scale)
#define K_ADAMW(op)           SAME(op, cpu_adamw)
#define K_EMA(op)             SAME(op, cpu_ema)
#define K_VARY(op)            OWN(op)
#define K_ALL_REDUCE(op)      OWN(op)
#define K_ALL_GATHER(op)      OWN(op)
#define K_REDUCE_SCATTER(op)  OWN(op)
#define K_SLICE_OWN(op)       OWN(op)
#define K_ALL_TO_ALL(op)      OWN(op)
#define K_RING_SHIFT(op)      OWN(op)

#define OWN(op)                                                                                    \
    {                                                                                              \
        {0}, false                                                                                 \
    }
#define KERNEL(op, f, space, make, unmake, places, narrow)                                         \
    {                                                                                              \
        {.run = f, .workspace = space, .prepare = make, .release = unmake, .in_place = places},    \
            narrow                                                                                 \
    }
static const cpu_row cpu_rows[WEFT_OP_COUNT] = {
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = K_##ENUM(ENUM),
#include "graph/op.def"
#undef WEFT_OP
};
#undef OWN
#undef KERNEL

/* ---- narrow storage around f32 kernels
 * ------------------------------------------------------------------ */

static bool is_narrow(const weft_view *v)
{
    return view_present(v) &&
           (v->dtype == WEFT_BF16 || v->dtype == WEFT_F16 || v->dtype == WEFT_F8E4M3);
}

static int64_t aligned_bytes(const weft_view *v)
{
    return (view_count(v) * 4 + 63) & ~(int64_t)63;
}

/* The same arguments with f32 views. */
typedef struct widened {
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args;
    int64_t inner, total; /* workspace: the kernel's own, and with the copies */
} widened;

static bool widen_views(const cpu_row *row, const weft_kernel_args *args, widened *w)
{
    bool any = false;
    w->args = *args;
    for (int i = 0; i < args->in_count; i++)
        any |= is_narrow(&args->in[i]);
    for (int i = 0; i < args->out_count; i++)
        any |= is_narrow(&args->out[i]);
    if (!any || row->native)
        return false;
    for (int i = 0; i < args->in_count; i++) {
        w->in[i] = args->in[i];
        if (is_narrow(&w->in[i]))
            w->in[i].dtype = WEFT_F32;
    }
    for (int i = 0; i < args->out_count; i++) {
        w->out[i] = args->out[i];
        if (is_narrow(&w->out[i]))
            w->out[i].dtype = WEFT_F32;
    }
    w->args.in = w->in;
    w->args.out = w->out;
    w->inner = row->kernel.workspace ? (row->kernel.workspace(&w->args) + 63) & ~(int64_t)63 : 0;
    w->total = w->inner;
    for (int i = 0; i < args->in_count; i++)
        w->total += is_narrow(&args->in[i]) ? aligned_bytes(&args->in[i]) : 0;
    for (int i = 0; i < args->out_count; i++)
        w->total += is_narrow(&args->out[i]) ? aligned_bytes(&args->out[i]) : 0;
    return true;
}

static int64_t row_workspace(const cpu_row *row, const weft_kernel_args *args)
{
    widened w;
    if (widen_views(row, args, &w))
        return w.total;
    return row->kernel.workspace ? row->kernel.workspace(args) : 0;
}

static weft_status_code row_prepare(const cpu_row *row, const weft_kernel_args *args, void **cache)
{
    widened w;
    *cache = NULL;
    if (!row->kernel.prepare)
        return WEFT_OK;
    return row->kernel.prepare(widen_views(row, args, &w) ? &w.args : args, cache);
}

static weft_status_code row_run(const cpu_row *row, const weft_kernel_args *args)
{
    widened w;
    if (!widen_views(row, args, &w))
        return row->kernel.run(args);
    char *space = (char *)args->workspace + w.inner;
    for (int i = 0; i < args->in_count; i++)
        if (is_narrow(&args->in[i])) {
            cpu_widen(args->in[i].dtype, args->in[i].data, (float *)space,
                      view_count(&args->in[i]));
            w.in[i].data = space;
            space += aligned_bytes(&args->in[i]);
        }
    for (int i = 0; i < args->out_count; i++)
        if (is_narrow(&args->out[i])) {
            w.out[i].data = space;
            space += aligned_bytes(&args->out[i]);
        }
    WEFT_TRY(row->kernel.run(&w.args));
    for (int i = 0; i < args->out_count; i++)
        if (is_narrow(&args->out[i]))
            cpu_narrow(args->out[i].dtype, w.out[i].data, args->out[i].data,
                       view_count(&args->out[i]));
    return WEFT_OK;
}

/* A kernel gets no pointer to its row, so each op has its three entries. */
#define OWN(op)
#define KERNEL(op, ...)                                                                            \
    static weft_status_code run_##op(const weft_kernel_args *args)                                 \
    {                                                                                              \
        return row_run(&cpu_rows[WEFT_OP_##op], args);                                             \
    }                                                                                              \
    static int64_t workspace_##op(const weft_kernel_args *args)                                    \
    {                                                                                              \
        return row_workspace(&cpu_rows[WEFT_OP_##op], args);                                       \
    }                                                                                              \
    static weft_status_code prepare_##op(const weft_kernel_args *args, void **cache)               \
    {                                                                                              \
        return row_prepare(&cpu_rows[WEFT_OP_##op], args, cache);                                  \
    }
#define WEFT_OP(ENUM, ...) K_##ENUM(ENUM)
#include "graph/op.def"
#undef WEFT_OP
#undef OWN
#undef KERNEL

#define OWN(op)                                                                                    \
    {                                                                                              \
        0                                                                                          \
    }
#define KERNEL(op, f, space, make, unmake, places, narrow)                                         \
    {                                                                                              \
        .run = run_##op, .workspace = workspace_##op, .prepare = prepare_##op, .release = unmake,  \
        .in_place = places                                                                         \
    }
const weft_backend weft_backend_cpu = {
    .name = "cpu",
    .kernel =
        {
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = K_##ENUM(ENUM),
#include "graph/op.def"
#undef WEFT_OP
        },
};
