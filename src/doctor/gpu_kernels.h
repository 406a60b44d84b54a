/* The implementations of ops on this GPU, for `weft doctor --gpu --kernels`. */
#ifndef WEFT_DOCTOR_GPU_KERNELS_H
#define WEFT_DOCTOR_GPU_KERNELS_H

#include "base/status.h"

/* Measures the choices for the shapes of a small model. Prints the list of implementations, their
 * verdicts by op, and every stored choice with the measured times. Requires verdicts. */
weft_status weft_gpu_kernels_print(void);

#endif
