#include "kernel/cuda/cuda_ids.h"

#include "graph/op.h"
#include "kernel/cuda/kernels/kernel_args.h"

#include <inttypes.h>

weft_status weft_cuda_ids_open(const weft_cuda_gpu *gpu, weft_cuda_queue *queue)
{
    void *word;
    const cuda_result result = gpu->driver->host_alloc(&word, sizeof(uint64_t), CUDA_HOST_PORTABLE);
    if (result != CUDA_OK)
        return weft_cuda_gpu_error(gpu, result, "pinned memory for errors of kernels");
    queue->bad_id = word;
    *queue->bad_id = 0;
    return WEFT_OK;
}

weft_status weft_cuda_ids_check(weft_cuda_queue *queue)
{
    const uint64_t word = queue->bad_id ? *(volatile uint64_t *)queue->bad_id : 0;
    if (!word)
        return WEFT_OK;
    const char *op = weft_op_get((weft_op)(word >> BAD_ID_OP))->name;
    const int64_t id = (int64_t)(word << (64 - BAD_ID_OP)) >> (64 - BAD_ID_OP);
    *queue->bad_id = 0;
    return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = op, WEFT_NUMBER(id)),
                      "%s: id %" PRId64 " is outside the table. Check the inputs of the model.", op,
                      id);
}

void weft_cuda_ids_close(const weft_cuda_gpu *gpu, weft_cuda_queue *queue)
{
    if (queue->bad_id)
        gpu->driver->host_free(queue->bad_id);
    queue->bad_id = NULL;
}
