/* Computes a node of WEFT_OP_POINTWISE step by step with the kernels of the ops. Results of steps
 * are in the workspace, so separate nodes have bitwise the same values. */
#ifndef WEFT_KERNEL_POINTWISE_STEPS_H
#define WEFT_KERNEL_POINTWISE_STEPS_H

#include "kernel/kernel.h"

/* The kernels of a backend. */
typedef struct weft_step_kernels {
    weft_status_code (*run)(const struct weft_step_kernels *self, const weft_kernel_args *step);
    int64_t (*workspace)(const struct weft_step_kernels *self, const weft_kernel_args *step);
    void *user;
} weft_step_kernels;

/* Returns the scratch bytes of the node; its data is not accessed. */
int64_t weft_pointwise_workspace(const weft_step_kernels *kernels, const weft_kernel_args *args);
weft_status_code weft_pointwise_run(const weft_step_kernels *kernels, const weft_kernel_args *args);

#endif
