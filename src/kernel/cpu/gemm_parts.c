/* Parts of a product, and products of f32 by OpenBLAS and oneDNN.
 *
 * The library and the parts of a product depend only on shape, instruction set and library version.
 * Both libraries change the order of addition where a size passes a threshold or a kernel's tile is
 * cut. A choice by timing or by the number of threads would therefore change the rounding. Runs
 * must be bitwise identical on any number of threads. Threads take parts, and the library computes
 * each part on one thread. Measured share of the machine's peak:
 *
 *   AVX2     OpenBLAS 83-97 % on large products, 46-70 % where K or the whole product is small;
 *            oneDNN 90 % there (Zen 3)
 *   AVX-512  oneDNN's generated kernels 93-99 % at any K; OpenBLAS 85-90 % where it knows the
 *            processor (Zen 4), and on a newer one than itself 49 %: its AVX2 kernels (Zen 5) */
#include "kernel/cpu/gemm_parts.h"

#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"
#include "kernel/host.h"

#include <cblas.h>
#include <omp.h>

static bool prefer_dnnl(int64_t M, int64_t N, int64_t K)
{
#if defined(__x86_64__)
    return cpu_isa_get()->wide || K <= 128 || M * N * K <= 256 * 256 * 256;
#else
    (void)M, (void)N, (void)K; /* oneDNN's sgemm is plain C without AVX-512 */
    return false;
#endif
}

static void by_library(const cpu_product *p)
{
    const float beta = p->add ? 1 : 0;
    if (prefer_dnnl(p->M, p->N, p->K) &&
        dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, 1, p->A,
                   p->lda, p->B, p->ldb, beta, p->C, p->ldc) == dnnl_success)
        return;
    cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                p->trans_b ? CblasTrans : CblasNoTrans, (blasint)p->M, (blasint)p->N, (blasint)p->K,
                1, p->A, (blasint)p->lda, p->B, (blasint)p->ldb, beta, p->C, (blasint)p->ldc);
}

/* Maximum parts, and minimum rows, columns and multiplications of a part. Every part packs the
 * other operand again and wakes a thread. oneDNN takes up to twice as long for fewer than 192
 * columns. */
static const struct {
    int64_t most, rows, columns, work;
} limits[] = {{4, 64, 192, 1 << 19}, {16, 192, 192, 1 << 25}, {64, 192, 192, 1 << 28}};

/* Returns the parts along a dim: a power of two, so that 2, 4 or 8 threads have equal shares. */
static int64_t parts_along(bool columns, int64_t n, int64_t work)
{
    int64_t parts = 1;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        while (2 * parts <= limits[i].most && work / (2 * parts) >= limits[i].work &&
               n / (2 * parts) >= (columns ? limits[i].columns : limits[i].rows))
            parts *= 2;
    return parts;
}

gemm_parts gemm_cut(int64_t M, int64_t N, int64_t K, int64_t rate)
{
    /* Cuts the dim that has more parts. */
    const int64_t work = M * N * K / rate, rows = parts_along(false, M, work),
                  columns = parts_along(true, N, work);
    return columns > rows ? (gemm_parts){1, columns} : (gemm_parts){rows, 1};
}

/* Returns the first row or column of C in part `i` of `parts`: a multiple of 16, so that vectors
 * stay complete. */
static int64_t cut(int64_t n, int64_t parts, int64_t i)
{
    const int64_t at = (n * i / parts + 8) & ~(int64_t)15;
    return i == 0 ? 0 : i == parts || at > n ? n : at;
}

int64_t gemm_part_size(int64_t n, int64_t parts)
{
    const int64_t most = n / parts + 16; /* cuts are moved by up to 8 */
    return parts == 1 || most > n ? n : most;
}

/* Computes y = act(round(y + bias)) of one row. */
static void finish_row(const cpu_isa *isa, const cpu_product *p, const float *bias, float *y,
                       int64_t n)
{
    if (p->act == WEFT_ACT_NONE || p->round == WEFT_F32) {
        isa->bias_act(bias, y, n, p->act);
        return;
    }
    if (bias)
        isa->bias_act(bias, y, n, WEFT_ACT_NONE);
    cpu_round_run(p->round, y, n);
    isa->bias_act(NULL, y, n, p->act);
}

cpu_product gemm_box_of(const cpu_product *p, const gemm_box *box)
{
    cpu_product part = *p;
    part.M = box->m1 - box->m0;
    part.N = box->n1 - box->n0;
    part.A = gemm_at(p->A, p->a_dtype, p->trans_a ? box->m0 : box->m0 * p->lda);
    part.B = gemm_at(p->B, p->b_dtype, p->trans_b ? box->n0 * p->ldb : box->n0);
    part.C = (char *)p->C + (box->m0 * p->ldc + box->n0) * weft_dtype_bytes(p->c_dtype);
    part.bias = p->bias ? gemm_at(p->bias, p->bias_dtype, box->n0) : NULL;
    return part;
}

void gemm_finish(const cpu_product *p, const float *bias, float *y, int64_t ldy)
{
    if (!bias && p->act == WEFT_ACT_NONE)
        return;
    const cpu_isa *isa = cpu_isa_get();
    for (int64_t m = 0; m < p->M; m++)
        finish_row(isa, p, bias, y + m * ldy, p->N);
}

void gemm_f32(const cpu_product *p)
{
    float *C = p->C;
    if (p->M <= 0 || p->N <= 0)
        return;
    if (p->K > 0)
        by_library(p);
    else if (!p->add)
        for (int64_t m = 0; m < p->M; m++)
            memset(C + m * p->ldc, 0, (size_t)p->N * sizeof *C);
    gemm_finish(p, p->bias, C, p->ldc);
}

void gemm_act_bf16(const cpu_product *p)
{
    const enum cpu_unary act = p->act == WEFT_ACT_SILU ? CPU_SILU : CPU_GELU;
    const cpu_isa *isa = cpu_isa_get();
    for (int64_t m = 0; p->act != WEFT_ACT_NONE && m < p->M; m++) {
        uint16_t *y = (uint16_t *)p->C + m * p->ldc;
        isa->bf16->unary[act](y, y, p->N);
    }
}

void gemm_narrow(const cpu_product *p, const float *from, int64_t from_stride)
{
    if (p->c_dtype == WEFT_BF16) {
        cpu_isa_get()->narrow_rows(NULL, from, from_stride, p->M, p->N, p->C, p->ldc);
        return;
    }
    for (int64_t m = 0; m < p->M; m++, from += from_stride) {
        void *to = (char *)p->C + m * p->ldc * weft_dtype_bytes(p->c_dtype);
        const weft_view view = {.data = to, .dtype = p->c_dtype};
        if (p->c_dtype == WEFT_F32)
            memcpy(to, from, (size_t)p->N * sizeof *from);
        for (int64_t n = 0; p->c_dtype != WEFT_F32 && n < p->N; n++)
            view_set(&view, n, (double)from[n]);
    }
}

bool gemm_rounds_first(const cpu_product *p)
{
    return p->c_dtype == WEFT_BF16 && (p->act == WEFT_ACT_NONE || p->round == WEFT_BF16);
}

void gemm_write(const cpu_product *p, const float *bias, float *y, int64_t ldy)
{
    if (gemm_rounds_first(p)) {
        cpu_isa_get()->narrow_rows(bias, y, ldy, p->M, p->N, p->C, p->ldc);
        gemm_act_bf16(p);
        return;
    }
    gemm_finish(p, bias, y, ldy);
    gemm_narrow(p, y, ldy);
}

static dnnl_status_t run_part(const cpu_product *p, gemm_parts parts, int64_t i, gemm_part part,
                              const void *user, int thread)
{
    const int64_t row = i / parts.columns, column = i % parts.columns;
    const gemm_box box = {cut(p->M, parts.rows, row), cut(p->M, parts.rows, row + 1),
                          cut(p->N, parts.columns, column), cut(p->N, parts.columns, column + 1)};
    return box.m0 < box.m1 && box.n0 < box.n1 ? part(p, &box, user, thread) : dnnl_success;
}

int gemm_threads(const cpu_product *p, gemm_parts parts)
{
    const int threads = omp_in_parallel() ? 1 : p->threads ? p->threads : weft_host_threads();
    return parts.rows * parts.columns < threads ? (int)(parts.rows * parts.columns) : threads;
}

dnnl_status_t gemm_run(const cpu_product *p, gemm_parts parts, gemm_part part, const void *user)
{
    const int64_t count = parts.rows * parts.columns;
    const int threads = gemm_threads(p, parts);
    int failed = dnnl_success;
    if (threads == 1) {
        const int before = omp_in_parallel() ? 1 : omp_get_max_threads();
        if (before > 1) /* the library's own threads stay asleep */
            omp_set_num_threads(1);
        for (int64_t i = 0; i < count && failed == dnnl_success; i++)
            failed = (int)run_part(p, parts, i, part, user, 0);
        if (before > 1)
            omp_set_num_threads(before);
        return (dnnl_status_t)failed;
    }
#pragma omp parallel for schedule(static) num_threads(threads) reduction(max : failed)
    for (int64_t i = 0; i < count; i++) {
        const int status = (int)run_part(p, parts, i, part, user, omp_get_thread_num());
        failed = status > failed ? status : failed;
    }
    return (dnnl_status_t)failed;
}
