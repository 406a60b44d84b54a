/* What this machine can do, measured, so that a run's speed can be held against it. */
#ifndef WEFT_RUNTIME_MEASURE_H
#define WEFT_RUNTIME_MEASURE_H

#include "runtime/runtime.h"

/* Best of the matrix products (1024 cubed, f32, the backend's threads) that fit in `seconds`, at
 * least two. */
weft_status weft_measure_gemm(const weft_backend *backend, double seconds, double *gflops);
/* Bytes per second of a copy of `bytes`, which it takes twice, by 64 tasks; read and written bytes
 * counted. */
weft_status weft_measure_memory(int64_t bytes, double seconds, double *bytes_per_second);

#endif
