/* Generated kernels as an implementation of `pointwise` (cuda_impl.h). Before its first use in a
 * class of shapes (chain_class.h), a kernel is compared with the kernels of its ops, bitwise. */
#ifndef WEFT_KERNEL_CUDA_CHAIN_IMPL_H
#define WEFT_KERNEL_CUDA_CHAIN_IMPL_H

#include "kernel/cuda/cuda_impl.h"

bool weft_chain_has(weft_op op);
weft_status_code weft_chain_prepare(const weft_kernel_args *args, int first, int most,
                                    weft_cuda_plan *plan, int *count);
void weft_chain_release(void *plan);
weft_status_code weft_chain_run(const weft_kernel_args *args, void *plan);
/* Whether NVRTC is usable. Reports once that it is missing. */
bool weft_chain_available(void);

#endif
