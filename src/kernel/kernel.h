/* What each op computes, per backend. A kernel gets plain views; it allocates nothing and keeps
 * nothing. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include "graph/op.h"

typedef struct weft_view {
    void *data;
    weft_dtype dtype;
    weft_shape shape;
} weft_view;

typedef struct weft_kernel_args {
    const weft_view *in; /* absent inputs have data NULL and rank -1 */
    int in_count;
    weft_view *out; /* may alias an input where weft_kernel.in_place says so */
    int out_count;
    const void *attr;
    void *workspace; /* 64-byte aligned, weft_kernel.workspace() bytes */
    void *cache;     /* per node of a program, made by prepare(); NULL if none */
} weft_kernel_args;

typedef struct weft_kernel {
    /* NULL: sources and layout conversions, which the runtime does itself. */
    weft_status_code (*run)(const weft_kernel_args *args);
    /* Scratch bytes for these shapes; NULL: none. data pointers are NULL here. */
    int64_t (*workspace)(const weft_kernel_args *args);
    /* Once per node when a program is made (library primitives and such); NULL: none. */
    weft_status_code (*prepare)(const weft_kernel_args *args, void **cache);
    void (*release)(void *cache);
    /* Bit i: output 0 may be the storage of input i. For adamw: output o may be input {0,2,3}[o].
     */
    uint32_t in_place;
} weft_kernel;

typedef struct weft_backend {
    const char *name; /* "ref", "cpu" */
    weft_kernel kernel[WEFT_OP_COUNT];
} weft_backend;

/* ref computes in f64 on f64 storage (every f32 value of a graph is f64 there), one loop nest per
 * op. */
extern const weft_backend weft_backend_ref;
extern const weft_backend weft_backend_cpu;
const weft_backend *weft_backend_find(const char *name); /* NULL: none */

#endif
