#ifndef WEFT_EXEC_MEASURE_PRODUCTS_H
#define WEFT_EXEC_MEASURE_PRODUCTS_H

#include "comm/comm.h"
#include "graph/op_work.h"
#include "kernel/kernel.h"

/* Best rate in GFLOP/s of matrix products of `dtype`, F32 or BF16, with the backend's threads
 * (1024 cubed; ref: 64 cubed). Runs for `seconds`, 2 to 100 products; 0: one product, which
 * allocates the buffers of the library. */
weft_status weft_measure_gemm(const weft_backend *backend, weft_dtype dtype, double seconds,
                              double *gflops);
/* GFLOP/s per thread of such products (up to 4 threads: 512 cubed), by the processor time of this
 * process. Load of other processes lowers weft_measure_gemm, not this rate. */
weft_status weft_measure_core(const weft_backend *backend, weft_dtype dtype, double seconds,
                              double *gflops);
/* GFLOP/s of a forward node with a kind of work, with the backend's threads, in `dtype`: a product
 * as above, attention of 4 heads of 64 over 512 tokens, or a 3x3x3 convolution of 64 channels.
 * WEFT_WORK_MEMORY has no such rate. */
weft_status weft_measure_node(const weft_backend *backend, weft_work work, weft_dtype dtype,
                              double seconds, double *gflops);

/* Peak rates by type. */
typedef struct weft_peak_gflops {
    double f32, bf16; /* bf16 0: not measured */
} weft_peak_gflops;
/* weft_measure_together of this job, for f32, and with `bf16` also for bf16. All ranks measure at
 * the same time, each for `seconds` per type. */
weft_status weft_comm_measure_peak(weft_comm *comm, const weft_backend *backend, bool bf16,
                                   double seconds, weft_peak_gflops *peak);

#endif
