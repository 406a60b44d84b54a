/* Elementwise ops. Every op is one pass over memory; threads take fixed pieces. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <math.h>

enum { PIECE = 8192 }; /* elements of a piece: three operands fit in the first-level cache */

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

static weft_status_code vector_unary(const weft_kernel_args *args, enum cpu_unary which)
{
    const int64_t count = view_count(&args->out[0]);
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    void (*run)(const float *, float *, int64_t) = cpu_isa_get()->unary[which];
    EACH_PIECE(count)
    run(x + at, y + at, PIECE_LEN(count));
    return WEFT_OK;
}

#define VECTOR_UNARY(name, ENUM)                                                                   \
    CPU_KERNEL(name)                                                                               \
    {                                                                                              \
        return vector_unary(args, ENUM);                                                           \
    }

VECTOR_UNARY(exp, CPU_EXP)
VECTOR_UNARY(tanh, CPU_TANH)
VECTOR_UNARY(sigmoid, CPU_SIGMOID)
VECTOR_UNARY(silu, CPU_SILU)
VECTOR_UNARY(sqrt, CPU_SQRT)
VECTOR_UNARY(rsqrt, CPU_RSQRT)
VECTOR_UNARY(square, CPU_SQUARE)

/* libm is fast enough for log, sin and cos, which are used on scalars and time embeddings. */
#define SCALAR_UNARY(name, expression)                                                             \
    CPU_KERNEL(name)                                                                               \
    {                                                                                              \
        const int64_t count = view_count(&args->out[0]);                                           \
        const float *in = args->in[0].data;                                                        \
        float *y = args->out[0].data;                                                              \
        EACH_PIECE(count)                                                                          \
        for (int64_t i = at, stop = at + PIECE_LEN(count); i < stop; i++) {                        \
            const float x = in[i];                                                                 \
            y[i] = expression;                                                                     \
        }                                                                                          \
        return WEFT_OK;                                                                            \
    }

SCALAR_UNARY(log, (float)log((double)x))
SCALAR_UNARY(sin, (float)sin((double)x))
SCALAR_UNARY(cos, (float)cos((double)x))

CPU_KERNEL(gelu)
{
    const bool exact = ((const weft_attr_gelu *)args->attr)->exact;
    return vector_unary(args, exact ? CPU_GELU_EXACT : CPU_GELU);
}

CPU_KERNEL(silu_grad)
{
    const int64_t count = view_count(&args->out[0]);
    const float *x = args->in[0].data, *dy = args->in[1].data;
    float *dx = args->out[0].data;
    const cpu_isa *isa = cpu_isa_get();
    EACH_PIECE(count)
    isa->silu_grad(x + at, dy + at, dx + at, PIECE_LEN(count));
    return WEFT_OK;
}

CPU_KERNEL(gelu_grad)
{
    const int64_t count = view_count(&args->out[0]);
    const float *x = args->in[0].data, *dy = args->in[1].data;
    float *dx = args->out[0].data;
    const cpu_isa *isa = cpu_isa_get();
    const bool exact = ((const weft_attr_gelu *)args->attr)->exact;
    EACH_PIECE(count)
    (exact ? isa->gelu_exact_grad : isa->gelu_grad)(x + at, dy + at, dx + at, PIECE_LEN(count));
    return WEFT_OK;
}

static void affine(const weft_kernel_args *args, float scale, float offset)
{
    const int64_t count = view_count(&args->out[0]);
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    const cpu_isa *isa = cpu_isa_get();
    EACH_PIECE(count)
    isa->affine(x + at, y + at, PIECE_LEN(count), scale, offset);
}

CPU_KERNEL(affine)
{
    const weft_attr_affine *a = args->attr;
    affine(args, (float)a->scale, (float)a->offset);
    return WEFT_OK;
}

CPU_KERNEL(stop)
{
    affine(args, 1, -0.0f);
    return WEFT_OK;
}

CPU_KERNEL(neg)
{
    affine(args, -1, -0.0f);
    return WEFT_OK;
}

CPU_KERNEL(clamp)
{
    const weft_attr_clamp *a = args->attr;
    const float lo = (float)a->lo, hi = (float)a->hi, *x = args->in[0].data;
    float *y = args->out[0].data;
    const int64_t count = view_count(&args->out[0]);
    EACH_PIECE(count)
    for (int64_t i = at, stop = at + PIECE_LEN(count); i < stop; i++)
        y[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
    return WEFT_OK;
}

CPU_KERNEL(clamp_grad)
{
    const weft_attr_clamp *a = args->attr;
    const float lo = (float)a->lo, hi = (float)a->hi, *x = args->in[0].data, *dy = args->in[1].data;
    float *dx = args->out[0].data;
    const int64_t count = view_count(&args->out[0]);
    EACH_PIECE(count)
    for (int64_t i = at, stop = at + PIECE_LEN(count); i < stop; i++)
        dx[i] = x[i] < lo || x[i] > hi ? 0 : dy[i];
    return WEFT_OK;
}

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
    const float *a = args->in[0].data, *b = args->in[1].data;
    float *y = out->data;
    void (*run)(const float *, int, const float *, int, float *, int64_t) =
        cpu_isa_get()->binary[op];
    const int a_step = w.a[inner] != 0, b_step = w.b[inner] != 0;
    const int64_t pieces = (len + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(count))
    for (int64_t task = 0; task < rows * pieces; task++) {
        const int64_t at = task % pieces * PIECE;
        int64_t row = task / pieces, ia = 0, ib = 0;
        for (int d = inner - 1; d >= 0; d--) {
            const int64_t i = row % w.dim[d];
            row /= w.dim[d];
            ia += i * w.a[d];
            ib += i * w.b[d];
        }
        run(a + ia + at * a_step, a_step, b + ib + at * b_step, b_step,
            y + task / pieces * len + at, PIECE_LEN(len));
    }
    return WEFT_OK;
}

CPU_KERNEL(add)
{
    return binary(args, CPU_ADD);
}

CPU_KERNEL(sub)
{
    return binary(args, CPU_SUB);
}

CPU_KERNEL(mul)
{
    return binary(args, CPU_MUL);
}

CPU_KERNEL(div)
{
    return binary(args, CPU_DIV);
}
