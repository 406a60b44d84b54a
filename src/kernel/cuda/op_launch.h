/* Helpers of the host code of ops: references to views, strided iteration, launches. */
#ifndef WEFT_KERNEL_CUDA_OP_LAUNCH_H
#define WEFT_KERNEL_CUDA_OP_LAUNCH_H

#include "kernel/cuda/kernels/kernel_args.h"
#include "kernel/cuda/ops.h"
#include "kernel/view.h"

/* Dims of a dense output and the strides, in elements, of the operands along each. */
enum { WEFT_LOOP_OPERANDS = CHAIN_INPUTS };
typedef struct weft_cuda_loop {
    int rank;
    int64_t dim[WEFT_MAX_RANK], stride[WEFT_LOOP_OPERANDS][WEFT_MAX_RANK];
} weft_cuda_loop;

tensor_ref weft_cuda_ref(const weft_view *view);
/* The input, or absent. */
tensor_ref weft_cuda_input(const weft_kernel_args *args, int i);
fast_divisor weft_cuda_divisor(uint32_t by);
/* Removes dims of length 1 and joins dims that all operands cross with one stride. */
void weft_cuda_loop_join(weft_cuda_loop *loop, int operands);
/* Sets the divisors of dims 1.. and moves the dims to the end of `shape`. WEFT_E_ARG: more than
 * 2^31 items. */
weft_status_code weft_cuda_loop_shape(const weft_cuda_loop *loop, loop_shape *shape);
/* The strides of one operand, moved to the end like the dims. */
void weft_cuda_loop_strides(const weft_cuda_loop *loop, int operand, int64_t stride[LOOP_RANK]);
int64_t weft_cuda_loop_items(const weft_cuda_loop *loop);
/* Whether kernels may load and store eight elements at a time: type and address. */
bool weft_cuda_in_eights(const weft_view *view);
/* Makes an item of eight elements of the last dim. Returns false, and changes nothing, if the types
 * or addresses of the first `operands` inputs and of the outputs do not allow this. */
bool weft_cuda_loop_widen(weft_cuda_loop *loop, const weft_kernel_args *args, int operands);

/* The place for ids outside a table, for kernels of the op. */
static inline id_report weft_cuda_report(const weft_kernel_args *args, const weft_cuda_queue *queue)
{
    return (id_report){queue->bad_id, args->op};
}

/* Declares the next part of the workspace, and returns its end. */
static inline void *weft_cuda_split(weft_cuda_queue *queue, void *part, int64_t bytes)
{
    if (queue->split && bytes > 0)
        queue->split(queue, part, bytes);
    return (char *)part + bytes;
}

static inline int64_t weft_cuda_blocks(int64_t count, int64_t each)
{
    return (count + each - 1) / each;
}

/* Adds a launch of blocks along x only; nothing for no blocks. */
weft_status_code weft_cuda_add(weft_cuda_queue *queue, const char *kernel, int64_t blocks,
                               uint32_t threads, const void *args, size_t bytes);
weft_status_code weft_cuda_add_grid(weft_cuda_queue *queue, const char *kernel,
                                    const int64_t grid[3], uint32_t threads, const void *args,
                                    size_t bytes);
/* Blocks with dynamic shared memory. */
typedef struct weft_cuda_blocks_of {
    int64_t grid[3];
    uint32_t threads, shared;
} weft_cuda_blocks_of;
weft_status_code weft_cuda_add_blocks(weft_cuda_queue *queue, const char *kernel,
                                      const weft_cuda_blocks_of *blocks, const void *args,
                                      size_t bytes);

#endif
