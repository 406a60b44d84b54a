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
    const bool narrow = args->in[0].dtype == WEFT_BF16 && args->in[1].dtype == WEFT_BF16;
    s.type = narrow && cpu_isa_get()->bf16_units ? WEFT_BF16 : WEFT_F32;
    s.plain = kind != CONV_WEIGHTS ? args->in[1].dtype : WEFT_F32;
    s.bias_type = s.bias ? args->in[2].dtype : WEFT_F32;
    return s;
}

static bool is_plain(const weft_view *v)
{
    return !view_present(v) || v->dtype == WEFT_F32 || v->dtype == WEFT_BF16;
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

/* A 1x1x1 convolution as an op of `rows` positions, which widens its operands itself. */
typedef struct pointwise {
    const weft_kernel *kernel;
    weft_view in[3], out;
    weft_attr_linear linear;
    weft_attr_matmul matmul;
    weft_kernel_args args;
} pointwise;

static weft_view as_matrix(const weft_view *v, int64_t rows, int64_t columns)
{
    return (weft_view){v->data, v->dtype, {2, {rows, columns}}};
}

/* y = linear(x, w, bias); dx = dy w */
static void pointwise_of(const conv_shape *s, const weft_kernel_args *args, pointwise *p)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1], rows = shape_span(&s->d.x, 0, 4);
    const bool forward = s->kind == CONV_FORWARD;
    *p = (pointwise){.kernel = forward ? &cpu_linear.kernel : &cpu_matmul.kernel,
                     .linear = {WEFT_ACT_NONE},
                     .args = *args};
    p->in[0] = as_matrix(&args->in[0], rows, forward ? I : O);
    p->in[1] = as_matrix(&args->in[1], O, I);
    if (s->bias)
        p->in[2] = args->in[2];
    p->out = as_matrix(&args->out[0], rows, forward ? O : I);
    p->args.op = forward ? WEFT_OP_LINEAR : WEFT_OP_MATMUL;
    p->args.in = p->in;
    p->args.in_count = s->bias ? 3 : 2;
    p->args.out = &p->out;
    p->args.attr = forward ? (const void *)&p->linear : &p->matmul;
}

/* The weight gradient has few elements and long sums. Sums are cut into parts by the shape, and
 * parts are added in order. */
enum { PART_POSITIONS = 4096, MAX_PARTS = 16, SMALL_GRADIENT = 192 };

static int64_t pointwise_parts(const conv_shape *s)
{
    const int64_t parts = shape_span(&s->d.x, 0, 4) / PART_POSITIONS;
    return s->d.w.dim[0] >= SMALL_GRADIENT || parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
}

/* dw (O,I) = dy^T x of part i, a product of its own */
static void pointwise_part(const conv_shape *s, const weft_kernel_args *args, int64_t i,
                           pointwise *p)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1], positions = shape_span(&s->d.x, 0, 4),
                  parts = pointwise_parts(s), from = positions * i / parts,
                  rows = positions * (i + 1) / parts - from;
    const weft_view *x = &args->in[0], *dy = &args->in[1];
    *p = (pointwise){.kernel = &cpu_matmul.kernel, .matmul = {.trans_a = true}, .args = *args};
    p->in[0] = as_matrix(dy, rows, O);
    p->in[1] = as_matrix(x, rows, I);
    p->out = as_matrix(&args->out[0], O, I);
    if (x->data) { /* not while the workspace is planned */
        p->in[0].data = (char *)dy->data + from * O * weft_dtype_bytes(dy->dtype);
        p->in[1].data = (char *)x->data + from * I * weft_dtype_bytes(x->dtype);
    }
    if (pointwise_parts(s) > 1)
        p->args.threads = 1;
    p->args.op = WEFT_OP_MATMUL;
    p->args.in = p->in;
    p->args.in_count = 2;
    p->args.out = &p->out;
    p->args.attr = &p->matmul;
}

static int64_t workspace_of(const pointwise *p)
{
    const int64_t bytes = p->kernel->workspace ? p->kernel->workspace(&p->args) : 0;
    return (bytes + 63) & ~(int64_t)63;
}

/* Workspace of a part, whose last part is the longest. */
static int64_t part_workspace(const conv_shape *s, const weft_kernel_args *args)
{
    pointwise p;
    pointwise_part(s, args, pointwise_parts(s) - 1, &p);
    return workspace_of(&p);
}

/* Bytes of the sums of all parts. */
static int64_t sums_bytes(const conv_shape *s)
{
    return (pointwise_parts(s) * s->d.w.dim[0] * s->d.w.dim[1] * 4 + 63) & ~(int64_t)63;
}

static int64_t pointwise_workspace(const conv_shape *s, const weft_kernel_args *args)
{
    pointwise p;
    if (s->kind == CONV_WEIGHTS) {
        const int64_t parts = pointwise_parts(s);
        return (parts > 1 ? sums_bytes(s) : 0) + parts * part_workspace(s, args);
    }
    pointwise_of(s, args, &p);
    return workspace_of(&p);
}

/* Bytes of the code that products compile. */
static int64_t pointwise_prepared(const conv_shape *s, const weft_kernel_args *args)
{
    pointwise p;
    if (s->kind == CONV_WEIGHTS)
        pointwise_part(s, args, pointwise_parts(s) - 1, &p);
    else
        pointwise_of(s, args, &p);
    return p.kernel->prepared ? p.kernel->prepared(&p.args) : 0;
}

static weft_status_code pointwise_dw_part(const conv_shape *s, const weft_kernel_args *args,
                                          int64_t i, float *sum, char *space)
{
    pointwise p;
    pointwise_part(s, args, i, &p);
    p.out.data = sum;
    p.args.workspace = space;
    return p.kernel->run(&p.args);
}

static weft_status_code pointwise_dw(const conv_shape *s, const weft_kernel_args *args)
{
    const int64_t O = s->d.w.dim[0], I = s->d.w.dim[1], positions = shape_span(&s->d.x, 0, 4),
                  parts = pointwise_parts(s);
    float *dw = args->out[0].data, *sums = args->workspace;
    if (parts == 1)
        return pointwise_dw_part(s, args, 0, dw, args->workspace);
    char *space = (char *)sums + sums_bytes(s);
    const int64_t each = part_workspace(s, args);
    const int threads = cpu_threads(positions * O);
    int failed = WEFT_OK;
    if (threads == 1) { /* no region of one thread around a product: see matmul */
        for (int64_t i = 0; i < parts; i++)
            WEFT_TRY(pointwise_dw_part(s, args, i, sums + i * O * I, space + i * each));
    } else {
#pragma omp parallel for schedule(static) num_threads(threads) reduction(max : failed)
        for (int64_t i = 0; i < parts; i++) {
            const int status = pointwise_dw_part(s, args, i, sums + i * O * I, space + i * each);
            failed = status > failed ? status : failed;
        }
    }
    memset(dw, 0, (size_t)(O * I) * sizeof *dw);
    cpu_isa_get()->f32->column_sums(sums, parts, O * I, dw);
    return (weft_status_code)failed;
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
        return (kind == CONV_FORWARD ? conv_own_few_workspace : conv_own_dw_workspace)(
            &s.d, args->in[0].dtype, args->in[1].dtype);
    return kind == CONV_WEIGHTS ? conv_dw_workspace(&s, args->threads)
                                : conv_primitive_workspace(&s);
}

/* Returns the operands that are read and written in bf16: all by own kernels, products with units
 * and 1x1x1 convolutions, else the weights, which are converted while they are reordered. */
static int conv_narrow(const weft_kernel_args *args, conv_kind kind)
{
    const conv_shape s = conv_of(args, kind);
    bool plain = is_plain(&args->out[0]);
    for (int i = 0; i < args->in_count; i++)
        plain &= is_plain(&args->in[i]);
    if (is_empty(&s))
        return 0;
    if (is_pointwise(&s) || (plain && (is_own(&s) || s.type == WEFT_BF16)))
        return CPU_ALL;
    return kind != CONV_WEIGHTS && is_plain(&args->in[1]) ? 1 << 1 : 0;
}

#define QUERIES(name, kind)                                                                        \
    static int64_t name##_workspace(const weft_kernel_args *args)                                  \
    {                                                                                              \
        return conv_workspace(args, kind);                                                         \
    }                                                                                              \
    static int name##_narrow(const weft_kernel_args *args)                                         \
    {                                                                                              \
        return conv_narrow(args, kind);                                                            \
    }
QUERIES(conv3d, CONV_FORWARD)
QUERIES(conv3d_dx, CONV_DATA)
QUERIES(conv3d_dw, CONV_WEIGHTS)

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
    return is_empty(&s)          ? 0
           : is_pointwise(&s)    ? pointwise_prepared(&s, args)
           : uses_primitives(&s) ? conv_opened_bytes(CONV_FORWARD, s.type)
                                 : 0;
}

static int64_t conv3d_dx_prepared(const weft_kernel_args *args)
{
    const conv_shape s = conv_of(args, CONV_DATA);
    return is_empty(&s)          ? 0
           : is_pointwise(&s)    ? pointwise_prepared(&s, args)
           : uses_primitives(&s) ? conv_opened_bytes(CONV_DATA, s.type)
                                 : 0;
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
    return is_empty(&s)          ? 0
           : is_pointwise(&s)    ? pointwise_prepared(&s, args)
           : uses_primitives(&s) ? conv_dw_opened_bytes(&s)
                                 : 0;
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
                .narrow_of = conv3d_narrow, .prepare = conv3d_prepare,
                .kernel.release = conv_release)
{
    const conv_shape s = conv_of(args, CONV_FORWARD);
    void *bias = s.bias ? args->in[2].data : NULL;
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], bias);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise p;
        pointwise_of(&s, args, &p);
        return p.kernel->run(&p.args);
    }
    if (is_own(&s)) {
        conv_own_few(&s.d, &args->in[0], &args->in[1], s.bias ? &args->in[2] : NULL, &args->out[0],
                     args->workspace);
        return WEFT_OK;
    }
    return conv_execute(args->cache, CONV_FORWARD, args->workspace, args->in[0].data,
                        args->in[1].data, args->out[0].data, bias);
}

CPU_KERNEL_WITH(conv3d_dx, .kernel.prepared = conv3d_dx_prepared, .workspace = conv3d_dx_workspace,
                .narrow_of = conv3d_dx_narrow, .prepare = conv3d_dx_prepare,
                .kernel.release = conv_release)
{
    const conv_shape s = conv_of(args, CONV_DATA);
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], NULL);
        return WEFT_OK;
    }
    if (is_pointwise(&s)) {
        pointwise p;
        pointwise_of(&s, args, &p);
        return p.kernel->run(&p.args);
    }
    return conv_execute(args->cache, CONV_DATA, args->workspace, args->out[0].data,
                        args->in[1].data, args->in[0].data, NULL);
}

CPU_KERNEL_WITH(conv3d_dw, .kernel.prepared = conv3d_dw_prepared, .workspace = conv3d_dw_workspace,
                .narrow_of = conv3d_dw_narrow, .prepare = conv3d_dw_prepare,
                .kernel.release = conv_dw_release)
{
    const conv_shape s = conv_of(args, CONV_WEIGHTS);
    if (is_empty(&s)) {
        conv_of_nothing(&args->out[0], NULL);
        return WEFT_OK;
    }
    if (is_pointwise(&s))
        return pointwise_dw(&s, args);
    if (is_own(&s)) {
        conv_own_dw(&s.d, &args->in[0], &args->in[1], args->out[0].data, args->workspace);
        return WEFT_OK;
    }
    return conv_dw_execute(args, &s);
}
