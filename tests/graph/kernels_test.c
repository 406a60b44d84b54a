/* Every case on the kernels of `cpu`, compared with the reference in f64 by the tolerance of the
 * op's row; bitwise if that is 0. Sizes at the edges of vectors and tiles are in tests/kernel. */
#include "base/convert.h"
#include "base/memory.h"
#include "cases.h"
#include "kernel/cpu/table.h"
#include "kernel/host.h"
#include "lockstep.h"

#include <criterion/criterion.h>
#include <math.h>

/* Converts f64 values of the reference to the graph's type. The caller frees the result. */
static weft_view stored(const weft_graph *g, weft_value v, const weft_view *wide)
{
    if (!weft_value_ok(v))
        return (weft_view){.shape = {.rank = -1}};
    const weft_value_info *info = weft_value_get(g, v);
    const int64_t count = weft_shape_count(&info->shape);
    weft_view made = {.dtype = info->dtype, .shape = info->shape};
    made.data = weft_alloc_aligned(count * weft_dtype_bytes(info->dtype) + 64);
    weft_convert(made.data, info->dtype, wide->data, wide->dtype, count);
    return made;
}

static void run_kernel(const weft_node *n, weft_view *in, weft_view *out)
{
    const weft_kernel *k = weft_backend_cpu.kernel[n->op];
    void *cache = NULL;
    weft_kernel_args args = {.op = n->op,
                             .in = in,
                             .in_count = n->in_count,
                             .out = out,
                             .out_count = n->out_count,
                             .attr = n->attr,
                             .threads = weft_host_threads()};
    args.workspace = k->workspace ? weft_alloc_aligned(k->workspace(&args) + 64) : NULL;
    cr_assert(!k->prepare || k->prepare(&args, &cache) == WEFT_OK);
    args.cache = cache;
    cr_assert_eq(k->run(&args), WEFT_OK, "%s: %s", weft_op_get(n->op)->name, weft_error_message());
    if (k->release && cache)
        k->release(cache);
    weft_free(args.workspace);
}

static void compare(const weft_node *n, int o, const weft_view *got, const weft_view *want)
{
    const weft_op_info *info = weft_op_get(n->op);
    double error = 0, size = 0;
    for (int64_t i = 0; i < view_count(got); i++) {
        const double a = view_get(got, i), b = view_get(want, i);
        if (a == b || (info->tolerance_f32 == 0 && a == (double)(float)b))
            continue; /* equal infinities among them */
        error += (a - b) * (a - b);
        size += b * b;
    }
    cr_expect(!!(sqrt(error) <= info->tolerance_f32 * sqrt(size)),
              "%s: output %d is off by %g, tolerance %g", info->name, o, sqrt(error / size),
              info->tolerance_f32);
}

static void check_node(const weft_graph *g, const weft_node *n, const lockstep *l)
{
    weft_view in[WEFT_MAX_INPUTS], out[WEFT_MAX_OUTPUTS];
    for (int i = 0; i < n->in_count; i++)
        in[i] = stored(g, n->in[i], weft_value_ok(n->in[i]) ? &l->value[0][n->in[i].id] : NULL);
    for (int o = 0; o < n->out_count; o++)
        out[o] = stored(g, n->out[o], weft_value_ok(n->out[o]) ? &l->value[0][n->out[o].id] : NULL);
    for (int o = 0; o < n->out_count; o++)
        if (view_present(&out[o]))
            memset(out[o].data, 0x7f,
                   (size_t)(view_count(&out[o]) * weft_dtype_bytes(out[o].dtype)));
    run_kernel(n, in, out);
    for (int o = 0; o < n->out_count; o++)
        if (view_present(&out[o]))
            compare(n, o, &out[o], &l->value[0][n->out[o].id]);
    for (int i = 0; i < n->in_count; i++)
        weft_free(in[i].data);
    for (int o = 0; o < n->out_count; o++)
        weft_free(out[o].data);
}

Test(kernels, every_case_on_cpu)
{
    int count;
    const op_case *c = op_cases(&count);
    for (int i = 0; i < count; i++) {
        weft_graph *g = case_graph(&c[i], 0);
        lockstep *l = lockstep_run(1, &g, case_fill, (void *)(uintptr_t)&c[i]);
        cr_assert_str_empty(l->error, "%s", l->error);
        for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
            const weft_node *node = weft_graph_node(g, n);
            if (node->op == c[i].op && weft_backend_cpu.kernel[node->op])
                check_node(g, node, l);
        }
        lockstep_free(l);
        weft_graph_free(g);
    }
}
