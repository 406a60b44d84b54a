/* Copies between a program's memory and the offload buffer (graph ops offload and fetch),
 * concurrent with the kernels. On the host a separate thread copies; on another device a separate
 * stream copies. Copies run one at a time, in the order in which they start. */
#ifndef WEFT_EXEC_COPY_ENGINE_H
#define WEFT_EXEC_COPY_ENGINE_H

#include "kernel/kernel.h"

typedef struct weft_copy_request {
    void *to;
    const void *from;
    int64_t bytes;
    const void *mapped; /* file-backed side (base/scratch_map.h); NULL: none */
    /* last copy: start and end on weft_now()'s clock, and seconds of its wait */
    double started, finished, waited;
    /* private to the engine */
    bool done;
    weft_event ready, begun, ended; /* on other devices; ready: on the stream of the kernels */
    weft_event met;                 /* where that stream waits for the copy */
    struct weft_copy_request *next;
} weft_copy_request;

/* Memory for offloaded values: an unnamed file or host memory. */
typedef struct weft_offload_buffer {
    char *data;
    int64_t bytes;
    bool mapped; /* file-backed */
    const weft_device *device;
} weft_offload_buffer;

typedef struct weft_copy_engine weft_copy_engine;
weft_status weft_copy_engine_create(const weft_backend *backend, weft_copy_engine **copies);
/* No copy may be running. Accepts NULL. */
void weft_copy_engine_free(weft_copy_engine *copies);
/* Starts a copy after the work that `stream`, which runs the kernels, has now. */
weft_status weft_copy_engine_start(weft_copy_engine *copies, weft_copy_request *copy,
                                   weft_device_stream *stream);
/* Work that is added to `stream` later begins after the copy. Only on a device that is apart does
 * this call return before the copy has ended; the request's times are then set by
 * weft_copy_engine_time(). */
weft_status weft_copy_engine_wait(weft_copy_engine *copies, weft_copy_request *copy,
                                  weft_device_stream *stream);
/* Sets the times of a copy that the streams have finished. */
weft_status weft_copy_engine_time(weft_copy_engine *copies, weft_copy_request *copy,
                                  weft_device_stream *stream);
/* Releases what the device keeps for a request. The request may be started again. */
void weft_copy_request_forget(weft_copy_request *copy, const weft_device *device);
/* Waits until all started copies have finished. */
void weft_copy_engine_finish(weft_copy_engine *copies);

/* Rates of offloads and fetches. `slowdown`: seconds that concurrent kernels lose per second of
 * copying. About 0 where a DMA engine or a free core copies, about 1 where every core computes. */
typedef struct weft_copy_engine_rates {
    double bytes_per_second, slowdown;
} weft_copy_engine_rates;
/* Measures copies to and from a file in `dir`, concurrent with the OpenMP threads. */
weft_status weft_copy_engine_measure(const char *dir, weft_copy_engine_rates *rates);

#endif
