#ifndef WEFT_KERNEL_CPU_GEMM_PAIRS_H
#define WEFT_KERNEL_CPU_GEMM_PAIRS_H

#include "kernel/cpu/gemm.h"

/* Products of bf16 by weft's own tiles (gemm_pairs.c). See the functions of gemm.h. */
bool gemm_pairs_fits(const cpu_product *product);
void gemm_pairs(const cpu_product *product);
int64_t gemm_pairs_workspace(const cpu_product *product);

#endif
