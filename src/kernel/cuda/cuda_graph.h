/* Graphs of the driver: work that a stream records once. */
#ifndef WEFT_KERNEL_CUDA_CUDA_GRAPH_H
#define WEFT_KERNEL_CUDA_CUDA_GRAPH_H

#include "kernel/device_graphs.h"

/* WEFT_CUDA_GRAPHS=off and WEFT_CUDA_SYNC=1 switch graphs off. */
extern const weft_device_graphs weft_cuda_graphs;

#endif
