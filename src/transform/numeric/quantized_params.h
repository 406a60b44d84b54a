#ifndef WEFT_TRANSFORM_NUMERIC_QUANTIZED_PARAMS_H
#define WEFT_TRANSFORM_NUMERIC_QUANTIZED_PARAMS_H

#include "graph/op.h"

/* Returns true and sets *how if the matrix `name` of this shape is kept quantized (graph/op.h). */
typedef bool weft_pack_fn(void *user, const char *name, const weft_shape *shape,
                          weft_attr_unpack *how);

/* Returns true if the attention in `scope` may compute its scores in int8. */
typedef bool weft_int8_scores_fn(void *user, const char *scope);

/* Keeps these parameters quantized, as u8 (..., blocks, bytes), and dequantizes each where it is
 * used. Results are bitwise identical to matrices dequantized in the store. For forward graphs of
 * complete tensors.
 *
 * `scores` (NULL: none): computes in int8. Asks only for matrices that linear layers alone read,
 * and these layers compute in int8; *how is then a form of weights of int8. Attention of 128
 * queries and keys or more may compute its scores in int8, too (weft_attr_attention), if `scores`
 * agrees. */
weft_status weft_pass_quantized_params(const weft_graph *g, weft_pack_fn *of,
                                       weft_int8_scores_fn *scores, void *user, weft_graph **out);

#endif
