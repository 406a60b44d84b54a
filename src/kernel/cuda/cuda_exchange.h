/* Exchanges between GPUs that are under way. A GPU whose exchange has begun and not ended waits for
 * another rank, whose kernel may hang: the waiting GPU is not the one to report. Streams write the
 * number of each exchange to pinned memory before and after it. */
#ifndef WEFT_KERNEL_CUDA_CUDA_EXCHANGE_H
#define WEFT_KERNEL_CUDA_CUDA_EXCHANGE_H

#include "kernel/cuda/cuda_gpu.h"

/* The exchanges of a stream. */
typedef struct weft_cuda_exchange weft_cuda_exchange;

/* NULL: out of memory; the exchanges of the stream are then unknown. */
weft_cuda_exchange *weft_cuda_exchange_open(void);
void weft_cuda_exchange_close(weft_cuda_exchange *exchange); /* accepts NULL */
/* Adds the begin or the end of an exchange to the work of the stream. Accepts NULL. */
cuda_result weft_cuda_exchange_begin(weft_cuda_exchange *exchange, const weft_cuda_gpu *gpu,
                                     cuda_stream stream);
cuda_result weft_cuda_exchange_end(weft_cuda_exchange *exchange, const weft_cuda_gpu *gpu,
                                   cuda_stream stream);
/* Whether an exchange of any stream of the process has begun and not ended. */
bool weft_cuda_exchange_waits(void);

#endif
