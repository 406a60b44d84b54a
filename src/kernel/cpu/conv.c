/* conv3d, its data gradient and its weight gradient.
 *
 * FLOPs 2 B T'Y'X' O I kt ky kx each. Activations stay channels-last as in the graph, and oneDNN
 * pads by index, so activations are not copied. Only the weights (O,I,kt,ky,kx) are reordered to
 * the blocked form of the generated kernel and, for the weight gradient, back. 1x1x1 convolutions
 * are matrix products. prepare() creates the primitives; their scratch is in the workspace. */
#include "base/memory.h"
#include "kernel/cpu/conv_dw.h"
#include "kernel/cpu/conv_own.h"
#include "kernel/cpu/conv_primitive.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

static conv_shape conv_of(const weft_kernel_args *args, conv_kind kind)
{
    conv_shape s = {.kind = kind, .d.attr = args->attr};
    s.d.x = kind == CONV_DATA ? args->out[0].shape : args->in[0].shape;
    s.d.w = kind == CONV_WEIGHTS ? args->out[0].shape : args->in[1].shape;
    s.d.y = kind == CONV_FORWARD ? args->out[0].shape
            : kind == CONV_DATA  ? args->in[0].shape
                                 : args->in[1].shape;
    s.taps = s.d.w.dim[2];
    s.bias = kind == CONV_FORWARD && args->in_count > 2 && view_present(&args->in[2]);
    return s;
}

static bool is_empty(const conv_shape *s)
{
    return shape_span(&s->d.x, 0, 5) == 0 || shape_span(&s->d.y, 0, 5) == 0 ||
           shape_span(&s->d.w, 0, 5) == 0;
}

/* True if the convolution is a product of (positions, I) and (O, I). */
static bool is_pointwise(const conv_shape *s)
{
    for (int d = 0; d < 3; d++)
        if (s->d.w.dim[2 + d] != 1 || s->d.attr->stride[d] != 1 || s->d.attr->before[d] ||
            s->d.attr->after[d])
            return false;
    return true;
}

/* True if our own kernel runs the convolution. Own kernels are used where they are faster or more
 * exact (bench/README.md):
 *
 *   - the last layer of a decoder, whose few outputs oneDNN pads to a vector
 *   - weight gradients without AVX-512, where oneDNN falls back to im2col for causal padding
 *   - weight gradients of few channels. oneDNN's order of addition is less exact: two ranks differ
 *     from one by three times as much after 50 steps of a narrow VAE
 *   - weight gradients of large frames, up to the size whose partial sums stay in the cache */
static bool is_own(const conv_shape *s)
{
    enum { FEW = 64 * 64, CHANNELS = 96 * 96, LARGE_FRAME = 2048 };
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1];
    if (s->kind == CONV_FORWARD)
        return conv_own_few_fits(&s->d);
    return s->kind == CONV_WEIGHTS &&
           (!cpu_isa_get()->wide || O * I < FEW ||
            (O * I <= CHANNELS && shape_span(&s->d.y, 2, 4) >= LARGE_FRAME));
}

static bool uses_primitives(const conv_shape *s)
{
    return !is_empty(s) && !is_pointwise(s) && !is_own(s);
}

/* ---- 1x1x1 --------------------------------------------------------------------------------- */

/* A 1x1x1 convolution as a linear layer. */
typedef struct pointwise {
    weft_view in[3];
    weft_attr_linear attr;
    weft_kernel_args args;
} pointwise;

static void pointwise_of(const conv_shape *s, const weft_kernel_args *args, pointwise *p)
{
    *p = (pointwise){.in = {args->in[0], args->in[1]}, .attr = {WEFT_ACT_NONE}, .args = *args};
    if (s->bias)
        p->in[2] = args->in[2];
    p->in[1].shape = (weft_shape){2, {s->d.w.dim[0], s->d.w.dim[1]}};
    p->args.in = p->in;
    p->args.in_count = s->bias ? 3 : 2;
    p->args.attr = &p->attr;
}

/* The weight gradient has few elements and long sums. Sums are cut into parts by the shape, and
 * parts are added in order. */
enum { PART_POSITIONS = 4096, MAX_PARTS = 16, SMALL_GRADIENT = 192 };

static int64_t pointwise_parts(const conv_shape *s)
{
    const int64_t parts = shape_span(&s->d.x, 0, 4) / PART_POSITIONS;
    return s->d.w.dim[0] >= SMALL_GRADIENT || parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
}

static int64_t pointwise_workspace(const conv_shape *s, const weft_kernel_args *args)
{
    if (s->kind == CONV_WEIGHTS)
        return pointwise_parts(s) * s->d.w.dim[0] * s->d.w.dim[1] * 4;
    if (s->kind == CONV_DATA)
        return 0;
    pointwise p;
    pointwise_of(s, args, &p);
    return cpu_linear.workspace(&p.args);
}

static void pointwise_dx(const conv_shape *s, const weft_kernel_args *args)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1];
    cpu_gemm(&(cpu_product){.M = shape_span(&s->d.x, 0, 4),
                            .N = I,
                            .K = O,
                            .lda = O,
                            .ldb = I,
                            .ldc = I,
                            .A = args->in[0].data,
                            .B = args->in[1].data,
                            .C = args->out[0].data});
}

/* Computes dw (O,I) of positions [from, to). */
static void pointwise_dw_part(int64_t O, int64_t I, int64_t from, int64_t to, const float *x,
                              const float *dy, float *dw)
{
    cpu_gemm(&(cpu_product){.trans_a = true,
                            .M = O,
                            .N = I,
                            .K = to - from,
                            .lda = O,
                            .ldb = I,
                            .ldc = I,
                            .A = dy + from * O,
                            .B = x + from * I,
                            .C = dw});
}

static void pointwise_dw(const conv_shape *s, const weft_kernel_args *args)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1], positions = shape_span(&s->d.x, 0, 4),
                  parts = pointwise_parts(s);
    const float *x = args->in[0].data, *dy = args->in[1].data;
    float *dw = args->out[0].data, *partial = parts > 1 ? args->workspace : dw;
    const int threads = parts > 1 ? cpu_threads(positions * O) : 1;
    if (threads == 1) { /* no region of one thread around a product: see matmul */
        for (int64_t i = 0; i < parts; i++)
            pointwise_dw_part(O, I, positions * i / parts, positions * (i + 1) / parts, x, dy,
                              partial + i * O * I);
    } else {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t i = 0; i < parts; i++)
            pointwise_dw_part(O, I, positions * i / parts, positions * (i + 1) / parts, x, dy,
                              partial + i * O * I);
    }
    if (parts > 1) {
        memset(dw, 0, (size_t)(O * I) * sizeof *dw);
        cpu_isa_get()->f32->column_sums(partial, parts, O * I, dw);
    }
}

/* ---- the kernels --------------------------------------------------------------------------- */

static int64_t conv_workspace(const weft_kernel_args *args, conv_kind kind)
{
    const conv_shape s = conv_of(args, kind);
    if (is_empty(&s))
        return 0;
    if (is_pointwise(&s))
        return pointwise_workspace(&s, args);
    if (is_own(&s))
        return kind == CONV_FORWARD ? conv_own_few_workspace(&s.d) : conv_own_dw_workspace(&s.d);
    return kind == CONV_WEIGHTS ? conv_dw_workspace(&s, args->threads)
                                : conv_primitive_workspace(&s);
}

#define WORKSPACE(name, kind)                                                                      \
    static int64_t name##_workspace(const weft_kernel_args *args)                                  \
    {                                                                                              \
        return conv_workspace(args, kind);                                                         \
    }
WORKSPACE(conv3d, CONV_FORWARD)
WORKSPACE(conv3d_dx, CONV_DATA)
WORKSPACE(conv3d_dw, CONV_WEIGHTS)

static weft_status_code conv_prepare(const weft_kernel_args *args, conv_kind kind, void **cache)
{
    const conv_shape s = conv_of(args, kind);
    conv_cache *c = NULL;
    if (uses_primitives(&s))
        WEFT_TRY(conv_open(&s, &c));
    *cache = c;
    return WEFT_OK;
}

static weft_status_code conv3d_prepare(const weft_kernel_args *args, void **cache)
{
    return conv_prepare(args, CONV_FORWARD, cache);
}

static weft_status_code conv3d_dx_prepare(const weft_kernel_args *args, void **cache)
{
    return conv_prepare(args, CONV_DATA, cache);
}

static int64_t conv3d_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_FORWARD);
    return uses_primitives(&s) ? conv_opened_bytes(CONV_FORWARD) : 0;
}

static int64_t conv3d_dx_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_DATA);
    return uses_primitives(&s) ? conv_opened_bytes(CONV_DATA) : 0;
}

static weft_status_code conv3d_dw_prepare(const weft_kernel_args *args, void **cache)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    conv_dw_cache *c = NULL;
    if (uses_primitives(&s))
        WEFT_TRY(conv_dw_open(&s, args->threads, &c));
    *cache = c;
    return WEFT_OK;
}

static int64_t conv3d_dw_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    return uses_primitives(&s) ? conv_dw_opened_bytes(&s) : 0;
}

/* Writes the result for an empty operand: zeros plus the bias. */
static void conv_of_nothing(const weft_view *out, const float *bias)
{
    const int64_t count = view_count(out), O = view_last(out);
    float *y = out->data;
    for (int64_t i = 0; i < count; i++)
        y[i] = bias ? bias[i % O] : 0;
}

CPU_KERNEL_WITH(conv3d, .kernel.prepared = conv3d_prepared, .workspace = conv3d_workspace,
                .prepare = conv3d_prepare, .kernel.release = conv_release)
{
    const conv_shape s = conv_of(args, CONV_FORWARD);
    float *bias = s.bias ? args->in[2].data : NULL;
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], bias);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise p;
        pointwise_of(&s, args, &p);
        return cpu_linear.run(&p.args);
    }
    if (is_own(&s)) {
        conv_own_few(&s.d, args->in[0].data, args->in[1].data, bias, args->out[0].data,
                     args->workspace);
        return WEFT_OK;
    }
    return conv_execute(args->cache, CONV_FORWARD, args->workspace, args->in[0].data,
                        args->in[1].data, args->out[0].data, bias);
}

CPU_KERNEL_WITH(conv3d_dx, .kernel.prepared = conv3d_dx_prepared, .workspace = conv3d_dx_workspace,
                .prepare = conv3d_dx_prepare, .kernel.release = conv_release)
{
    const conv_shape s = conv_of(args, CONV_DATA);
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], NULL);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise_dx(&s, args);
        return WEFT_OK;
    }
    return conv_execute(args->cache, CONV_DATA, args->workspace, args->out[0].data,
                        args->in[1].data, args->in[0].data, NULL);
}

CPU_KERNEL_WITH(conv3d_dw, .kernel.prepared = conv3d_dw_prepared, .workspace = conv3d_dw_workspace,
                .prepare = conv3d_dw_prepare, .kernel.release = conv_dw_release)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], NULL);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise_dw(&s, args);
        return WEFT_OK;
    }
    if (is_own(&s)) {
        conv_own_dw(&s.d, args->in[0].data, args->in[1].data, args->out[0].data, args->workspace);
        return WEFT_OK;
    }
    return conv_dw_execute(args, &s);
}
