/* Compares the kernels of backend `cuda` with the reference, and keeps the verdicts. */
#ifndef WEFT_DOCTOR_GPU_CHECK_H
#define WEFT_DOCTOR_GPU_CHECK_H

#include "kernel/cuda/cuda_impl.h"
#include "kernel/registry/kernel_check.h"
#include "model/model.h"

/* Indices of the models whose sizes suit tensor cores and vectors: heads of 64 and of 128 columns,
 * and an autoencoder. Most sizes of the models before these divide by neither. */
enum { WEFT_GPU_VECTOR_MODEL = 4, WEFT_GPU_WIDE_MODEL, WEFT_GPU_VECTOR_VAE };
/* The vector model with joined elementwise ops, compared if NVRTC is usable. */
enum { WEFT_GPU_JOINED_MODEL = WEFT_GPU_VECTOR_VAE + 1 };
/* Not a model: the ops that no model before it has (gpu_rest.h). */
enum { WEFT_GPU_REST = WEFT_GPU_JOINED_MODEL + 1, WEFT_GPU_MODELS };
/* Results: the first WEFT_OP_COUNT are of weft's own kernels; the implementation `i` of the list
 * follows at WEFT_GPU_RESULT(i, op). */
enum { WEFT_GPU_RESULTS = (WEFT_CUDA_IMPLS + 1) * WEFT_OP_COUNT };
#define WEFT_GPU_RESULT(impl, op) (((impl) + 1) * WEFT_OP_COUNT + (op))

/* Builds a training step of a model, whose loss is the mean square of its outputs, with the outputs
 * of train/graph/optimizer.h. `size` NULL: a small odd one. */
weft_status weft_gpu_step_build(const char *config, const weft_model_size *size,
                                weft_products products, weft_graph **out);
/* Whether a model is compared in a precision. */
bool weft_gpu_check_has(int model, weft_products products);
/* Builds the graph that is compared for one model. */
weft_status weft_gpu_check_build(int model, weft_products products, weft_graph **out);
/* Compares every node of a training step of one model, for each implementation that has its op.
 * Adds to op[WEFT_GPU_RESULTS]. */
weft_status weft_gpu_check_model(int model, weft_products products, weft_op_check *op);
/* Does the same for the nodes of a graph. `products`: of the program, for verdicts. Requires the
 * lock of the files of verdicts. */
weft_status weft_gpu_check_graph(const weft_graph *graph, weft_products products,
                                 weft_op_check *op);
/* Compares every node of training steps of small models, in one precision, and sets the
 * verdicts of their ops. Adds to op[WEFT_GPU_RESULTS]. Fails if the GPU does. Requires the lock of
 * the files of verdicts. */
weft_status weft_gpu_check(weft_products products, weft_op_check *op);
/* Measures the choices of implementations for the shapes of the vector model. */
weft_status weft_gpu_check_choices(weft_products products);
/* Loads the verdicts of this GPU before a run, or compares the kernels and saves their verdicts.
 * Programs prepared later use the implementations that passed, and stop at an op without one. Their
 * nodes are compared at their own shapes (gpu_shapes.h). Does nothing for other backends than
 * `cuda`. */
weft_status weft_gpu_settle(const weft_backend *backend, weft_products products);

#endif
