/* A training step of a small model, as the passes see it: DiT, mean square error, autodiff,
 * optimizer. */
#ifndef WEFT_TESTS_PASS_TRAINING_GRAPH_H
#define WEFT_TESTS_PASS_TRAINING_GRAPH_H

#include "graph/graph.h"
#include "train/graph/optimizer.h"

weft_graph *training_graph(int layers, int size);
/* Its two halves: the model with its loss, output "objective"; gradients and optimizer. */
weft_graph *loss_graph(int layers, int size);
void add_step(weft_graph *g);
weft_graph *forward_graph(int layers);

#endif
