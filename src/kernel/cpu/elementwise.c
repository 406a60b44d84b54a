/* Elementwise ops. Every op is one pass over memory; threads take fixed pieces. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/operands.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>

enum { PIECE = 2048 }; /* elements of a piece: three f32 operands fit in the first-level cache */

/* clang-format off */
#define EACH_PIECE(count)                                                          \
    _Pragma("omp parallel for schedule(static) num_threads(cpu_threads(count))")   \
    for (int64_t at = 0; at < (count); at += PIECE)
/* clang-format on */
#define PIECE_LEN(count) ((count)-at < PIECE ? (count)-at : PIECE)

CPU_KERNEL_WITH(fill, .narrow = CPU_ALL)
{
    const weft_attr_fill *attr = args->attr;
    const weft_view *out = &args->out[0];
    const int64_t count = view_count(out), bytes = weft_dtype_bytes(out->dtype);
    if (count == 0)
        return WEFT_OK;
    view_set(out, 0, attr->value);
    char *data = out->data;
    for (int64_t done = 1; done < count; done *= 2) /* doubles the copied bytes each time */
        memcpy(data + done * bytes, data,
               (size_t)((count - done < done ? count - done : done) * bytes));
    return WEFT_OK;
}

/* Fills the output with random values. Element (b, i) is a function of key[b], the purpose, and the
 * index of i in the sample's global shape (base/rng.h). Every backend and every sharding thus draws
 * the same values. */
static void random_fill(const weft_kernel_args *args,
                        float (*draw)(uint64_t seed, weft_rng_purpose purpose, uint64_t index))
{
    const weft_attr_random *attr = args->attr;
    const weft_view *out = &args->out[0];
    const weft_shape *s = &out->shape;
    const int64_t count = view_count(out), width = s->rank > 1 ? s->dim[s->rank - 1] : 1;
    const int64_t rows = width ? count / width : 0,
                  rows_per_sample = rows && s->dim[0] ? rows / s->dim[0] : 1;
    float *y = out->data;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count * 16))
    for (int64_t row = 0; row < rows; row++) {
        int64_t global = 0, rest = row % rows_per_sample, index[WEFT_MAX_RANK] = {0};
        for (int d = s->rank - 2; d >= 1; d--) {
            index[d] = rest % s->dim[d];
            rest /= s->dim[d];
        }
        for (int d = 1; d < s->rank; d++)
            global = global * attr->global.dim[d] + attr->start[d] + index[d];
        const uint64_t key = (uint64_t)view_get_int(&args->in[0], row / rows_per_sample);
        for (int64_t i = 0; i < width; i++)
            y[row * width + i] = draw(key, attr->purpose, (uint64_t)(global + i));
    }
}

CPU_KERNEL(random_normal)
{
    random_fill(args, weft_random_normal);
    return WEFT_OK;
}

CPU_KERNEL(random_uniform)
{
    random_fill(args, weft_random_uniform);
    return WEFT_OK;
}

/* Computes a piece of an op whose operands have one shape: n elements of y from the same elements
 * of x. */
typedef void point_function(const cpu_cells *run, const void *const x[2], void *y, int64_t n,
                            const void *attr);

static weft_status_code pointwise(const weft_kernel_args *args, point_function *compute, bool f32)
{
    const cpu_operands o = cpu_operands_of(args, 3 | CPU_OUTPUT, f32);
    const int64_t count = view_count(&args->out[0]);
    EACH_PIECE(count)
    {
        float space[3][PIECE];
        const int64_t n = PIECE_LEN(count);
        const void *x[2] = {cpu_read(&o, &args->in[0], at, n, space[0])};
        if (args->in_count > 1)
            x[1] = cpu_read(&o, &args->in[1], at, n, space[1]);
        void *y = cpu_write(&o, &args->out[0], at, space[2]);
        compute(o.run, x, y, n, args->attr);
        cpu_written(&o, &args->out[0], at, n, y);
    }
    return WEFT_OK;
}

/* The kernel `name`. The call computes n elements of y from x[0] and x[1] by functions of run. */
#define POINTWISE_IN(name, f32, call)                                                              \
    static void name##_piece(const cpu_cells *run, const void *const x[2], void *y, int64_t n,     \
                             const void *attr)                                                     \
    {                                                                                              \
        (void)run;                                                                                 \
        (void)attr;                                                                                \
        call;                                                                                      \
    }                                                                                              \
    CPU_KERNEL_WITH(name, .narrow = CPU_ALL)                                                       \
    {                                                                                              \
        return pointwise(args, name##_piece, f32);                                                 \
    }
#define POINTWISE(name, call) POINTWISE_IN(name, false, call)

POINTWISE(exp, run->unary[CPU_EXP](x[0], y, n))
POINTWISE(tanh, run->unary[CPU_TANH](x[0], y, n))
POINTWISE(sigmoid, run->unary[CPU_SIGMOID](x[0], y, n))
POINTWISE(silu, run->unary[CPU_SILU](x[0], y, n))
POINTWISE(sqrt, run->unary[CPU_SQRT](x[0], y, n))
POINTWISE(rsqrt, run->unary[CPU_RSQRT](x[0], y, n))
POINTWISE(square, run->unary[CPU_SQUARE](x[0], y, n))
POINTWISE(stop, run->affine(x[0], y, n, 1, -0.0f))
POINTWISE(neg, run->affine(x[0], y, n, -1, -0.0f))
POINTWISE(silu_grad, run->silu_grad(x[0], x[1], y, n))

#define ATTR(type) ((const weft_attr_##type *)attr)

POINTWISE(gelu, run->unary[ATTR(gelu)->exact ? CPU_GELU_EXACT : CPU_GELU](x[0], y, n))
POINTWISE(gelu_grad, (ATTR(gelu)->exact ? run->gelu_exact_grad : run->gelu_grad)(x[0], x[1], y, n))
POINTWISE(affine, run->affine(x[0], y, n, (float)ATTR(affine)->scale, (float)ATTR(affine)->offset))
POINTWISE(clamp, run->clamp(x[0], y, n, (float)ATTR(clamp)->lo, (float)ATTR(clamp)->hi))
POINTWISE(clamp_grad,
          run->clamp_grad(x[0], x[1], y, n, (float)ATTR(clamp)->lo, (float)ATTR(clamp)->hi))

/* libm is fast enough for log, sin and cos, which are used on scalars and time embeddings. */
static void by_libm(double (*function)(double), const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)function((double)x[i]);
}

POINTWISE_IN(log, true, by_libm(log, x[0], y, n))
POINTWISE_IN(sin, true, by_libm(sin, x[0], y, n))
POINTWISE_IN(cos, true, by_libm(cos, x[0], y, n))

CPU_KERNEL_WITH(cast, .narrow = CPU_ALL)
{
    const weft_view *x = &args->in[0], *y = &args->out[0];
    const int64_t count = view_count(y);
    if (x->dtype == y->dtype)
        memmove(y->data, x->data, (size_t)(count * weft_dtype_bytes(x->dtype)));
    else if (y->dtype == WEFT_F32 && !dtype_is_int(x->dtype))
        cpu_widen(x->dtype, x->data, y->data, count);
    else if (x->dtype == WEFT_F32 && !dtype_is_int(y->dtype))
        cpu_narrow(y->dtype, x->data, y->data, count);
    else if (dtype_is_int(x->dtype) && dtype_is_int(y->dtype))
        for (int64_t i = 0; i < count; i++)
            view_set_int(y, i, view_get_int(x, i));
    else {
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
        for (int64_t i = 0; i < count; i++)
            view_set(y, i, view_get(x, i));
    }
    return WEFT_OK;
}

/* ---- two inputs with broadcast --------------------------------------------------------------- */

/* The dims of `out`. Adjacent dims are joined if each input has one stride along the joined dim. */
typedef struct joined_dims {
    int rank;
    int64_t dim[WEFT_MAX_RANK], a[WEFT_MAX_RANK], b[WEFT_MAX_RANK]; /* strides; 0: broadcast */
} joined_dims;

static joined_dims join_dims(const weft_shape *out, const weft_shape *a, const weft_shape *b)
{
    int64_t sa[WEFT_MAX_RANK], sb[WEFT_MAX_RANK];
    joined_dims w = {0};
    shape_strides(a, sa);
    shape_strides(b, sb);
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] == 1)
            continue;
        const int last = w.rank - 1;
        if (w.rank && w.a[last] == sa[d] * out->dim[d] && w.b[last] == sb[d] * out->dim[d]) {
            w.dim[last] *= out->dim[d];
            w.a[last] = sa[d];
            w.b[last] = sb[d];
            continue;
        }
        w.dim[w.rank] = out->dim[d];
        w.a[w.rank] = sa[d];
        w.b[w.rank] = sb[d];
        w.rank++;
    }
    if (w.rank == 0)
        w = (joined_dims){.rank = 1, .dim = {1}};
    return w;
}

static weft_status_code binary(const weft_kernel_args *args, int op)
{
    const weft_view *out = &args->out[0];
    const int64_t count = view_count(out);
    if (count == 0)
        return WEFT_OK;
    const joined_dims w = join_dims(&out->shape, &args->in[0].shape, &args->in[1].shape);
    const int inner = w.rank - 1;
    const int64_t len = w.dim[inner], rows = count / len;
    const cpu_operands o = cpu_operands_of(args, 3 | CPU_OUTPUT, false);
    const int a_step = w.a[inner] != 0, b_step = w.b[inner] != 0;
    const int64_t pieces = (len + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t task = 0; task < rows * pieces; task++) {
        float space[3][PIECE];
        const int64_t at = task % pieces * PIECE, n = PIECE_LEN(len);
        int64_t row = task / pieces, ia = 0, ib = 0;
        const int64_t to = row * len + at;
        for (int d = inner - 1; d >= 0; d--) {
            const int64_t i = row % w.dim[d];
            row /= w.dim[d];
            ia += i * w.a[d];
            ib += i * w.b[d];
        }
        const void *a = cpu_read(&o, &args->in[0], ia + at * a_step, a_step ? n : 1, space[0]),
                   *b = cpu_read(&o, &args->in[1], ib + at * b_step, b_step ? n : 1, space[1]);
        void *y = cpu_write(&o, out, to, space[2]);
        o.run->binary[op](a, a_step, b, b_step, y, n);
        cpu_written(&o, out, to, n, y);
    }
    return WEFT_OK;
}

CPU_KERNEL_WITH(add, .narrow = CPU_ALL)
{
    return binary(args, CPU_ADD);
}

CPU_KERNEL_WITH(sub, .narrow = CPU_ALL)
{
    return binary(args, CPU_SUB);
}

CPU_KERNEL_WITH(mul, .narrow = CPU_ALL)
{
    return binary(args, CPU_MUL);
}

CPU_KERNEL_WITH(div, .narrow = CPU_ALL)
{
    return binary(args, CPU_DIV);
}
