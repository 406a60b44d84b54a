/* One row per op, from kernels.def; an op without a line there does not compile. And the wrapper
 * that lets every kernel see f32: bf16, f16 and f8 operands are widened into the workspace around
 * it. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/simd.h"

enum { ALL = -1 };
typedef struct cpu_row {
    weft_kernel kernel;
    int native; /* bit i: takes input i in narrow storage itself; ALL: outputs too */
} cpu_row;

/* clang-format off */
static const cpu_row cpu_rows[WEFT_OP_COUNT] = {
#define OWN(op) [WEFT_OP_##op] = {{0}, 0},
#define KERNEL(op, f, space, make, unmake, places, narrow)                                         \
    [WEFT_OP_##op] = {{cpu_##f, space, make, unmake, places}, narrow},
#include "kernel/cpu/kernels.def"
};
#define OWN(op)         +1
#define KERNEL(op, ...) +1
_Static_assert(0
#include "kernel/cpu/kernels.def"
               == WEFT_OP_COUNT, "an op has no line in kernels.def");
/* clang-format on */

/* ---- narrow storage around f32 kernels ------------------------------------------------------ */

static bool is_narrow(const weft_view *v)
{
    return view_present(v) &&
           (v->dtype == WEFT_BF16 || v->dtype == WEFT_F16 || v->dtype == WEFT_F8E4M3);
}

static bool widens_input(const cpu_row *row, const weft_kernel_args *args, int i)
{
    return row->native != ALL && !(row->native >> i & 1) && is_narrow(&args->in[i]);
}

static bool widens_output(const cpu_row *row, const weft_kernel_args *args, int o)
{
    return row->native != ALL && is_narrow(&args->out[o]);
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
        any |= widens_input(row, args, i);
    for (int i = 0; i < args->out_count; i++)
        any |= widens_output(row, args, i);
    if (!any)
        return false;
    for (int i = 0; i < args->in_count; i++) {
        w->in[i] = args->in[i];
        if (widens_input(row, args, i))
            w->in[i].dtype = WEFT_F32;
    }
    for (int i = 0; i < args->out_count; i++) {
        w->out[i] = args->out[i];
        if (widens_output(row, args, i))
            w->out[i].dtype = WEFT_F32;
    }
    w->args.in = w->in;
    w->args.out = w->out;
    w->inner = row->kernel.workspace ? (row->kernel.workspace(&w->args) + 63) & ~(int64_t)63 : 0;
    w->total = w->inner;
    for (int i = 0; i < args->in_count; i++)
        w->total += widens_input(row, args, i) ? aligned_bytes(&args->in[i]) : 0;
    for (int i = 0; i < args->out_count; i++)
        w->total += widens_output(row, args, i) ? aligned_bytes(&args->out[i]) : 0;
    return true;
}

static int64_t widened_workspace(const weft_kernel_args *args)
{
    const cpu_row *row = &cpu_rows[args->op];
    widened w;
    if (widen_views(row, args, &w))
        return w.total;
    return row->kernel.workspace ? row->kernel.workspace(args) : 0;
}

static weft_status_code widened_prepare(const weft_kernel_args *args, void **cache)
{
    const cpu_row *row = &cpu_rows[args->op];
    widened w;
    *cache = NULL;
    if (!row->kernel.prepare)
        return WEFT_OK;
    return row->kernel.prepare(widen_views(row, args, &w) ? &w.args : args, cache);
}

static weft_status_code widened_run(const weft_kernel_args *args)
{
    const cpu_row *row = &cpu_rows[args->op];
    widened w;
    if (!widen_views(row, args, &w))
        return row->kernel.run(args);
    char *space = (char *)args->workspace + w.inner;
    for (int i = 0; i < args->in_count; i++)
        if (widens_input(row, args, i)) {
            cpu_widen(args->in[i].dtype, args->in[i].data, (float *)space,
                      view_count(&args->in[i]));
            w.in[i].data = space;
            space += aligned_bytes(&args->in[i]);
        }
    for (int i = 0; i < args->out_count; i++)
        if (widens_output(row, args, i)) {
            w.out[i].data = space;
            space += aligned_bytes(&args->out[i]);
        }
    WEFT_TRY(row->kernel.run(&w.args));
    for (int i = 0; i < args->out_count; i++)
        if (widens_output(row, args, i))
            cpu_narrow(args->out[i].dtype, w.out[i].data, args->out[i].data,
                       view_count(&args->out[i]));
    return WEFT_OK;
}

/* clang-format off */
const weft_backend weft_backend_cpu = {
    .name = "cpu",
    .device = &weft_device_host,
    .kernel = {
#define OWN(op)
#define KERNEL(op, f, space, make, unmake, places, narrow)                                         \
    [WEFT_OP_##op] = {widened_run, widened_workspace, widened_prepare, unmake, places},
#include "kernel/cpu/kernels.def"
    },
};
/* clang-format on */
