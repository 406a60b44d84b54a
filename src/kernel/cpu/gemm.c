/* One GEMM for everything, behind it OpenBLAS and oneDNN.
 *
 * Which one is a function of shape, instruction set and library version alone, never of a timing:
 * the choice changes the rounding, and a run must repeat bitwise. Measured, share of the machine's
 * peak:
 *
 *   AVX2 (Zen 3)  OpenBLAS 83-97 % on large products, 46-70 % where K or the whole product is
 *                 small; oneDNN 90 % there
 *   AVX-512       oneDNN's generated kernels 95-99 % at any K; OpenBLAS too, but only where it
 *                 knows the processor: on a newer one than itself it falls back to AVX2 kernels,
 *                 49 % */
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/simd.h"

#include <cblas.h>
#include <dnnl.h>
#include <omp.h>

/* Not in cblas.h of every version. */
char *openblas_get_corename(void);

static bool prefer_dnnl(int64_t M, int64_t N, int64_t K)
{
#if defined(__x86_64__)
    if (cpu_isa_get() == &cpu_isa_avx512) {
        const char *core = openblas_get_corename();
        const bool blas_knows = !strcmp(core, "SkylakeX") || !strcmp(core, "Cooperlake") ||
                                !strcmp(core, "SapphireRapids");
        if (!blas_knows)
            return true;
    }
    return K <= 128 || M * N * K <= 256 * 256 * 256;
#else
    (void)M, (void)N, (void)K; /* oneDNN's sgemm is plain C elsewhere */
    return false;
#endif
}

typedef struct product {
    bool trans_a, trans_b;
    int64_t M, N, K, lda, ldb, ldc;
    float alpha, beta;
    const float *A, *B;
    float *C;
} product;

static void by_library(const product *p, bool dnnl)
{
    if (dnnl &&
        dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->M, p->N, p->K, p->alpha, p->A,
                   p->lda, p->B, p->ldb, p->beta, p->C, p->ldc) == dnnl_success)
        return;
    cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                p->trans_b ? CblasTrans : CblasNoTrans, (blasint)p->M, (blasint)p->N, (blasint)p->K,
                p->alpha, p->A, (blasint)p->lda, p->B, (blasint)p->ldb, p->beta, p->C,
                (blasint)p->ldc);
}

/* Rows and columns of C that part `i` of `parts` begins at: multiples of 16, so that vectors stay
 * whole. */
static int64_t cut(int64_t n, int64_t parts, int64_t i)
{
    const int64_t at = (n * i / parts + 8) & ~(int64_t)15;
    return i == 0 ? 0 : i == parts || at > n ? n : at;
}

/* C in a grid of blocks, one per thread: K is never split, so an element's sum does not depend on
 * the threads, and no barrier is waited for inside the product. */
static void by_blocks(const product *p, bool dnnl, int64_t rows, int64_t columns)
{
#pragma omp parallel for schedule(static) num_threads((int)(rows * columns))
    for (int64_t block = 0; block < rows * columns; block++) {
        const int64_t m0 = cut(p->M, rows, block / columns),
                      m1 = cut(p->M, rows, block / columns + 1);
        const int64_t n0 = cut(p->N, columns, block % columns),
                      n1 = cut(p->N, columns, block % columns + 1);
        if (m1 <= m0 || n1 <= n0)
            continue;
        product part = *p;
        part.M = m1 - m0;
        part.N = n1 - n0;
        part.A += p->trans_a ? m0 : m0 * p->lda;
        part.B += p->trans_b ? n0 * p->ldb : n0;
        part.C += m0 * p->ldc + n0;
        by_library(&part, dnnl);
    }
}

void cpu_gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha,
              const float *A, int64_t lda, const float *B, int64_t ldb, float beta, float *C,
              int64_t ldc)
{
    if (M == 0 || N == 0)
        return;
    if (K == 0) {
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++)
                C[m * ldc + n] = beta == 0 ? 0 : beta * C[m * ldc + n];
        return;
    }
    const product p = {trans_a, trans_b, M, N, K, lda, ldb, ldc, alpha, beta, A, B, C};
    const bool dnnl = prefer_dnnl(M, N, K);
    const int threads =
        omp_in_parallel() || M * N * K < (int64_t)1 << 18 ? 1 : omp_get_max_threads();
    /* The grid whose blocks have the least edge: what is packed and read again. */
    int64_t best = 0, least = INT64_MAX;
    for (int64_t rows = 1; rows <= threads; rows++)
        if (threads % rows == 0 && M / rows >= 16 && N / (threads / rows) >= 16) {
            const int64_t edge = M / rows + N / (threads / rows);
            if (edge < least) {
                least = edge;
                best = rows;
            }
        }
    if (threads == 1 || best == 0)
        by_library(&p, dnnl);
    else
        by_blocks(&p, dnnl, best, threads / best);
}

int cpu_threads(int64_t elements)
{
    return elements < 16384 || omp_in_parallel() ? 1 : omp_get_max_threads();
}
