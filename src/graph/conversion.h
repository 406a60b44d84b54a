/* Layout conversions: the layout of the operand and of the result, one row per op. The verifier,
 * the layouts of nodes built on a mesh, the layout rule and the shard pass read this table.
 *
 *     R         --vary-->            V.
 *     P         --all_reduce-->      R.
 *     P         --reduce_scatter-->  S(dim).
 *     R         --slice_own-->       S(dim).
 *     S(dim)    --all_gather-->      V, or R (invariant).
 *     S(dim)    --all_to_all-->      S(dim2).
 *     S(dim)    --ring_shift-->      S(dim).
 *     any       --relay-->           V. */
#ifndef WEFT_GRAPH_CONVERSION_H
#define WEFT_GRAPH_CONVERSION_H

#include "graph/graph.h"

typedef struct weft_conversion {
    weft_op op;
    weft_layout_kind from; /* WEFT_UNKNOWN: any */
    weft_layout_kind to;
    bool second; /* the result is split along dim2 of the attribute, not along dim */
} weft_conversion;

/* Returns the row of a conversion (WEFT_TRAIT_CONVERTS); NULL: another op. */
const weft_conversion *weft_conversion_get(weft_op op);
/* Returns the op that converts a value from one kind of layout to another. WEFT_OP_COUNT: none. */
weft_op weft_conversion_op(weft_layout_kind from, weft_layout_kind to);
/* Returns whether the operand's layout on the conversion's axis is the required one. */
bool weft_conversion_accepts(const weft_node *node, weft_layout operand);
/* Returns the layout of the result on the conversion's axis. */
weft_layout weft_conversion_result(const weft_node *node);
/* Returns whether the conversion splits or joins dim `d`. */
bool weft_conversion_moves_dim(const weft_node *node, int d);

#endif
