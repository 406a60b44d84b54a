#ifndef WEFT_KERNEL_CPU_GEMM_PANELS_H
#define WEFT_KERNEL_CPU_GEMM_PANELS_H

#include "kernel/cpu/gemm.h"

/* Returns true if an operand is narrow, or B is transposed first. */
bool gemm_needs_panels(const cpu_product *p);
/* A product of any types in f32, as cpu_gemm(). */
dnnl_status_t gemm_panels(const cpu_product *p);
int64_t gemm_panels_workspace(const cpu_product *p);

#endif
