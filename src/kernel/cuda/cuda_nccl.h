/* NCCL, loaded at run time: messages between GPUs as operations of streams. */
#ifndef WEFT_KERNEL_CUDA_CUDA_NCCL_H
#define WEFT_KERNEL_CUDA_CUDA_NCCL_H

#include "kernel/cuda/cuda_driver.h"
#include "kernel/device_links.h"

typedef int nccl_result; /* ncclResult_t */
typedef int nccl_type;   /* ncclDataType_t */
typedef int nccl_op;     /* ncclRedOp_t */
typedef struct nccl_comm_handle *nccl_comm;
typedef struct nccl_unique_id {
    char internal[WEFT_LINK_ID_BYTES];
} nccl_unique_id;

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_SUM = 0 };
enum {
    NCCL_INT8 = 0,
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_INT64 = 4,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
};

/* The environment variable WEFT_NCCL=off switches the library off, and WEFT_NCCL_LIBRARY replaces
 * "libnccl.so.2", for tests. */
extern const weft_device_links weft_cuda_nccl;

#endif
