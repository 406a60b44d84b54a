/* Attention over blocks on tensor cores, for heads of up to 128 columns. */
enum { WIDE = 128, TILE = 32 }; /* columns in shared memory; rows of the side that arrives */
#define FLASH_KERNEL(name) WEFT_KERNEL(name##_128, attention_args, FLASH_THREADS)

#include "kernel/cuda/kernels/flash_blocks.h"
