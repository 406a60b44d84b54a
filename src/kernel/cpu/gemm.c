/* Selects how a product is computed:
 *
 *   bf16 x bf16   by the processor's units for bf16, if it has them. Tiles of weft compute most
 *                 products (gemm_pairs.c). oneDNN computes the others (gemm_bf16.c).
 *   f32 x f32     by a library, as the operands are (gemm_parts.c)
 *   other types   by a library in f32; operands are widened panel by panel (gemm_panels.c) */
#include "kernel/cpu/gemm.h"

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gemm_bf16.h"
#include "kernel/cpu/gemm_pairs.h"
#include "kernel/cpu/gemm_panels.h"
#include "kernel/cpu/gemm_parts.h"

#include "base/log.h"
#include "kernel/host.h"

#include <omp.h>

static dnnl_status_t f32_part(const cpu_product *p, const gemm_box *box, const void *user,
                              int thread)
{
    cpu_product part = gemm_box_of(p, box);
    (void)user, (void)thread;
    gemm_f32(&part);
    return dnnl_success;
}

dnnl_status_t cpu_gemm(const cpu_product *p)
{
    if (gemm_pairs_fits(p)) {
        gemm_pairs(p);
        return dnnl_success;
    }
    if (cpu_gemm_has_units(p))
        return gemm_bf16(p);
    if (gemm_needs_panels(p))
        return gemm_panels(p);
    return gemm_run(p, gemm_cut(p->M, p->N, p->K, 1), f32_part, NULL);
}

int64_t cpu_gemm_workspace(const cpu_product *p, int threads)
{
    cpu_product on = *p;
    on.threads = threads;
    if (gemm_pairs_fits(p))
        return gemm_pairs_workspace(&on);
    if (cpu_gemm_has_units(p))
        return gemm_bf16_workspace(&on);
    return gemm_needs_panels(p) ? gemm_panels_workspace(&on) : 0;
}

int64_t cpu_gemm_prepared(const cpu_product *p)
{
    return cpu_gemm_has_units(p) && !gemm_pairs_fits(p) ? gemm_bf16_prepared(p) : 0;
}

bool cpu_gemm_has_units(const cpu_product *p)
{
    return p->a_dtype == WEFT_BF16 && p->b_dtype == WEFT_BF16 && p->K > 0 && gemm_bf16_units();
}

weft_status_code cpu_gemm_check(dnnl_status_t status)
{
    if (status == dnnl_success)
        return WEFT_OK;
    return weft_error(
        status == dnnl_out_of_memory ? WEFT_MSG_OUT_OF_MEMORY : WEFT_MSG_KERNEL_UNSUPPORTED,
        WEFT_AT(.key = "matmul"), "oneDNN rejects the product of bf16 (status %d)", (int)status);
}

int cpu_threads(int64_t elements)
{
    return elements < 16384 || omp_in_parallel() ? 1 : weft_host_threads();
}
