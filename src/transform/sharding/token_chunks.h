/* A product whose result is reduced over ranks (tensor parallel) is computed per chunk of tokens.
 * The chunks include preceding nodes that only lead to the product and work per token: the first
 * product of a feed-forward, or attention of a chunk's queries to all keys:
 *
 *   kernels   attend 0, product 0 | attend 1, product 1 | attend 2, product 2 |       | concat
 *   wire                          | sum 0               | sum 1               | sum 2 |
 *
 * If the result is reduce-scattered by tokens, a chunk has the same part of every rank's tokens.
 * The results of all chunks are then the rank's tokens in their order. */
#ifndef WEFT_TRANSFORM_SHARDING_TOKEN_CHUNKS_H
#define WEFT_TRANSFORM_SHARDING_TOKEN_CHUNKS_H

#include "transform/sharding/shard_values.h"

/* Maximum number of token chunks; 1: not such a product. */
int64_t weft_token_chunks_most(const weft_axis_shard *p, const weft_node *n,
                               const weft_recipe_row *row, const weft_layout_choice *choice);
/* Emits the product in `count` chunks, with the result in the layout of the row. */
void weft_token_chunks_emit(weft_axis_shard *p, const weft_node *n, const weft_recipe_row *row,
                            const weft_layout_choice *choice, int32_t count);

#endif
