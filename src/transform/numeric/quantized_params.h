#ifndef WEFT_TRANSFORM_NUMERIC_QUANTIZED_PARAMS_H
#define WEFT_TRANSFORM_NUMERIC_QUANTIZED_PARAMS_H

#include "graph/op.h"

/* Returns true and sets *how if the matrix `name` of this shape is kept quantized (graph/op.h). */
typedef bool weft_pack_fn(void *user, const char *name, const weft_shape *shape,
                          weft_attr_unpack *how);

/* Choices for weft_pass_quantized_params with int8. */
typedef struct weft_int8_rules {
    /* Returns true if the attention in `scope` may compute its scores in int8. */
    bool (*scores)(void *user, const char *scope);
    /* Sets factor[columns], which multiplies the inputs of the layer with the matrix `name`
     * (graph/op.h). Returns false if the layer is not smoothed. */
    bool (*smoothing)(void *user, const char *name, int64_t columns, float *factor);
} weft_int8_rules;

/* Keeps these parameters quantized, as u8 (..., blocks, bytes), and dequantizes each where it is
 * used. Results are bitwise identical to matrices dequantized in the store. For forward graphs of
 * complete tensors.
 *
 * `int8` (NULL: none): computes in int8. Asks only for matrices that linear layers alone read,
 * and these layers compute in int8; *how is then a form of weights of int8. Attention of 128
 * queries and keys or more may compute its scores in int8, too (weft_attr_attention), if
 * int8->scores agrees. */
weft_status weft_pass_quantized_params(const weft_graph *g, weft_pack_fn *of,
                                       const weft_int8_rules *int8, void *user, weft_graph **out);

#endif
