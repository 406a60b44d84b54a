#ifndef WEFT_TRANSFORM_SHARDING_TOKEN_SHARDING_H
#define WEFT_TRANSFORM_SHARDING_TOKEN_SHARDING_H

#include "graph/mesh.h"
#include "graph/op.h"
#include "transform/sharding/recipes.h"

/* Reorders loss, noise and data into token order, so that a rank computes only its local tokens
 * (token_sharding.c). Applies if the recipe splits dim 1 of activations. *out NULL: no axis splits
 * tokens, or no loss can be reordered. Results differ by rounding, because sums have another
 * order. */
weft_status weft_pass_token_sharding(const weft_graph *g, const weft_mesh *mesh,
                                     const weft_recipe *recipe, weft_graph **out);

#endif
