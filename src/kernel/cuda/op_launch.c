#include "kernel/cuda/op_launch.h"

tensor_ref weft_cuda_ref(const weft_view *view)
{
    return (tensor_ref){view->data, (int32_t)view->dtype};
}

tensor_ref weft_cuda_input(const weft_kernel_args *args, int i)
{
    if (i >= args->in_count || !view_present(&args->in[i]))
        return (tensor_ref){0};
    return weft_cuda_ref(&args->in[i]);
}

fast_divisor weft_cuda_divisor(uint32_t by)
{
    fast_divisor d = {.by = by, .shift = 31 - (uint32_t)__builtin_clz(by)};
    if ((by & (by - 1)) != 0)
        d.multiply = (uint32_t)((((uint64_t)1 << (32 + d.shift)) + by - 1) / by);
    return d;
}

static bool joins(const weft_cuda_loop *loop, int operands, int first, int second)
{
    for (int o = 0; o < operands; o++)
        if (loop->stride[o][first] != loop->stride[o][second] * loop->dim[second])
            return false;
    return true;
}

void weft_cuda_loop_join(weft_cuda_loop *loop, int operands)
{
    int kept = -1;
    for (int d = 0; d < loop->rank; d++) {
        if (loop->dim[d] == 1)
            continue;
        const bool join = kept >= 0 && joins(loop, operands, kept, d);
        if (!join)
            kept++;
        loop->dim[kept] = join ? loop->dim[kept] * loop->dim[d] : loop->dim[d];
        for (int o = 0; o < operands; o++)
            loop->stride[o][kept] = loop->stride[o][d];
    }
    loop->rank = kept + 1;
}

int64_t weft_cuda_loop_items(const weft_cuda_loop *loop)
{
    int64_t items = 1;
    for (int d = 0; d < loop->rank; d++)
        items *= loop->dim[d];
    return items;
}

weft_status_code weft_cuda_loop_shape(const weft_cuda_loop *loop, loop_shape *shape)
{
    const int64_t items = weft_cuda_loop_items(loop);
    if (items > INT32_MAX)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(items)),
                          "a kernel of CUDA counts at most 2^31 items, not %" PRId64
                          ". Use more ranks or smaller clips",
                          items);
    const int pad = LOOP_RANK - loop->rank;
    for (int d = 0; d < LOOP_RANK; d++)
        shape->dim[d] = weft_cuda_divisor(d < pad || items == 0 ? 1 : (uint32_t)loop->dim[d - pad]);
    return WEFT_OK;
}

void weft_cuda_loop_strides(const weft_cuda_loop *loop, int operand, int64_t stride[LOOP_RANK])
{
    const int pad = LOOP_RANK - loop->rank;
    for (int d = 0; d < LOOP_RANK; d++)
        stride[d] = d < pad ? 0 : loop->stride[operand][d - pad];
}

bool weft_cuda_in_eights(const weft_view *view)
{
    return (uintptr_t)view->data % 16 == 0 &&
           (view->dtype == WEFT_F32 || view->dtype == WEFT_BF16 || view->dtype == WEFT_F16);
}

bool weft_cuda_loop_widen(weft_cuda_loop *loop, const weft_kernel_args *args, int operands)
{
    const int last = loop->rank - 1;
    if (last < 0 || loop->dim[last] % 8 != 0)
        return false;
    for (int o = 0; o < args->out_count; o++)
        if (!weft_cuda_in_eights(&args->out[o]))
            return false;
    for (int o = 0; o < operands; o++) {
        if (loop->stride[o][last] == 0)
            continue;
        if (!weft_cuda_in_eights(&args->in[o]))
            return false;
        for (int d = 0; d < last; d++)
            if (loop->stride[o][d] % 8 != 0)
                return false;
    }
    loop->dim[last] /= 8;
    for (int o = 0; o < operands; o++)
        loop->stride[o][last] *= 8;
    return true;
}

weft_status_code weft_cuda_add(weft_cuda_queue *queue, const char *kernel, int64_t blocks,
                               uint32_t threads, const void *args, size_t bytes)
{
    return weft_cuda_add_grid(queue, kernel, (const int64_t[3]){blocks, 1, 1}, threads, args,
                              bytes);
}

weft_status_code weft_cuda_add_grid(weft_cuda_queue *queue, const char *kernel,
                                    const int64_t grid[3], uint32_t threads, const void *args,
                                    size_t bytes)
{
    const weft_cuda_blocks_of blocks = {{grid[0], grid[1], grid[2]}, threads, 0};
    return weft_cuda_add_blocks(queue, kernel, &blocks, args, bytes);
}

weft_status_code weft_cuda_add_blocks(weft_cuda_queue *queue, const char *kernel,
                                      const weft_cuda_blocks_of *blocks, const void *args,
                                      size_t bytes)
{
    const int64_t *grid = blocks->grid;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
        return WEFT_OK;
    if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(grid[0])),
                          "%s: a launch of %" PRId64 " x %" PRId64 " x %" PRId64
                          " blocks is over the limits of CUDA. Use more ranks or smaller clips",
                          kernel, grid[0], grid[1], grid[2]);
    const weft_cuda_launch launch = {
        .kernel = kernel,
        .grid = {(uint32_t)grid[0], (uint32_t)grid[1], (uint32_t)grid[2]},
        .block = {blocks->threads, 1, 1},
        .shared = blocks->shared,
        .args = args,
        .args_bytes = bytes};
    return queue->add(queue, &launch);
}
