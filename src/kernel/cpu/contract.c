/* matmul and linear on the gemm of gemm.c. FLOPs 2 M N K per product. */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/simd.h"

#include <omp.h>

typedef struct product_batch {
    const weft_attr_matmul *attr;
    int64_t M, N, K, lda, ldb, b_step;
    const float *A, *B;
    float *C;
} product_batch;

static void multiply(const product_batch *all, int64_t g)
{
    cpu_gemm(all->attr->trans_a, all->attr->trans_b, all->M, all->N, all->K, 1,
             all->A + g * all->M * all->K, all->lda, all->B + g * all->b_step, all->ldb, 0,
             all->C + g * all->M * all->N, all->N);
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
    const float *A = a->data, *B = b->data;
    float *C = out->data;
    const int64_t lda = attr->trans_a ? M : K, ldb = attr->trans_b ? K : N;
    /* Many products: one thread each, which needs no barrier inside a product. Never a region of
     * one thread around products that are cut themselves: libgomp makes new threads for what is
     * nested, 3 ms a product. */
    const bool across =
        batch >= omp_get_max_threads() && !omp_in_parallel() && M * N * K < (int64_t)1 << 26;
    const product_batch all = {attr, M, N, K, lda, ldb, shared ? 0 : K * N, A, B, C};
    if (across) {
#pragma omp parallel for schedule(static)
        for (int64_t g = 0; g < batch; g++)
            multiply(&all, g);
    } else {
        for (int64_t g = 0; g < batch; g++)
            multiply(&all, g);
    }
    return WEFT_OK;
}

/* Rows of a narrow weight that are widened at a time: 4 MiB of f32. */
static int64_t panel_rows(const weft_shape *w)
{
    const int64_t rows = ((int64_t)1 << 20) / (w->dim[1] > 0 ? w->dim[1] : 1) & ~(int64_t)15;
    return rows < 16 ? 16 : rows < w->dim[0] ? rows : w->dim[0];
}

static int64_t linear_workspace(const weft_kernel_args *args)
{
    const weft_view *w = &args->in[1];
    const int64_t panel = w->dtype == WEFT_F32 ? 0 : panel_rows(&w->shape) * w->shape.dim[1] * 4;
    return panel + w->shape.dim[0] * 4; /* and the bias */
}

typedef struct linear_job {
    int64_t M, N, K;
    const float *x, *w, *bias; /* bias NULL: none */
    float *y;
    int64_t ldy;
    weft_act act;
} linear_job;

/* Rows per block: y's block stays in the cache for the epilogue, and w is packed rarely. */
enum { BLOCK_ROWS = 384 };

static void linear_rows(const linear_job *job, int64_t m0, int64_t m1)
{
    cpu_gemm(false, true, m1 - m0, job->N, job->K, 1, job->x + m0 * job->K, job->K, job->w, job->K,
             0, job->y + m0 * job->ldy, job->ldy);
    if (!job->bias && job->act == WEFT_ACT_NONE)
        return;
    const cpu_isa *isa = cpu_isa_get();
    for (int64_t m = m0; m < m1; m++)
        isa->bias_act(job->bias, job->y + m * job->ldy, job->N, job->act);
}

static void linear_run(const linear_job *job)
{
    const int threads = cpu_threads(job->M * job->N);
    /* A product without epilogue, or of few rows, is better split inside the library. */
    if (threads == 1 || job->M < 32 * threads) {
        linear_rows(job, 0, job->M);
        return;
    }
    const int64_t each = (job->M + threads - 1) / threads;
    const int64_t blocks = threads * ((each + BLOCK_ROWS - 1) / BLOCK_ROWS);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t b = 0; b < blocks; b++)
        linear_rows(job, job->M * b / blocks, job->M * (b + 1) / blocks);
}

CPU_KERNEL_WITH(linear, .workspace = linear_workspace, .narrow = 1 << 1 | 1 << 2)
{
    const weft_attr_linear *attr = args->attr;
    const weft_view *x = &args->in[0], *w = &args->in[1], *out = &args->out[0];
    const bool biased = args->in_count > 2 && view_present(&args->in[2]);
    const int64_t N = w->shape.dim[0], K = w->shape.dim[1];
    linear_job job = {.M = shape_span(&x->shape, 0, x->shape.rank - 1),
                      .N = N,
                      .K = K,
                      .x = x->data,
                      .w = w->data,
                      .y = out->data,
                      .ldy = N,
                      .act = attr->act};
    float *panel = args->workspace;
    if (biased) {
        job.bias = args->in[2].data;
        if (args->in[2].dtype != WEFT_F32) {
            cpu_widen(args->in[2].dtype, args->in[2].data, panel, N);
            job.bias = panel;
            panel += N;
        }
    }
    if (w->dtype == WEFT_F32) {
        linear_run(&job);
        return WEFT_OK;
    }
    const int64_t step = panel_rows(&w->shape), bytes = weft_dtype_bytes(w->dtype);
    for (int64_t n = 0; n < N; n += step) {
        linear_job part = job;
        part.N = n + step < N ? step : N - n;
        cpu_widen(w->dtype, (const char *)w->data + n * K * bytes, panel, part.N * K);
        part.w = panel;
        part.y = job.y + n;
        part.bias = job.bias ? job.bias + n : NULL;
        linear_run(&part);
    }
    return WEFT_OK;
}
