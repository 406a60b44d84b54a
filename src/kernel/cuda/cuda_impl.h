/* Implementations of ops: libraries that are loaded at run time, and weft's own kernels, which are
 * the last of the list. cuda_choice.h selects one for each op and shape.
 *
 *   list:  cublaslt, cudnn, nvrtc, specialised, weft      order of preference without measurements
 *          │ accepts(args)            op, types, attributes
 *          │ verdict                  a library must have passed the comparison with ref
 *          │ prepare(args, variant)   a plan for the shape
 *          ▼ trial and measurement    on memory of their own, before the first run
 *          the fastest one            stored by shape
 */
#ifndef WEFT_KERNEL_CUDA_CUDA_IMPL_H
#define WEFT_KERNEL_CUDA_CUDA_IMPL_H

#include "kernel/kernel.h"

enum {
    WEFT_CUDA_IMPLS = 8,     /* most implementations in the list */
    WEFT_CUDA_VARIANTS = 8,  /* most variants of an implementation for a shape */
    WEFT_CUDA_ALIGNMENT = 16 /* bytes: the alignment of the operands of a plan */
};

/* A plan of an implementation for a shape, of one of its algorithms. */
typedef struct weft_cuda_plan {
    int variant; /* number of the algorithm in the library's list; stored with a choice */
    void *plan;  /* the implementation's; NULL: it has no plans */
} weft_cuda_plan;

/* Functions other than version() may be called by several threads. They report errors of a library
 * by weft_error(): WEFT_E_UNSUPPORTED where the library has no kernel for the request. */
typedef struct weft_cuda_impl {
    const char *name; /* "cublaslt"; a key of the files of verdicts and choices */
    /* Returns the version of the library, loaded at the first call; 0: it is missing, unusable or
     * switched off. The version is part of the key of verdicts and choices. */
    int64_t (*version)(void);
    /* Returns true if the implementation computes the op for some types and shapes. */
    bool (*has)(weft_op op);
    /* Returns true if it may compute an op that it has in the types and shapes of args.
     * Must not depend on addresses. Called often, also without a GPU. */
    bool (*accepts)(const weft_kernel_args *args);
    /* Returns the scratch bytes of every variant, for args that it accepts. NULL: none. */
    int64_t (*workspace)(const weft_kernel_args *args);
    /* Creates plans for the shapes of args, whose addresses differ from the addresses of launches:
     * of up to `most` (at most WEFT_CUDA_VARIANTS) usable variants from number `first` on, best
     * first by the library's own estimate. Sets *count to their number, at least 1;
     * WEFT_E_UNSUPPORTED: none. A plan is used by all nodes of the shape, one launch at a time,
     * until the process ends. NULL: one variant without a plan. */
    weft_status_code (*prepare)(const weft_kernel_args *args, int first, int most,
                                weft_cuda_plan *plan, int *count);
    void (*release)(void *plan); /* of variants that lost; NULL with `prepare` */
    /* Adds the work to args->stream, which weft_cuda_stream_begin() has begun unless `joins`.
     * `args->workspace` has weft_cuda_impls_workspace() bytes. The addresses of all operands are
     * aligned to WEFT_CUDA_ALIGNMENT. weft_cuda_stream_handle() is the driver's stream.
     * Kernels of weft begin with weft_cuda_stream_node(). */
    weft_status_code (*launch)(const weft_kernel_args *args, void *plan);
    bool joins; /* launches wait in the stream's window, and launches of other nodes may join */
    /* Results are bitwise equal to the results of weft's own kernels. The measurement compares them
     * at the shape, and an implementation that differs is not used for the shape. */
    bool is_exact;
    /* Whether a measurement may pay for a shape that it accepts. NULL: always. */
    bool (*pays)(const weft_kernel_args *args);
} weft_cuda_impl;

/* The list. The last implementation is weft's own kernels. */
int weft_cuda_impl_count(void);
const weft_cuda_impl *weft_cuda_impl_get(int index);
/* Whether the implementation's library is usable and accepts the args. */
bool weft_cuda_impl_accepts(int index, const weft_kernel_args *args);
/* Returns the scratch bytes that are enough for every implementation that accepts the args, so that
 * predicted memory does not depend on the choice. */
int64_t weft_cuda_impls_workspace(const weft_kernel_args *args);
/* The index of weft's own kernels. */
int weft_cuda_impl_own(void);
/* Puts an implementation in front of the list, for tests. NULL: removes those implementations. */
void weft_cuda_impl_plant(const weft_cuda_impl *impl);

#endif
