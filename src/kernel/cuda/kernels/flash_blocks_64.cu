/* Attention over blocks on tensor cores, for heads of up to 64 columns. */
enum { WIDE = 64, TILE = 64 }; /* columns in shared memory; rows of the side that arrives */
#define FLASH_KERNEL(name) WEFT_KERNEL(name##_64, attention_args, FLASH_THREADS)

#include "kernel/cuda/kernels/flash_blocks.h"
