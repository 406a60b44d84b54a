#ifndef WEFT_EXEC_MEASURE_PRODUCTS_H
#define WEFT_EXEC_MEASURE_PRODUCTS_H

#include "comm/comm.h"
#include "kernel/kernel.h"

/* Best rate in GFLOP/s of f32 matrix products (1024 cubed; ref: 64 cubed) with the backend's
 * threads. Runs for `seconds`, at least two products; 0: one product, which allocates the buffers
 * of the library. */
weft_status weft_measure_gemm(const weft_backend *backend, double seconds, double *gflops);
/* GFLOP/s per thread of such products (up to 4 threads: 512 cubed), by the processor time of this
 * process. Load of other processes lowers weft_measure_gemm, not this rate. */
weft_status weft_measure_core(const weft_backend *backend, double seconds, double *gflops);
/* weft_measure_together of this job. All ranks measure at the same time, each for `seconds`. */
weft_status weft_comm_measure_peak(weft_comm *comm, const weft_backend *backend, double seconds,
                                   double *gflops);

#endif
