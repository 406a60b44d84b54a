/* Ops that the models of the comparison (gpu_check.h) lack. */
#ifndef WEFT_DOCTOR_GPU_REST_H
#define WEFT_DOCTOR_GPU_REST_H

#include "graph/graph.h"

/* Adds nodes of such ops to `g`, whose outputs a loss can reach:
 *
 *   attention over chosen blocks     heads of 12, 64, 128 and 144 columns: all kernels
 *   the choice of blocks             by probability, and by share
 *   attention in parts of the keys, dispatch to experts, tables, random numbers, functions */
void weft_gpu_rest_build(weft_graph *g);

#endif
