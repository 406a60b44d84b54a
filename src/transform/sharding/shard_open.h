/* The first step of the shard pass (pass/shard.c). */
#ifndef WEFT_PASS_SHARD_OPEN_H
#define WEFT_PASS_SHARD_OPEN_H

#include "pass/pass.h"

/* Copies `g` into the empty graph `to` of rank `rank`, with nodes that the recipe splits inside in
 * another form. The values are the same up to rounding. */
weft_status weft_shard_open(const weft_graph *g, const weft_mesh *mesh, int rank,
                            const weft_recipe *recipe, weft_graph *to);

#endif
