/* One GEMM for everything, behind it OpenBLAS and oneDNN.
 *
 * Which one is a function of shape, instruction set and library version alone, never of a timing: the
 * choice changes the rounding, and a run must repeat bitwise. Measured (share of the machine's peak):
 * - AVX2 (Zen 3): OpenBLAS 83-97 % on large products, 46-70 % where K or the whole product is small;
 *   oneDNN 90 % there.
 * - AVX-512: oneDNN's generated kernels 95-99 % at any K; OpenBLAS too, but only where it knows the
 *   processor. On a newer one than itself it falls back to AVX2 kernels, 49 %. */
#include "kernel/cpu/cpu.h"

#include <cblas.h>
#include <dnnl.h>
#include <omp.h>

/* Not in cblas.h of every version. */
char *openblas_get_corename(void);

static bool has_avx512(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
    return false;
#endif
}

static bool prefer_dnnl(int64_t M, int64_t N, int64_t K)
{
#if defined(__x86_64__)
    if (has_avx512()) {
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

void cpu_gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha, const float *A,
              int64_t lda, const float *B, int64_t ldb, float beta, float *C, int64_t ldc)
{
    if (M == 0 || N == 0)
        return;
    if (K == 0) {
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++)
                C[m * ldc + n] = beta == 0 ? 0 : beta * C[m * ldc + n];
        return;
    }
    if (prefer_dnnl(M, N, K)) {
        if (dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', M, N, K, alpha, A, lda, B, ldb, beta, C,
                       ldc) == dnnl_success)
            return;
    }
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans,
                (blasint)M, (blasint)N, (blasint)K, alpha, A, (blasint)lda, B, (blasint)ldb, beta, C,
                (blasint)ldc);
}

int cpu_threads(int64_t elements)
{
    return elements < 16384 || omp_in_parallel() ? 1 : omp_get_max_threads();
}
