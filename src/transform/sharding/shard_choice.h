/* Choice of the layouts in which a node is computed on one mesh axis, by the bytes sent. */
#ifndef WEFT_TRANSFORM_SHARDING_SHARD_CHOICE_H
#define WEFT_TRANSFORM_SHARDING_SHARD_CHOICE_H

#include "transform/sharding/shard_values.h"

/* Bytes of the complete value. */
double weft_axis_bytes(const weft_axis_shard *p, weft_value v);
/* Changes R operands to V if the node does different work on each rank. */
void weft_layout_choice_mark_varying(const weft_node *n, weft_layout_choice *c);
/* Returns false if the choice may be invalid on another rank. Rules that depend on shard sizes
 * (reshape, convolution windows) are evaluated for rank 0 only, so dims with uneven shards are
 * rejected. */
bool weft_axis_fits_all_ranks(const weft_axis_shard *p, const weft_node *n,
                              const weft_layout_choice *c);
/* Chooses the cheapest layout of a node. `by`: expansion that the recipe requires; NULL: any. */
void weft_axis_choose(weft_axis_shard *p, const weft_node *n, const char *by,
                      weft_layout_choice *best);

#endif
