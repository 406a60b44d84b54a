/* One GEMM interface over OpenBLAS and oneDNN.
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
#include "kernel/cpu/gemm.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/isa.h"
#include "kernel/cpu/simd.h"

#include <cblas.h>
#include <dnnl.h>
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
    if (prefer_dnnl(p->M, p->N, p->K) &&
        dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, 1, p->A,
                   p->lda, p->B, p->ldb, 0, p->C, p->ldc) == dnnl_success)
        return;
    cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                p->trans_b ? CblasTrans : CblasNoTrans, (blasint)p->M, (blasint)p->N, (blasint)p->K,
                1, p->A, (blasint)p->lda, p->B, (blasint)p->ldb, 0, p->C, (blasint)p->ldc);
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

/* Returns the first row or column of C in part `i` of `parts`: a multiple of 16, so that vectors
 * stay complete. */
static int64_t cut(int64_t n, int64_t parts, int64_t i)
{
    const int64_t at = (n * i / parts + 8) & ~(int64_t)15;
    return i == 0 ? 0 : i == parts || at > n ? n : at;
}

/* Computes y = act(round(y + bias)) of one row. */
static void finish_row(const cpu_product *p, const float *bias, float *y, int64_t n)
{
    const cpu_isa *isa = cpu_isa_get();
    if (p->act == WEFT_ACT_NONE || p->round == WEFT_F32) {
        isa->bias_act(bias, y, n, p->act);
        return;
    }
    isa->bias_act(bias, y, n, WEFT_ACT_NONE);
    cpu_round_run(p->round, y, n);
    isa->bias_act(NULL, y, n, p->act);
}

/* Computes rows [m0, m1) and columns [n0, n1) of C. Applies bias and activation while they are
 * cached. */
static void one_part(const cpu_product *p, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
{
    cpu_product part = *p;
    part.M = m1 - m0;
    part.N = n1 - n0;
    part.A += p->trans_a ? m0 : m0 * p->lda;
    part.B += p->trans_b ? n0 * p->ldb : n0;
    part.C += m0 * p->ldc + n0;
    if (part.M <= 0 || part.N <= 0)
        return;
    if (p->K > 0)
        by_library(&part);
    else
        for (int64_t m = 0; m < part.M; m++)
            memset(part.C + m * p->ldc, 0, (size_t)part.N * sizeof *part.C);
    if (!p->bias && p->act == WEFT_ACT_NONE)
        return;
    const float *bias = p->bias ? p->bias + n0 : NULL;
    for (int64_t m = 0; m < part.M; m++)
        finish_row(p, bias, part.C + m * p->ldc, part.N);
}

void cpu_gemm(const cpu_product *p)
{
    /* Cuts the dim that has more parts. */
    const int64_t work = p->M * p->N * p->K, by_rows = parts_along(false, p->M, work),
                  by_columns = parts_along(true, p->N, work),
                  columns = by_columns > by_rows ? by_columns : 1,
                  rows = by_columns > by_rows ? 1 : by_rows, parts = rows * columns;
    const bool alone = omp_in_parallel();
    const int threads = alone ? 1 : omp_get_max_threads();
    if (parts == 1 || threads == 1) {
        if (threads > 1) /* the library's own threads stay asleep */
            omp_set_num_threads(1);
        for (int64_t i = 0; i < parts; i++)
            one_part(p, cut(p->M, rows, i / columns), cut(p->M, rows, i / columns + 1),
                     cut(p->N, columns, i % columns), cut(p->N, columns, i % columns + 1));
        if (threads > 1)
            omp_set_num_threads(threads);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(parts < threads ? (int)parts : threads)
    for (int64_t i = 0; i < parts; i++)
        one_part(p, cut(p->M, rows, i / columns), cut(p->M, rows, i / columns + 1),
                 cut(p->N, columns, i % columns), cut(p->N, columns, i % columns + 1));
}

int cpu_threads(int64_t elements)
{
    return elements < 16384 || omp_in_parallel() ? 1 : omp_get_max_threads();
}
