/* Masks of text tokens in the forms of the references. */
#ifndef WEFT_PARITY_PARITY_MASKS_H
#define WEFT_PARITY_PARITY_MASKS_H

#include "format/tensors/tensors.h"
#include "graph/infer.h"

#include <stdbool.h>

/* Replaces the values of `t` by a mask (B,L) of the shape `to`, 1: a token of the text. `t` (B) has
 * the number of tokens of each text. `t` (B,L+S) has masks of text and image tokens, and all image
 * tokens are visible (Chroma). False: it is neither, or memory is missing, and `values` are as
 * before. */
bool weft_parity_text_mask(const weft_stored_tensor *t, const weft_shape *to, float **values);

#endif
