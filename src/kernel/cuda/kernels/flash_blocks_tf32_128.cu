/* Attention over blocks in TF32 on tensor cores, for heads of up to 128 columns. */
enum { WIDE = 128, TILE = 16 }; /* columns in shared memory; rows of the side that arrives */
#define FLASH_KERNEL(name) WEFT_KERNEL(name##_tf32_128, attention_args, FLASH_THREADS)
#define FLASH_TF32         1

#include "kernel/cuda/kernels/flash_blocks.h"
