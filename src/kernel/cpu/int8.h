#ifndef WEFT_KERNEL_CPU_INT8_H
#define WEFT_KERNEL_CPU_INT8_H

#include "kernel/kernel.h"

/* A linear layer with weights of int8 (graph/op.h), for x and outputs of any float type. The result
 * is bitwise identical for any number of threads. */
int64_t cpu_linear_int8_workspace(const weft_kernel_args *args);
weft_status_code cpu_linear_int8(const weft_kernel_args *args);

#endif
