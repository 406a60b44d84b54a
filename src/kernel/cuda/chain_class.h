/* Classes of shapes of a `pointwise` node. A class fixes all properties of a shape that a generated
 * kernel branches on:
 *
 *   vector      accesses of one or eight elements
 *   rank        the dims that remain after joining
 *   broadcast   the inputs that have one index along each dim
 *   shifts      the divisors that are powers of two
 *
 * A comparison at one small shape is therefore valid for all shapes of its class. */
#ifndef WEFT_KERNEL_CUDA_CHAIN_CLASS_H
#define WEFT_KERNEL_CUDA_CHAIN_CLASS_H

#include "kernel/cuda/op_launch.h"

typedef struct weft_chain_class {
    uint8_t rank;                    /* of the joined dims */
    uint8_t vector;                  /* 1: items of eight elements */
    uint8_t shifts;                  /* bit d: dim d, in items, is a power of two; not bit 0 */
    uint8_t broadcast[CHAIN_INPUTS]; /* bit d: the input has one index along dim d */
} weft_chain_class;

/* Sets the joined dims of the outputs and the strides of the inputs. */
void weft_chain_loop(const weft_kernel_args *args, weft_cuda_loop *loop);
/* Returns the class for addresses that are aligned to 16 bytes. */
weft_chain_class weft_chain_class_of(const weft_kernel_args *args);
/* Sets all shapes to a small shape of the class; their ranks stay. The kernel then has several
 * blocks, and the last block is not full. */
void weft_chain_class_shapes(const weft_chain_class *of, weft_view *in, int in_count,
                             weft_view *out, int out_count);

#endif
