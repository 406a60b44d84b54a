/* The kernels, found by the stem of their op; a missing kernel is a link error. The wrapper around
 * a kernel widens bf16, f16 and f8 operands into the workspace, so that every kernel sees f32. */
#include "kernel/cpu/table.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/host.h"

/* clang-format off */
const weft_backend weft_backend_cpu = {
    .name = "cpu",
    .device = &weft_device_host,
    .kernel = {
#define WEFT_OWN(...)
#define WEFT_OP(ENUM, stem, ...) [WEFT_OP_##ENUM] = &cpu_##stem.kernel,
#include "graph/op.def"
    },
};
/* clang-format on */

/* Returns the kernel that the wrapper of this op calls. */
static const cpu_kernel *inner(const weft_kernel_args *args)
{
    return (const cpu_kernel *)(const void *)weft_backend_cpu.kernel[args->op];
}

/* ---- narrow storage around f32 kernels ------------------------------------------------------ */

static bool is_narrow(const weft_view *v)
{
    return view_present(v) &&
           (v->dtype == WEFT_BF16 || v->dtype == WEFT_F16 || v->dtype == WEFT_F8E4M3);
}

/* Returns the inputs that the kernel reads narrow, see cpu_kernel.narrow. */
static int narrow_of(const cpu_kernel *k, const weft_kernel_args *args)
{
    return k->narrow_of ? k->narrow_of(args) : k->narrow;
}

static bool widens_input(const cpu_kernel *k, const weft_kernel_args *args, int i)
{
    const int narrow = narrow_of(k, args);
    return narrow != CPU_ALL && !(narrow >> i & 1) && is_narrow(&args->in[i]);
}

static bool widens_output(const cpu_kernel *k, const weft_kernel_args *args, int o)
{
    return narrow_of(k, args) != CPU_ALL && is_narrow(&args->out[o]);
}

static int64_t aligned_bytes(const weft_view *v)
{
    return (view_count(v) * 4 + 63) & ~(int64_t)63;
}

static int64_t narrow_bytes(const weft_view *v)
{
    return view_count(v) * weft_dtype_bytes(v->dtype);
}

/* Kernel arguments with f32 views of all operands. */
typedef struct widened {
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_kernel_args args;
    int64_t inner, total; /* workspace bytes: of the kernel alone, and with the copies */
} widened;

static bool widen_views(const cpu_kernel *k, const weft_kernel_args *args, widened *w)
{
    bool any = false;
    w->args = *args;
    for (int i = 0; i < args->in_count; i++)
        any |= widens_input(k, args, i);
    for (int i = 0; i < args->out_count; i++)
        any |= widens_output(k, args, i);
    if (!any)
        return false;
    for (int i = 0; i < args->in_count; i++) {
        w->in[i] = args->in[i];
        if (widens_input(k, args, i))
            w->in[i].dtype = WEFT_F32;
    }
    for (int i = 0; i < args->out_count; i++) {
        w->out[i] = args->out[i];
        if (widens_output(k, args, i))
            w->out[i].dtype = WEFT_F32;
    }
    w->args.in = w->in;
    w->args.out = w->out;
    w->inner = k->workspace ? (k->workspace(&w->args) + 63) & ~(int64_t)63 : 0;
    w->total = w->inner;
    for (int i = 0; i < args->in_count; i++)
        w->total += widens_input(k, args, i) ? aligned_bytes(&args->in[i]) : 0;
    for (int i = 0; i < args->out_count; i++)
        w->total += widens_output(k, args, i) ? aligned_bytes(&args->out[i]) : 0;
    return true;
}

int64_t cpu_widened_workspace(const weft_kernel_args *args)
{
    const cpu_kernel *k = inner(args);
    widened w;
    if (widen_views(k, args, &w))
        return w.total;
    return k->workspace ? k->workspace(args) : 0;
}

weft_status_code cpu_widened_prepare(const weft_kernel_args *args, void **cache)
{
    const cpu_kernel *k = inner(args);
    widened w;
    *cache = NULL;
    if (!k->prepare)
        return WEFT_OK;
    return k->prepare(widen_views(k, args, &w) ? &w.args : args, cache);
}

weft_status_code cpu_widened_run(const weft_kernel_args *args)
{
    const cpu_kernel *k = inner(args);
    widened w;
    if (!widen_views(k, args, &w))
        return k->run(args);
    char *space = (char *)args->workspace + w.inner;
    for (int i = 0; i < args->in_count; i++)
        if (widens_input(k, args, i)) {
            cpu_widen(args->in[i].dtype, args->in[i].data, (float *)space,
                      view_count(&args->in[i]));
            cpu_count_converted(args->op, narrow_bytes(&args->in[i]));
            w.in[i].data = space;
            space += aligned_bytes(&args->in[i]);
        }
    for (int i = 0; i < args->out_count; i++)
        if (widens_output(k, args, i)) {
            w.out[i].data = space;
            space += aligned_bytes(&args->out[i]);
        }
    WEFT_TRY(k->run(&w.args));
    for (int i = 0; i < args->out_count; i++)
        if (widens_output(k, args, i)) {
            cpu_count_converted(args->op, narrow_bytes(&args->out[i]));
            cpu_narrow(args->out[i].dtype, w.out[i].data, args->out[i].data,
                       view_count(&args->out[i]));
        }
    return WEFT_OK;
}
