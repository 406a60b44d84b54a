/* Measured rates of the GPU, for gpu-report.json. */
#ifndef WEFT_DOCTOR_GPU_RATES_H
#define WEFT_DOCTOR_GPU_RATES_H

#include "base/json.h"
#include "base/status.h"

/* Measures each class of ops in each precision, with the implementations that a run uses: products,
 * attention, convolutions and their gradients in FLOP/s; sums, norms and moves in bytes per second.
 * Prints a table. *rates: a list of objects with the op, its rate, and its share of the peak if the
 * peaks of the GPU are known (plan/cluster/gpu_peaks.h). Requires verdicts (gpu_check.h), without
 * the lock of their files. */
weft_status weft_gpu_rates_measure(json_t **rates);
/* Measures and prints copies inside the GPU, between the GPU and pinned memory, and to the other
 * GPUs of the process. *copies: an object with bytes per second. */
weft_status weft_gpu_copies_measure(json_t **copies);
/* Measures copies, and with `has_rates` rates. An error is put in the place of the figure: *copies
 * or *rates is an object with "error". Returns the error if the GPU failed (lost, ECC, hang, or an
 * unknown error of the driver); other errors are warnings. */
weft_status weft_gpu_figures_measure(bool has_rates, json_t **copies, json_t **rates);

#endif
