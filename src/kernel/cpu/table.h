#ifndef WEFT_KERNEL_CPU_TABLE_H
#define WEFT_KERNEL_CPU_TABLE_H

#include "kernel/kernel.h"

weft_status_code cpu_widened_run(const weft_kernel_args *args);
int64_t cpu_widened_workspace(const weft_kernel_args *args);
weft_status_code cpu_widened_prepare(const weft_kernel_args *args, void **cache);

extern const weft_backend weft_backend_cpu;

#endif
