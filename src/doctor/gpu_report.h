#ifndef WEFT_DOCTOR_GPU_REPORT_H
#define WEFT_DOCTOR_GPU_REPORT_H

#include "base/status.h"

/* Compares every kernel of backend `cuda` that training steps of small models use with `ref`,
 * prints a table of ops and writes gpu-report.json. `kernels`: also measures and prints the
 * implementations of ops. Fails without a GPU, or if a kernel of weft differs. */
weft_status weft_doctor_gpu(bool kernels);

#endif
