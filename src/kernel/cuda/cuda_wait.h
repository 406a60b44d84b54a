/* Waits for work of GPUs, which end at a deadline. */
#ifndef WEFT_KERNEL_CUDA_CUDA_WAIT_H
#define WEFT_KERNEL_CUDA_CUDA_WAIT_H

#include "kernel/cuda/cuda_gpu.h"

/* Seconds that work of a GPU may take between two waits: WEFT_CUDA_DEADLINE. */
double weft_cuda_deadline(void);
/* Seconds until the caller gives up. A GPU that waits for another rank is patient for half a
 * deadline more, so that the rank whose kernel hangs reports it. */
double weft_cuda_patience(bool waits_for_rank);
/* True after work did not end within the deadline. Nothing waits again, and memory is not freed:
 * the driver would wait for the work that uses it. */
bool weft_cuda_is_stuck(void);
/* Sets this state; the context stays when the process ends. */
void weft_cuda_give_up(void);
/* Pauses between two polls: spins for short work, then sleeps. `polls`: how many there were. */
void weft_cuda_pause(int64_t polls);
/* Waits for an event, or for all work of the stream if `event` is NULL. CUDA_NOT_READY: the
 * deadline has passed, in this wait or in one before. */
cuda_result weft_cuda_wait(const weft_cuda_gpu *gpu, cuda_stream stream, cuda_event event);

#endif
