#ifndef WEFT_TRANSFORM_SHARDING_EXPERT_DISPATCH_H
#define WEFT_TRANSFORM_SHARDING_EXPERT_DISPATCH_H

#include "graph/mesh.h"
#include "graph/op.h"
#include "transform/sharding/recipes.h"

/* Prepares expert parallelism, as the first step of the shard pass. Applies to stacks whose experts
 * the recipe places on ranks. Their products run by expert instead of by token, between a dispatch
 * and a collect (expert_dispatch.c). *out NULL: the graph has no such stack. */
weft_status weft_pass_experts(const weft_graph *g, const weft_mesh *mesh, const weft_recipe *recipe,
                              weft_graph **out);

#endif
