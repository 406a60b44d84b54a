/* Parts of an implementation that tests plant in the list: version 7 of a library that accepts all
 * linear layers. */
#ifndef WEFT_TESTS_DOCTOR_PLANTED_LIBRARY_H
#define WEFT_TESTS_DOCTOR_PLANTED_LIBRARY_H

#include "kernel/cuda/cuda_choice.h"

static inline int64_t planted_version(void)
{
    return 7;
}

static inline bool planted_has_linear(weft_op op)
{
    return op == WEFT_OP_LINEAR;
}

static inline bool planted_accepts_all(const weft_kernel_args *args)
{
    (void)args;
    return true;
}

#endif
