/* The table of ops. */
#include "kernel/cuda/ops.h"

const weft_cuda_op weft_cuda_ops[WEFT_OP_COUNT] = {0};
