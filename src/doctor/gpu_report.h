#ifndef WEFT_DOCTOR_GPU_REPORT_H
#define WEFT_DOCTOR_GPU_REPORT_H

#include "base/json.h"
#include "base/status.h"
#include "kernel/cuda/cuda_gpu.h"

/* Parts of gpu-report.json, owned; NULL: none. */
typedef struct weft_gpu_report {
    const weft_cuda_gpu *gpu;
    json_t *ops, *families, *rates, *copies, *links;
    int failed;          /* ops whose kernel of weft failed */
    int families_failed; /* steps of families that differ */
    /* The GPU's error, which ended the check. A copy: the message of the thread is replaced if
     * cuDNN has an error later */
    char *error;
} weft_gpu_report;

/* Compares every kernel of backend `cuda` that training steps of small models use with `ref`,
 * prints a table of ops and writes gpu-report.json. `kernels`: also measures and prints the
 * implementations of ops. Fails without a GPU, or if a kernel of weft differs. */
weft_status weft_doctor_gpu(bool kernels);
/* The last part: measures copies and rates of the GPU, and writes the report. If the GPU fails
 * meanwhile, the report has the error, "passed" is false, and the error is returned. */
weft_status weft_gpu_report_measure(weft_gpu_report *report);
void weft_gpu_report_free(weft_gpu_report *report);

#endif
