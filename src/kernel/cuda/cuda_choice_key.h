/* Text of the properties of a node that a plan depends on. */
#ifndef WEFT_KERNEL_CUDA_CUDA_CHOICE_KEY_H
#define WEFT_KERNEL_CUDA_CUDA_CHOICE_KEY_H

#include "base/memory.h"
#include "kernel/kernel.h"

/* Appends "linear bf16[2,8] bf16[4,8] - > bf16[2,4]": op, attributes, and types and shapes of
 * inputs and outputs. The activation of `linear` is not part: the pass `fuse` must not change the
 * choice, and so the bits, of the product. */
void weft_cuda_choice_key(const weft_kernel_args *args, weft_buf *key);

#endif
