/* oneDNN's weight gradient, cut into tasks of one thread.
 *
 * oneDNN alone adds over samples and frames in one partial sum per thread. It also does not use its
 * generated kernel if a single frame has padded frames before it. A task is therefore one frame kt
 * of the kernel and 32 or 64 outputs, as convolutions without padding in time:
 *
 *   dW[o .. o+32][kt] = sum over runs of frames:  x[t s + kt - before]  by  dy[t][o .. o+32]
 *
 * The dy of a run is packed, because oneDNN requires it dense. It stays in the second-level cache
 * with the gradient. Tasks and runs are functions of the shape, runs are added in order, and no two
 * tasks share a sum. */
#ifndef WEFT_KERNEL_CPU_CONV_DW_H
#define WEFT_KERNEL_CPU_CONV_DW_H

#include "kernel/cpu/conv_primitive.h"

/* Primitives of all kinds of runs, for each thread. */
typedef struct conv_dw_cache conv_dw_cache;

weft_status_code conv_dw_open(const conv_shape *s, int threads, conv_dw_cache **cache);
void conv_dw_release(void *cache); /* accepts NULL */
int64_t conv_dw_workspace(const conv_shape *s, int threads);
/* Returns the bytes of the primitives. Primitives of other threads share the code. */
int64_t conv_dw_opened_bytes(const conv_shape *s);
weft_status_code conv_dw_execute(const weft_kernel_args *args, const conv_shape *s);

#endif
