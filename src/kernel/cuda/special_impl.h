/* weft's kernels that NVRTC compiles for the sizes of a shape, as an implementation (cuda_impl.h):
 * the host code of the op adds its launches, and kernels of special_table.h are replaced. */
#ifndef WEFT_KERNEL_CUDA_SPECIAL_IMPL_H
#define WEFT_KERNEL_CUDA_SPECIAL_IMPL_H

#include "kernel/cuda/cuda_impl.h"

bool weft_special_has(weft_op op);
bool weft_special_accepts(const weft_kernel_args *args);
/* Whether a launch takes long enough for a measurement; small shapes would only compile. */
bool weft_special_pays(const weft_kernel_args *args);
weft_status_code weft_special_prepare(const weft_kernel_args *args, int first, int most,
                                      weft_cuda_plan *plan, int *count);
void weft_special_release(void *plan);
weft_status_code weft_special_launch(const weft_kernel_args *args, void *plan);

#endif
