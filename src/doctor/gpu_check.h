/* Compares the kernels of backend `cuda` with the reference, and keeps the verdicts. */
#ifndef WEFT_DOCTOR_GPU_CHECK_H
#define WEFT_DOCTOR_GPU_CHECK_H

#include "kernel/registry/kernel_check.h"

/* Index of the model whose sizes suit tensor cores and vectors; most sizes of the models before
 * it divide by neither. */
enum { WEFT_GPU_VECTOR_MODEL = 4 };
/* Compares every node of a training step of one model. Adds to op[WEFT_OP_COUNT]. */
weft_status weft_gpu_check_model(int model, bool bf16, weft_op_check *op);
/* Compares every node of training steps of small models, in f32 or mixed precision, and sets the
 * verdicts of their ops. Adds to op[WEFT_OP_COUNT]. Fails if the GPU does. */
weft_status weft_gpu_check(bool bf16, weft_op_check *op);
/* Loads the verdicts of this GPU before a run, or compares the kernels and saves their verdicts.
 * Programs prepared later stop at an op that failed. Does nothing for other backends than `cuda`.
 */
weft_status weft_gpu_settle(const weft_backend *backend, bool bf16);

#endif
