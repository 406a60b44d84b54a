#ifndef WEFT_KERNEL_CPU_GEMM_H
#define WEFT_KERNEL_CPU_GEMM_H

#include "kernel/cpu/cpu.h"

/* Computes the product. The result is bitwise identical for any number of threads. Inside a
 * parallel region the calling thread computes it. gemm.c selects the library. */
void cpu_gemm(const cpu_product *product);
/* Returns the threads that are useful for a parallel loop over `elements` f32: 1 if waking others
 * costs more. */
int cpu_threads(int64_t elements);

#endif
