/* Parameters of the kernels of the device: conversions and sums. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_DEVICE_ARGS_H
#define WEFT_KERNEL_CUDA_KERNELS_DEVICE_ARGS_H

#include "kernel/cuda/kernels/kernel_args.h"

enum { DEVICE_THREADS = 256, TYPE_F64 = 7 };

typedef struct convert_args {
    void *to;
    const void *from;
    int64_t count;
    int32_t to_type, from_type;
} convert_args;

/* A parameter has at most 4,096 bytes. */
enum { SUM_TERMS = 480, SUM_LEVELS = 9 };
typedef struct sum_args {
    void *out;
    int64_t count;
    int32_t type, terms, power; /* power: the largest power of two up to `terms` */
    const void *term[SUM_TERMS];
} sum_args;

#endif
