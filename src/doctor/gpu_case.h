/* A case of a node: a graph with the node at sizes that the reference computes in parts of a
 * second. Large sizes are reduced. What selects a kernel or its branch stays: types,
 * attributes, broadcast dims and segments; remainders by tiles, sizes up to one tile (widths of
 * heads) and the width of rows; whether a sum is divided into parts. */
#ifndef WEFT_DOCTOR_GPU_CASE_H
#define WEFT_DOCTOR_GPU_CASE_H

#include "graph/graph.h"
#include "kernel/kernel.h"

/* Builds the case of the args' op, types and shapes, whose addresses are not used. The node is the
 * last one of the graph; earlier ones are its inputs. For the gradient of attention they include
 * the attention whose results it takes. Integers are ids in their tables, and segments divide the
 * tokens evenly. *graph NULL: the node has no small case. */
weft_status weft_gpu_case_build(const weft_kernel_args *args, weft_graph **graph);
/* Appends the op, attributes, and types and shapes of the case's inputs and outputs. Nodes with
 * equal texts are computed alike. */
void weft_gpu_case_text(const weft_graph *graph, weft_buf *text);

#endif
