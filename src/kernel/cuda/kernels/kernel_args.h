/* Parameters of kernels: structs that the host code of ops fills and the kernels read. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_KERNEL_ARGS_H
#define WEFT_KERNEL_CUDA_KERNELS_KERNEL_ARGS_H

#ifdef __CUDACC_RTC__ /* NVRTC has no headers of C */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* The values of weft_dtype. */
enum { TYPE_F32, TYPE_BF16, TYPE_F16, TYPE_F8, TYPE_I32, TYPE_I64, TYPE_U8 };

/* Dense data; NULL: absent. */
typedef struct tensor_ref {
    void *data;
    int32_t type;
} tensor_ref;

/* A divisor of numbers below 2^31: n / by = (n multiply >> 32) >> shift, or n >> shift if
 * `multiply` is 0. */
typedef struct fast_divisor {
    uint32_t by, multiply, shift;
} fast_divisor;

/* A dense shape whose elements (or vectors of elements) are counted by 31 bits. */
enum { WALK_RANK = 6 };
typedef struct walk_shape {
    fast_divisor dim[WALK_RANK]; /* slowest first; dim[0] is not used */
} walk_shape;

/* ---- pointwise ------------------------------------------------------------------------------- */

enum { POINTWISE_THREADS = 256, POINTWISE_PER_THREAD = 8 };

/* One or two inputs of the output's shape. `vector`: all pointers allow accesses of 16 bytes. */
typedef struct unary_args {
    tensor_ref x, dy, out;
    float a, b;
    int64_t count;
    int32_t vector;
} unary_args;

/* Two inputs that are broadcast. An item is 8 elements of the last dim if `vector`, else one; the
 * strides count elements, and an item of an input has the stride 1 or 0. */
typedef struct binary_args {
    tensor_ref x, y, out;
    walk_shape shape;
    int64_t x_stride[WALK_RANK], y_stride[WALK_RANK];
    int64_t items;
    int32_t vector, x_same, y_same; /* whether the elements of an item are one element of x, y */
} binary_args;

/* ---- moves ----------------------------------------------------------------------------------- */

/* out[i] = from[i'] for all items of `bytes` bytes (1, 2, 4, 8, 16). */
typedef struct move_args {
    const void *from;
    void *out;
    walk_shape shape;
    int64_t from_stride[WALK_RANK], out_stride[WALK_RANK]; /* in items */
    int64_t items;
    int32_t bytes;
} move_args;

/* Transposes (batch, rows, columns) to (batch, columns, rows). */
enum { TRANSPOSE_TILE = 32, TRANSPOSE_ROWS = 8 };
typedef struct transpose_args {
    const void *from;
    void *out;
    int64_t rows, columns;
    int32_t bytes; /* of an element: 1, 2, 4, 8 */
} transpose_args;

/* Writes `bytes` bytes of a pattern of 8. */
typedef struct fill_args {
    void *out;
    int64_t bytes;
    uint64_t pattern;
} fill_args;

#endif
