/* The reference backend: f64, one loop nest per op, no cleverness. It is the truth for the others,
 * so it reads like the definition and shares nothing with them but the views. */
#ifndef WEFT_KERNEL_REF_REF_H
#define WEFT_KERNEL_REF_REF_H

#include "kernel/view.h"

#define OWN(op)
#define KERNEL(op, f, ...) weft_status_code ref_##f(const weft_kernel_args *args);
#include "kernel/ref/kernels.def"

int64_t ref_attention_workspace(const weft_kernel_args *args);
int64_t ref_attention_grad_workspace(const weft_kernel_args *args);

#endif
