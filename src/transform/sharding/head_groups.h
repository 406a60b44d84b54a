/* Attention in groups of heads, where ranks exchange tokens for heads (Ulysses), or for samples.
 * One group is in flight during the attention of another:
 *
 *   kernels  q k v | slices |     | attend 0 | attend 1   | attend 2   | attend 3 |       | concat
 *   wire                    | 0 1              | 2 | out 0  | 3 | out 1  |  out 2   | out 3 |
 *
 * At most two groups are in flight or received before their use, so received keys need less memory
 * than with all heads at once. A group has the same number of heads from every rank; the last group
 * has the remainder. Keys of two kinds of tokens that are concatenated, text and video, are
 * exchanged separately, and concatenated per group. */
#ifndef WEFT_TRANSFORM_SHARDING_HEAD_GROUPS_H
#define WEFT_TRANSFORM_SHARDING_HEAD_GROUPS_H

#include "transform/sharding/shard_values.h"

/* Groups of the values of one axis, and the concats that are deferred. */
weft_status weft_head_groups_create(int64_t values, weft_head_groups **out);
void weft_head_groups_free(weft_head_groups *h); /* Accepts NULL. */
/* Defers a concat to its attention. */
void weft_head_groups_defer(weft_head_groups *h, weft_value v);
/* Returns true for a deferred concat, which the caller emits; it is then no longer deferred. */
bool weft_head_groups_take(weft_head_groups *h, weft_value v);
/* Returns true for a concat of tokens that only attention reads after an exchange. It is emitted
 * per group, with the attention. */
bool weft_head_groups_can_defer(const weft_axis_shard *p, const weft_node *n,
                                const weft_layout_choice *choice);
/* Maximum number of head groups; 1: the attention has no such exchange. */
int64_t weft_head_groups_most(const weft_axis_shard *p, const weft_node *n,
                              const weft_recipe_row *row, const weft_layout_choice *choice);
/* Emits the attention in `count` groups, with the result in the layout of the row. */
void weft_head_groups_emit(weft_axis_shard *p, const weft_node *n, const weft_recipe_row *row,
                           const weft_layout_choice *choice, int32_t count);

#endif
