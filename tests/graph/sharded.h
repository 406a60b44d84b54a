/* A graph of one rank against the graphs of all ranks of a mesh: outputs, and gradients of
 * "loss". */
#ifndef TESTS_GRAPH_SHARDED_H
#define TESTS_GRAPH_SHARDED_H

#include "lockstep.h"
#include "transform/sharding/recipes.h"

enum { SHARDED_MAX_RANKS = 16 };

/* `build` makes the whole graph, anew at each call. `finish` is called for the whole graph and for
 * each rank's part of it: sharded_gradients() or what a test adds. All outputs are compared,
 * relative to the largest element of each; an output "part.<source>" lies as that source does.
 * Prints to stderr what differs, and rank 0's graph. */
bool sharded_agrees(weft_graph *(*build)(void *user), void (*finish)(weft_graph *g),
                    lockstep_fill *fill, void *user, const weft_mesh *mesh,
                    const weft_recipe *recipe, double tolerance);
/* Adds the gradients of "loss", if there is one, by all float inputs and params as outputs
 * "part.<source>". */
void sharded_gradients(weft_graph *g);

#endif
