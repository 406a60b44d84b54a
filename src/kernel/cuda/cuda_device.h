/* The device `cuda`: memory, streams and copies of one NVIDIA GPU. */
#ifndef WEFT_KERNEL_CUDA_CUDA_DEVICE_H
#define WEFT_KERNEL_CUDA_CUDA_DEVICE_H

#include "kernel/cuda/launch.h"
#include "kernel/kernel.h"

extern const weft_device weft_device_cuda;

/* The queue for launches on the stream. */
weft_cuda_queue *weft_cuda_stream_queue(weft_device_stream *stream);
/* Begins a node. Launches that are added to the queue then may be issued later than other work of
 * the queue, and joined (launch_window.h). *begun is false after an error that wait() has not
 * returned yet: work is skipped. */
weft_status weft_cuda_stream_node(weft_device_stream *stream, const weft_kernel_args *args,
                                  int64_t workspace, bool *begun);
/* Begins work that is not in the queue, after the queue's launches; named `what` if mark() named no
 * node. False as for weft_cuda_stream_node(). */
bool weft_cuda_stream_begin(weft_device_stream *stream, const char *what);
/* The work until the next begin accesses the bytes. For the emulated driver. */
void weft_cuda_stream_access(weft_device_stream *stream, const void *data, int64_t bytes,
                             bool writes);
/* The driver's stream, to which libraries add work, and an error for its next wait. */
struct cuda_stream_handle *weft_cuda_stream_handle(weft_device_stream *stream);
void weft_cuda_stream_fail(weft_device_stream *stream, weft_status_code status);
/* Before and after a library adds an exchange with other ranks to a stream that has begun. */
void weft_cuda_stream_exchange_begin(weft_device_stream *stream);
void weft_cuda_stream_exchange_end(weft_device_stream *stream);
/* Waits for the stream if WEFT_CUDA_SYNC=1, so that an error names its node. */
weft_status weft_cuda_stream_check(weft_device_stream *stream);

#endif
