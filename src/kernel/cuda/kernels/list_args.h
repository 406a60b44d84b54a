/* Launches that are joined: parameters of kernels that compute the rows of a table. Each row is the
 * parameter of one launch. The table is in the parameter of the kernel, so that no copy to the GPU
 * precedes the launch. */
#ifndef WEFT_KERNEL_CUDA_KERNELS_LIST_ARGS_H
#define WEFT_KERNEL_CUDA_KERNELS_LIST_ARGS_H

#include "kernel/cuda/kernels/kernel_args.h"

enum { LIST_BYTES = 4096, LIST_MOST = 64 }; /* most bytes of a parameter; rows of a table */
#define LIST_FITS(type) ((LIST_BYTES - 16) / ((int)sizeof(type) + 8))
#define LIST_ROWS(type) (LIST_FITS(type) < LIST_MOST ? LIST_FITS(type) : LIST_MOST)

/* Row i has the blocks from first[i] on, in rows of columns[i] blocks along x. */
#define LIST_OF(type)                                                                              \
    typedef struct type##_list {                                                                   \
        int32_t count, unused;                                                                     \
        int32_t first[LIST_ROWS(type)], columns[LIST_ROWS(type)];                                  \
        type row[LIST_ROWS(type)];                                                                 \
    } type##_list

/* X(kernel, struct): kernels that have a list, named KERNEL_list. */
#define WEFT_LISTED_KERNELS(X)                                                                     \
    X(weft_cast, unary_args)                                                                       \
    X(weft_add, binary_args)                                                                       \
    X(weft_move, move_args)                                                                        \
    X(weft_fill, fill_args)                                                                        \
    X(weft_reduce_rows, reduce_args)                                                               \
    X(weft_reduce_columns, reduce_args)                                                            \
    X(weft_reduce_eights, reduce_args)                                                             \
    X(weft_sum_squares, squares_args)                                                              \
    X(weft_sum_squares_end, squares_args)                                                          \
    X(weft_norm, norm_args)                                                                        \
    X(weft_norm_grad, norm_grad_args)                                                              \
    X(weft_rope, rope_args)                                                                        \
    X(weft_adamw, adamw_args)                                                                      \
    X(weft_ema, ema_args)

LIST_OF(unary_args);
LIST_OF(binary_args);
LIST_OF(move_args);
LIST_OF(fill_args);
LIST_OF(reduce_args);
LIST_OF(squares_args);
LIST_OF(norm_args);
LIST_OF(norm_grad_args);
LIST_OF(rope_args);
LIST_OF(adamw_args);
LIST_OF(ema_args);

#endif
