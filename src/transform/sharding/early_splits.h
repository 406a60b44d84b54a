/* A choice depends on operands only. So nodes before the first split of tokens are computed on all
 * tokens on every rank, and split at the recipe's row:
 *
 *     data R ── views ── mix ── linear ── norm ─slice_own─> S(1)          first choice
 *     data R ── views ─slice_own─> S(1) ── mix ── linear ── norm          local tokens only
 *
 * A replicated value whose consumers all read the same split is computed in that split instead, if
 * its rule offers this. In the backward, the gradient of a split value is gathered, and the
 * gradient of a parameter read by local tokens is reduced: the cheaper alternative is chosen. */
#ifndef WEFT_TRANSFORM_SHARDING_EARLY_SPLITS_H
#define WEFT_TRANSFORM_SHARDING_EARLY_SPLITS_H

#include "transform/sharding/shard_values.h"

/* Changes the plan of an axis after its first emission. *changed: the graph must be emitted
 * again. */
weft_status weft_early_splits_plan(weft_axis_shard *p, bool *changed);

#endif
