/* The implementation that computes an op of a shape. It is measured once per GPU, driver, libraries
 * and shape, before the first run of a program. It is stored with the verdicts, so that a resumed
 * run has the same results. Ranks that share the folder of the verdicts have the same choices. */
#ifndef WEFT_KERNEL_CUDA_CUDA_CHOICE_H
#define WEFT_KERNEL_CUDA_CUDA_CHOICE_H

#include "kernel/cuda/cuda_impl.h"

typedef struct weft_cuda_choice weft_cuda_choice;

/* Returns the choice for the shapes and precision of args, whose addresses are not used. The object
 * is the process's. NULL: only weft's own kernel computes the op. The message `kernel-replaced`
 * names implementations that are not used because they fail. WEFT_E_NUMERIC: no implementation has
 * passed the comparison with the reference. */
weft_status weft_cuda_choose(const weft_kernel_args *args, weft_cuda_choice **choice);
/* Adds the work. An implementation that reports an error is replaced for the nodes of the shape, in
 * this and in later runs. Operands that are not aligned are computed by weft's own kernel, and so
 * are nodes that were not prepared (`choice` NULL). */
weft_status_code weft_cuda_choice_launch(weft_cuda_choice *choice, const weft_kernel_args *args);

/* Lets programs that this thread prepares from now on use only one implementation, whatever its
 * verdict. They fail with `kernel-missing` where it does not accept an op. -1: none is forced. */
void weft_cuda_choice_force(int impl);

/* Compares the implementations of a node with the reference, and sets failed[i] if i
 * differs. Called for each node of a program while it is prepared, by several threads. */
typedef weft_status_code weft_cuda_compare_fn(const weft_kernel_args *args, weft_products products,
                                              bool failed[WEFT_CUDA_IMPLS]);
/* Programs that are prepared from now on use the implementations that pass. NULL: no node is
 * compared. */
void weft_cuda_choice_compare(weft_cuda_compare_fn *compare);

/* A stored choice: "bf16 linear bf16[2,8] bf16[4,8] f32[4]". */
typedef struct weft_cuda_stored_choice {
    const char *key, *impl;
    int variant;
    int count; /* of measured implementations */
    struct {
        const char *impl;
        double seconds; /* of the fastest variant */
    } measured[WEFT_CUDA_IMPLS];
} weft_cuda_stored_choice;
/* Calls each() for the stored choices of this GPU. */
weft_status weft_cuda_choices_each(void (*each)(void *user, const weft_cuda_stored_choice *choice),
                                   void *user);
/* Forgets the choices of the process, not the stored ones. No program may be in use. For tests. */
void weft_cuda_choices_forget(void);

#endif
