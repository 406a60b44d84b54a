/* A graph of one rank is compared with the graphs of all ranks of a mesh: outputs, and gradients of
 * "loss". */
#ifndef TESTS_GRAPH_SHARDED_H
#define TESTS_GRAPH_SHARDED_H

#include "lockstep.h"
#include "transform/sharding/recipes.h"

enum { SHARDED_MAX_RANKS = 16 };

/* `build` returns a new unsharded graph at each call. `finish` is called for the unsharded graph
 * and for each rank's graph: sharded_gradients() or a function of the test. All outputs are
 * compared, relative to the largest element of each. An output "part.<source>" has the layout of
 * its source. Prints differences and rank 0's graph to stderr. */
bool sharded_agrees(weft_graph *(*build)(void *user), void (*finish)(weft_graph *g),
                    lockstep_fill *fill, void *user, const weft_mesh *mesh,
                    const weft_recipe *recipe, double tolerance);
/* Adds the gradients of "loss", if there is one, by all float inputs and params as outputs
 * "part.<source>". */
void sharded_gradients(weft_graph *g);

#endif
