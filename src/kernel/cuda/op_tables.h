#ifndef WEFT_KERNEL_CUDA_OP_TABLES_H
#define WEFT_KERNEL_CUDA_OP_TABLES_H

#include "kernel/cuda/ops.h"

/* random_normal, random_uniform */
weft_status_code weft_cuda_random(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_embed(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_unpack(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_embed_grad(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_top_k(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_pick(const weft_kernel_args *args, weft_cuda_queue *queue);
weft_status_code weft_cuda_pick_grad(const weft_kernel_args *args, weft_cuda_queue *queue);
/* expert_slots, dispatch, collect */
weft_status_code weft_cuda_route(const weft_kernel_args *args, weft_cuda_queue *queue);
int64_t weft_cuda_route_workspace(const weft_kernel_args *args);

#endif
