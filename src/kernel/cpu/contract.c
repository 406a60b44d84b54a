/* matmul and linear on the GEMM of gemm.c. FLOPs 2 M N K per product. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/int8.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/cpu/table.h"

#include <omp.h>

/* Computes product `g` of the batch. */
static void multiply(const cpu_product *first, int64_t a_step, int64_t b_step, int64_t g)
{
    cpu_product p = *first;
    p.A += g * a_step;
    p.B += g * b_step;
    p.C += g * p.M * p.N;
    cpu_gemm(&p);
}

CPU_KERNEL(matmul)
{
    const weft_attr_matmul *attr = args->attr;
    const weft_view *a = &args->in[0], *b = &args->in[1], *out = &args->out[0];
    const int rank = out->shape.rank;
    int64_t batch = shape_span(&out->shape, 0, rank - 2), M = out->shape.dim[rank - 2];
    const int64_t N = out->shape.dim[rank - 1], K = a->shape.dim[rank - (attr->trans_a ? 2 : 1)];
    const bool shared = b->shape.rank == 2;
    if (shared && !attr->trans_a) { /* one product of all rows */
        M *= batch;
        batch = 1;
    }
    const cpu_product first = {.trans_a = attr->trans_a,
                               .trans_b = attr->trans_b,
                               .M = M,
                               .N = N,
                               .K = K,
                               .lda = attr->trans_a ? M : K,
                               .ldb = attr->trans_b ? K : N,
                               .ldc = N,
                               .A = a->data,
                               .B = b->data,
                               .C = out->data};
    const int64_t a_step = M * K, b_step = shared ? 0 : K * N;
    /* Many products: one thread each, so that no product has a barrier. Products that are cut
     * themselves are never inside a parallel region of one thread: libgomp creates new threads for
     * nested regions, 3 ms per product. */
    if (batch >= omp_get_max_threads() && !omp_in_parallel() && M * N * K < (int64_t)1 << 26) {
#pragma omp parallel for schedule(static)
        for (int64_t g = 0; g < batch; g++)
            multiply(&first, a_step, b_step, g);
    } else {
        for (int64_t g = 0; g < batch; g++)
            multiply(&first, a_step, b_step, g);
    }
    return WEFT_OK;
}

enum { PANEL = 1 << 20 }; /* 4 MiB of f32 */

/* Minimum rows of x for which weights are transposed first.
 *
 * The libraries transpose weights while packing, again for every part, which takes 3 to 15 %
 * longer. With fewer rows a separate transposition costs more than it saves, because another core
 * has transposed half of a part's input. Narrow weights are copied in any case. If rows of wide
 * weights are a multiple of 2 KiB apart, the elements of a column share a few cache lines. Packing
 * then takes 10 to 35 % of the product. */
enum { ROWS_TO_TRANSPOSE = 768, FEW_TO_TRANSPOSE = 128, CROWDED = 512 };

static bool transposes(const weft_view *x, const weft_view *w)
{
    const int64_t rows = shape_span(&x->shape, 0, x->shape.rank - 1);
    const int64_t N = w->shape.dim[0], K = w->shape.dim[1];
    if (w->dtype != WEFT_F32)
        return rows >= FEW_TO_TRANSPOSE;
    return rows >= (N <= K && K % CROWDED == 0 ? FEW_TO_TRANSPOSE : ROWS_TO_TRANSPOSE) &&
           N * K <= PANEL;
}

/* Returns the number of weight rows that are transposed or widened at a time. */
static int64_t panel_rows(const weft_shape *w)
{
    const int64_t fit = PANEL / (w->dim[1] > 0 ? w->dim[1] : 1) & ~(int64_t)15,
                  rows = fit % 64 == 0 ? fit - 16 : fit; /* transposed_stride() adds nothing */
    return w->dim[0] <= fit ? w->dim[0] : rows < 16 ? 16 : rows;
}

/* Returns the floats from one row of transposed weights to the next. It is not a power of two,
 * because rows would then share a few cache lines. */
static int64_t transposed_stride(int64_t N)
{
    return ((N + 15) & ~(int64_t)15) + (N % 64 ? 0 : 16);
}

static int64_t linear_workspace(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1];
    if (weft_int8_elements(w->dtype, &w->shape))
        return cpu_linear_int8_workspace(args);
    const int64_t N = w->shape.dim[0], K = w->shape.dim[1], rows = panel_rows(&w->shape);
    const int64_t panel = transposes(&args->in[0], w) ? transposed_stride(rows) * K
                          : w->dtype != WEFT_F32      ? rows * K
                                                      : 0;
    return (panel + N) * 4; /* the bias follows the panel */
}

/* Transposes `rows` rows of w, from row `from` on, to f32 (K,rows). w is (rows,K) of any float
 * type. */
static void transpose_weights(const weft_view *w, int64_t from, int64_t rows, float *to,
                              int64_t stride)
{
    enum { HIGH = 16, WIDE = 256 }; /* tile size: complete cache lines on both sides */
    const cpu_isa *isa = cpu_isa_get();
    const int64_t K = w->shape.dim[1], bytes = weft_dtype_bytes(w->dtype);
    const char *first = (const char *)w->data + from * K * bytes;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(rows *K))
    for (int64_t n = 0; n < rows; n += HIGH) {
        const int64_t high = rows - n < HIGH ? rows - n : HIGH;
        if (w->dtype == WEFT_F32) {
            isa->transpose((const float *)first + n * K, K, high, K, to + n, stride);
            continue;
        }
        for (int64_t k = 0; k < K; k += WIDE) {
            float tile[HIGH * (WIDE + 16)];
            const int64_t wide = K - k < WIDE ? K - k : WIDE;
            for (int64_t r = 0; r < high; r++)
                cpu_widen_run(w->dtype, first + ((n + r) * K + k) * bytes, tile + r * (WIDE + 16),
                              wide);
            isa->transpose(tile, WIDE + 16, high, wide, to + k * stride + n, stride);
        }
    }
}

CPU_KERNEL_WITH(linear, .workspace = linear_workspace, .narrow = 1 << 1 | 1 << 2)
{
    const weft_attr_linear *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1];
    const bool biased = args->in_count > 2 && view_present(&args->in[2]);
    const int64_t N = w->shape.dim[0], K = w->shape.dim[1],
                  M = shape_span(&x->shape, 0, x->shape.rank - 1);
    if (weft_int8_elements(w->dtype, &w->shape))
        return cpu_linear_int8(args);
    float *panel = args->workspace;
    cpu_product whole = {
        .trans_b = true,
        .M = M,
        .N = N,
        .K = K,
        .lda = K,
        .ldb = K,
        .ldc = N,
        .A = x->data,
        .B = w->data,
        .C = args->out[0].data,
        .bias = biased ? args->in[2].data : NULL,
        .act = attr->act,
        .round = attr->round,
    };
    if (biased && args->in[2].dtype != WEFT_F32) {
        cpu_widen(args->in[2].dtype, args->in[2].data, panel, N);
        whole.bias = panel;
        panel += N;
    }
    if (w->dtype == WEFT_F32 && !transposes(x, w)) {
        cpu_gemm(&whole);
        return WEFT_OK;
    }
    const int64_t step = panel_rows(&w->shape), bytes = weft_dtype_bytes(w->dtype);
    for (int64_t n = 0; n < N; n += step) {
        cpu_product part = whole;
        part.N = n + step < N ? step : N - n;
        if (transposes(x, w)) {
            part.trans_b = false;
            part.ldb = transposed_stride(part.N);
            transpose_weights(w, n, part.N, panel, part.ldb);
        } else {
            cpu_widen(w->dtype, (const char *)w->data + n * K * bytes, panel, part.N * K);
        }
        part.B = panel;
        part.C += n;
        part.bias = whole.bias ? whole.bias + n : NULL;
        cpu_gemm(&part);
    }
    return WEFT_OK;
}
