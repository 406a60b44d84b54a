/* The first step of the shard pass (transform/sharding/shard.c). */
#ifndef WEFT_TRANSFORM_SHARDING_SHARD_OPEN_H
#define WEFT_TRANSFORM_SHARDING_SHARD_OPEN_H

#include "graph/mesh.h"
#include "graph/op.h"
#include "transform/sharding/recipes.h"

/* Copies `g` into the empty graph `to` of rank `rank`. Nodes that the recipe splits internally are
 * expressed by other nodes. Results are equal up to rounding. */
weft_status weft_shard_open(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph *to);

/* Returns true if the recipe splits the parameter `param` along `dim` on an axis of more than one
 * rank without gathering it for use. */
bool weft_recipe_keeps_split(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                             weft_value param, int dim);

#endif
