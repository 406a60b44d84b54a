#include "kernel/cuda/op_gemm.h"

#include "kernel/cuda/op_reduce.h"

enum {
    BLOCKS_LEAST = 64, /* fewer blocks leave most of a GPU idle */
    BLOCKS_WANTED = 256,
    DEPTH_LEAST = 1024 /* of a part */
};

gemm_operand weft_cuda_operand(const weft_view *view, int64_t row_stride, int64_t depth_stride,
                               int64_t contiguous)
{
    const int64_t other = depth_stride == 1 ? row_stride : depth_stride;
    return (gemm_operand){.t = weft_cuda_ref(view),
                          .row_stride = row_stride,
                          .depth_stride = depth_stride,
                          .shared = 1,
                          .vector =
                              contiguous % 8 == 0 && other % 8 == 0 && weft_cuda_in_eights(view)};
}

/* The kernel of tensor cores; NULL: the types or sizes have none. */
static const char *tensor_kernel(const gemm_args *a)
{
    const int32_t type = a->a.t.type;
    if (a->b.t.type != type || !a->a.vector || !a->b.vector)
        return NULL;
    return type == WEFT_BF16             ? "weft_gemm_bf16"
           : type == WEFT_F32 && a->tf32 ? "weft_gemm_tf32"
                                         : NULL;
}

bool weft_cuda_gemm_is_tensor(const gemm_args *a)
{
    return tensor_kernel(a) != NULL;
}

/* A function of shapes alone: the order of a sum must not depend on types or addresses. */
int32_t weft_cuda_gemm_splits(int64_t rows, int64_t columns, int64_t depth, int64_t batch)
{
    const int64_t blocks = weft_cuda_blocks(rows, MMA_TILE) * weft_cuda_blocks(columns, MMA_TILE);
    if (batch != 1 || blocks == 0 || blocks >= BLOCKS_LEAST || depth < 2 * DEPTH_LEAST)
        return 1;
    const int64_t most = depth / DEPTH_LEAST, wanted = BLOCKS_WANTED / blocks;
    return (int32_t)(most < wanted ? most : wanted);
}

int64_t weft_cuda_gemm_bytes(int64_t rows, int64_t columns, int64_t depth, int64_t batch)
{
    const int64_t splits = weft_cuda_gemm_splits(rows, columns, depth, batch);
    return splits > 1 ? splits * rows * columns * 4 : 0;
}

static weft_status_code launch(const gemm_args *a, int64_t batch, weft_cuda_queue *queue)
{
    const char *tensor = tensor_kernel(a);
    const int64_t tile = tensor ? MMA_TILE : GEMM_TILE;
    const int64_t grid[3] = {weft_cuda_blocks(a->rows, tile), weft_cuda_blocks(a->columns, tile),
                             batch};
    return weft_cuda_add_grid(queue, tensor ? tensor : "weft_gemm_f32", grid,
                              tensor ? MMA_THREADS : GEMM_THREADS, a, sizeof *a);
}

weft_status_code weft_cuda_gemm(gemm_args *a, int64_t batch, void *part, weft_cuda_queue *queue)
{
    const tensor_ref c = a->c;
    a->splits = part ? weft_cuda_gemm_splits(a->rows, a->columns, a->depth, batch) : 1;
    a->vector_c = a->columns % 8 == 0 && (uintptr_t)c.data % 16 == 0 && c.type <= WEFT_F16;
    if (a->splits == 1)
        return launch(a, batch, queue);
    /* Parts begin at multiples of a stage's depth, so that vectors are in one part. */
    const int64_t stages = weft_cuda_blocks(a->depth, MMA_DEPTH);
    a->split_depth = (int32_t)(weft_cuda_blocks(stages, a->splits) * MMA_DEPTH);
    a->c = (tensor_ref){part, WEFT_F32};
    a->batch_stride = a->rows * a->columns;
    WEFT_TRY(launch(a, a->splits, queue));
    return weft_cuda_sum_parts(part, a->splits, a->rows * a->columns, c, queue);
}
