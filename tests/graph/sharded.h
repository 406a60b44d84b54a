/* A graph of one rank against the graphs of all ranks of a mesh: outputs, and gradients of "loss". */
#ifndef TESTS_GRAPH_SHARDED_H
#define TESTS_GRAPH_SHARDED_H

#include "lockstep.h"
#include "pass/pass.h"

enum { SHARDED_MAX_RANKS = 16 };

/* Builds the graph anew at each call. With an output "loss", gradients by all float sources are compared too (those that the loss
 * depends on). Relative to the largest element of each tensor. Prints to stderr what differs, and rank 0's graph. */
bool sharded_agrees(weft_graph *(*build)(void *user), lockstep_fill *fill, void *user, const weft_mesh *mesh,
                    const weft_recipe *recipe, double tolerance);

#endif
