/* oneDNN's convolutions: descriptors, primitives, weights in the blocked form, and runs. conv.c
 * selects the kernel of each convolution. */
#ifndef WEFT_KERNEL_CPU_CONV_PRIMITIVE_H
#define WEFT_KERNEL_CPU_CONV_PRIMITIVE_H

#include "kernel/cpu/conv_own.h"

#include <dnnl.h>

typedef enum conv_kind { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS } conv_kind;

typedef struct conv_shape {
    conv_kind kind;
    bool bias;
    conv_dims d;
    int64_t taps; /* frames of the complete kernel; d.w may be one of its frames */
    bool adds;    /* CONV_WEIGHTS: adds to the output */
    /* Types, f32 or bf16: `type` of x, y and the weights in products, which bf16 needs units for;
     * `plain` and `bias_type` of the weights and the bias in memory. Sums are f32, and the weight
     * gradient is f32. */
    weft_dtype type, plain, bias_type;
} conv_shape;

typedef struct conv_cache {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t conv, reorder;
    /* src, weights (blocked), dst, bias, scratch, weights (plain), reorder's scratch */
    dnnl_memory_t x, w, y, bias, scratch, plain;
    int64_t w_bytes, scratch_bytes;
    bool one_thread; /* see conv_choose */
} conv_cache;

/* Creates the primitives of a convolution. */
weft_status_code conv_open(const conv_shape *s, conv_cache **cache);
void conv_release(void *cache); /* accepts NULL */
/* Returns the bytes of blocked weights and scratch of conv_execute(). */
int64_t conv_primitive_workspace(const conv_shape *s);
/* Returns the bytes of an opened convolution: objects and generated code. */
int64_t conv_opened_bytes(conv_kind kind, weft_dtype type);

/* Converts weights between the plain and the blocked form. */
weft_status_code conv_reorder_weights(const conv_cache *c, dnnl_memory_t from, dnnl_memory_t to);
/* Runs the convolution. x, w (blocked) and y are named by their role in the forward convolution,
 * whichever is the result. */
weft_status_code conv_multiply(const conv_cache *c, conv_kind kind, void *x, void *w, void *y,
                               void *bias, void *scratch);
/* Runs the forward or the data gradient. w is plain, `space` is scratch. */
weft_status_code conv_execute(const conv_cache *c, conv_kind kind, char *space, void *x, void *w,
                              void *y, void *bias);
/* Waits for the runs. */
weft_status_code conv_wait(const conv_cache *c);

#endif
