#ifndef WEFT_KERNEL_CPU_GEMM_H
#define WEFT_KERNEL_CPU_GEMM_H

#include "kernel/cpu/cpu.h"

#include <dnnl.h>

/* Computes the product. The result is bitwise identical for any number of threads. Inside a
 * parallel region the calling thread computes it. gemm.c selects the library. Products of f32
 * without `may_transpose` need no space and cannot fail. On failure, cpu_gemm_check() reports the
 * returned status. */
dnnl_status_t cpu_gemm(const cpu_product *product);
/* Returns the bytes of `space` for the product on `threads` threads. Pointers are not used. */
int64_t cpu_gemm_workspace(const cpu_product *product, int threads);
/* Returns the bytes of code that the library compiles for the product. Pointers are not used. */
int64_t cpu_gemm_prepared(const cpu_product *product);
/* Reports a failed product. Call on the thread that runs the kernel. */
weft_status cpu_gemm_check(dnnl_status_t status);
/* Returns true if the processor multiplies the product's bf16 operands without widening them. */
bool cpu_gemm_has_units(const cpu_product *product);
/* Returns the threads that are useful for a parallel loop over `elements` f32: 1 if waking others
 * costs more. */
int cpu_threads(int64_t elements);

#endif
