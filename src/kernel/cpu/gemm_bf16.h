#ifndef WEFT_KERNEL_CPU_GEMM_BF16_H
#define WEFT_KERNEL_CPU_GEMM_BF16_H

#include "kernel/cpu/gemm.h"

/* Returns true if the instruction set and oneDNN multiply bf16 without widening. */
bool gemm_bf16_units(void);
/* A product of bf16 x bf16 with K > 0, as cpu_gemm(). */
dnnl_status_t gemm_bf16(const cpu_product *p);
int64_t gemm_bf16_workspace(const cpu_product *p);
int64_t gemm_bf16_prepared(const cpu_product *p);

#endif
