#ifndef WEFT_TRANSFORM_SHARDING_LAYER_SLICES_H
#define WEFT_TRANSFORM_SHARDING_LAYER_SLICES_H

#include "graph/op.h"
#include "transform/sharding/recipes.h"
#include "transform/sharding/slices.h"

/* Separates the name of a complete slot from the description of the slice. */
#define WEFT_SLOT_SLICE ".slice."

/* Cuts layers that the recipe's rows name into slices, and splits the exchanges between these
 * layers accordingly. Runs in the shard pass before it splits the axis of the layers, which is the
 * last axis. Results are equal, and bitwise identical if kernels do not depend on the number of
 * groups. *out NULL: ranks of another axis have different sample counts, so layers are not
 * alike. */
weft_status weft_pass_layer_slices(const weft_graph *g, const weft_recipe *recipe,
                                   const weft_comm_overlap *overlap, weft_graph **out);

#endif
