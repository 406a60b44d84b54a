/* Compares the kernels with the reference at the shapes of a run's own programs, before their first
 * run. A kernel that is wrong only for such a shape is found, and replaced for the nodes that it
 * computes. Each case (gpu_case.h) is compared once: results are stored with the choices of this
 * GPU, driver, weft and libraries. */
#ifndef WEFT_DOCTOR_GPU_SHAPES_H
#define WEFT_DOCTOR_GPU_SHAPES_H

#include <stdint.h>

/* Nodes of programs that are prepared from now on are compared. Cases whose operands the GPU has no
 * memory for, and ops that have no small case, are not. */
void weft_gpu_shapes_begin(void);
/* Returns the cases that this process compared; stored ones are not counted. */
int64_t weft_gpu_shapes_compared(void);
/* Forgets what this process knows of nodes, not the stored results. For tests. */
void weft_gpu_shapes_forget(void);

#endif
