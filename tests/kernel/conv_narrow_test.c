/* Convolutions of bf16 and f16, cpu compared with ref, which starts from the same narrow values.
 * Close, with the op row's tolerances: the order of addition differs. Results of one instruction set
 * are bitwise equal on any number of threads. */
#include "harness.h"

#include "base/memory.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/table.h"

#include <criterion/criterion.h>
#include <stdio.h>

typedef struct conv_case {
    const char *label;
    int64_t x[5], w[5]; /* (B,T,Y,X,I), (O,I,kt,ky,kx) */
    int64_t stride[3], before[3], after[3];
} conv_case;

/* Primitives of oneDNN, own kernels of few outputs and few channels, and 1x1x1, with odd sizes. */
static const conv_case cases[] = {
    {"rgb", {2, 2, 7, 9, 3}, {20, 3, 3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {"odd channels", {1, 2, 5, 6, 13}, {11, 13, 3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {"to rgb", {1, 3, 6, 17, 32}, {3, 32, 3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {"to one of odd channels", {1, 5, 8, 70, 9}, {1, 9, 2, 3, 3}, {2, 2, 1}, {1, 1, 2}, {0, 1, 0}},
    {"point", {2, 3, 6, 8, 5}, {7, 5, 1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {"empty", {0, 3, 6, 5, 16}, {16, 16, 3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {"causal", {1, 3, 6, 5, 16}, {16, 16, 3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {"down", {1, 2, 7, 9, 16}, {8, 16, 1, 3, 3}, {1, 2, 2}, {0, 0, 0}, {0, 1, 1}},
    {"time down", {2, 5, 4, 4, 70}, {72, 70, 3, 1, 1}, {2, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {"patch", {2, 3, 6, 8, 5}, {24, 5, 1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {0, 0, 0}},
    {"runs", {1, 4, 20, 50, 100}, {68, 100, 3, 1, 1}, {1, 1, 1}, {2, 0, 0}, {0, 0, 0}},
    {"frames of padding", {2, 1, 5, 4, 100}, {100, 100, 3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}},
    {"long point", {1, 3, 60, 50, 9}, {6, 9, 1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
};
enum { CASES = sizeof cases / sizeof *cases, MIXED = 6 };

static operand of(int rank, const int64_t *dim, weft_dtype dtype)
{
    operand o = {.rank = rank, .dtype = dtype};
    for (int d = 0; d < rank; d++)
        o.dim[d] = dim[d];
    return o;
}

static void check(op_case c, const conv_case *from, const char *what, uint64_t seed)
{
    char label[128];
    snprintf(label, sizeof label, "%s %s, %s", weft_op_get(c.op)->name, from->label, what);
    c.label = label;
    c.seed = seed;
    check_case(&c);
    if (c.in[0].dtype == WEFT_BF16 && c.in[1].dtype == WEFT_BF16)
        check_threads(&c);
}

/* The convolution and both gradients of the first cases: x of type `x`, weights of type `w`, dy of
 * type `dy`. */
static void check_types(uint64_t count, weft_dtype x, weft_dtype w, weft_dtype dy, const char *what)
{
    for (uint64_t i = 0; i < count; i++) {
        const conv_case *c = &cases[i];
        weft_attr_conv attr = {.x_shape = {5, {0}}};
        int64_t y[5] = {c->x[0], 0, 0, 0, c->w[0]};
        for (int d = 0; d < 3; d++) {
            attr.stride[d] = c->stride[d];
            attr.before[d] = c->before[d];
            attr.after[d] = c->after[d];
            attr.kernel[d] = c->w[2 + d];
            y[1 + d] = (c->x[1 + d] + c->before[d] + c->after[d] - c->w[2 + d]) / c->stride[d] + 1;
        }
        for (int d = 0; d < 5; d++)
            attr.x_shape.dim[d] = c->x[d];
        const operand in = of(5, c->x, x), weights = of(5, c->w, w), out = of(5, y, dy),
                      bias = of(1, c->w, i % 2 ? WEFT_F32 : w);
        check((op_case){.op = WEFT_OP_CONV3D, .attr = &attr, .in = {in, weights, bias}, .count = 3},
              c, what, i);
        check((op_case){.op = WEFT_OP_CONV3D_DX, .attr = &attr, .in = {out, weights}, .count = 2},
              c, what, i);
        check((op_case){.op = WEFT_OP_CONV3D_DW, .attr = &attr, .in = {in, out}, .count = 2}, c,
              what, i);
    }
}

Test(conv_narrow, bf16)
{
    check_types(CASES, WEFT_BF16, WEFT_BF16, WEFT_BF16, "bf16");
}

/* Weights are rounded and activations are not, or the other way round; f16 has no products. */
Test(conv_narrow, mixed)
{
    check_types(MIXED, WEFT_F32, WEFT_BF16, WEFT_F32, "bf16 weights");
    check_types(MIXED, WEFT_BF16, WEFT_F32, WEFT_F32, "f32 weights");
    check_types(MIXED, WEFT_F16, WEFT_BF16, WEFT_BF16, "f16");
}

static int64_t workspace_of(weft_op op, const weft_attr_conv *attr, const weft_view in[2],
                            weft_view *out)
{
    const weft_kernel_args args = {
        .op = op, .in = in, .in_count = 2, .out = out, .out_count = 1, .attr = attr, .threads = 1};
    return weft_backend_cpu.kernel[op]->workspace(&args);
}

/* Operands in bf16 are not copied as f32: the workspace of large frames is smaller than a copy. */
Test(conv_narrow, no_copies)
{
    const weft_attr_conv attr = {.stride = {1, 1, 1}, .before = {2, 1, 1}, .after = {0, 1, 1}};
    const weft_shape x = {5, {1, 3, 200, 200, 32}}, few = {5, {1, 3, 200, 200, 3}},
                     w = {5, {32, 32, 3, 3, 3}}, to_few = {5, {3, 32, 3, 3, 3}};
    const int64_t copy = 3 * 200 * 200 * 32 * 4;
    weft_view y = {.dtype = WEFT_BF16, .shape = few}, dx = {.dtype = WEFT_BF16, .shape = x};
    const weft_view in[] = {{.dtype = WEFT_BF16, .shape = x},
                            {.dtype = WEFT_BF16, .shape = to_few}},
                    wide[] = {{.dtype = WEFT_BF16, .shape = x}, {.dtype = WEFT_BF16, .shape = w}};
    cr_assert_lt(workspace_of(WEFT_OP_CONV3D, &attr, in, &y), copy);
    if (!cpu_isa_get()->bf16_units)
        return;
    cr_assert_lt(workspace_of(WEFT_OP_CONV3D, &attr, wide, &dx), copy / 8);
    cr_assert_lt(workspace_of(WEFT_OP_CONV3D_DX, &attr, wide, &dx), copy / 8);
}

/* Weights are packed for every run, into the workspace, which is part of predicted memory. A run
 * allocates nothing: the library's memory grows by less than half of the packed weights. */
Test(conv_narrow, packed_weights_are_counted)
{
    enum { C = 128, SIDE = 16, WEIGHTS = C * C * 27 };
    static const weft_attr_conv attr = {
        .stride = {1, 1, 1}, .before = {2, 1, 1}, .after = {0, 1, 1}};
    static float x[3 * SIDE * SIDE * C], w[WEIGHTS], y[3 * SIDE * SIDE * C];
    const weft_kernel *k = weft_backend_cpu.kernel[WEFT_OP_CONV3D];
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const weft_dtype type = bf16 ? WEFT_BF16 : WEFT_F32;
        const int64_t packed = WEIGHTS * weft_dtype_bytes(type);
        const weft_shape frames = WEFT_SHAPE(1, 3, SIDE, SIDE, C);
        const weft_view in[] = {{x, type, frames}, {w, type, WEFT_SHAPE(C, C, 3, 3, 3)}};
        weft_view out = {y, type, frames};
        weft_kernel_args args = {.op = WEFT_OP_CONV3D,
                                 .in = in,
                                 .in_count = 2,
                                 .out = &out,
                                 .out_count = 1,
                                 .attr = &attr,
                                 .threads = 1};
        const int64_t workspace = k->workspace(&args);
        cr_expect_geq(workspace, packed);
        args.workspace = weft_alloc_aligned(workspace);
        cr_assert_eq(k->prepare(&args, &args.cache), WEFT_OK, "%s", weft_error_message());
        const int64_t before = weft_memory_library_use();
        cr_assert_eq(k->run(&args), WEFT_OK, "%s", weft_error_message());
        const int64_t grown = weft_memory_library_use() - before;
        cr_expect_lt(grown, packed / 2, "%d: %" PRId64 " bytes", bf16, grown);
        k->release(args.cache);
        weft_free(args.workspace);
    }
}
