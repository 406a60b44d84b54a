#ifndef WEFT_TRANSFORM_SHARDING_SHARD_H
#define WEFT_TRANSFORM_SHARDING_SHARD_H

#include "graph/mesh.h"
#include "graph/op.h"
#include "transform/sharding/recipes.h"

/* Creates the graph of `rank`: local shapes, inserted collectives, and outputs converted to R
 * unless the recipe has a row for them. For forward graphs; autodiff runs on the result. */
weft_status weft_pass_shard(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph **out);

#endif
