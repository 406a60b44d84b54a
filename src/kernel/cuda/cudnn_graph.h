/* Operation graphs of cuDNN, and their execution plans. */
#ifndef WEFT_KERNEL_CUDA_CUDNN_GRAPH_H
#define WEFT_KERNEL_CUDA_CUDNN_GRAPH_H

#include "kernel/cuda/cuda_cudnn.h"

enum { CUDNN_GRAPH_DESCRIPTORS = 256, CUDNN_ALIGNMENT = 16 };

/* Descriptors and the first error. Functions do nothing after an error. */
typedef struct weft_cudnn_builder {
    const weft_cudnn *library;
    cudnn_handle handle;     /* of the GPU; NULL: `device_json` describes one */
    const char *device_json; /* borrowed */
    cudnn_descriptor list[CUDNN_GRAPH_DESCRIPTORS];
    int count;
    weft_status_code status;
} weft_cudnn_builder;

void weft_cudnn_close(weft_cudnn_builder *builder); /* destroys its descriptors */
cudnn_descriptor weft_cudnn_new(weft_cudnn_builder *builder, int type);
void weft_cudnn_set(weft_cudnn_builder *builder, cudnn_descriptor to, int attribute, int type,
                    int64_t count, const void *values);
void weft_cudnn_set_int(weft_cudnn_builder *builder, cudnn_descriptor to, int attribute,
                        int64_t value);
/* Attributes that are an enumeration of C: of 4 bytes. */
void weft_cudnn_set_enum(weft_cudnn_builder *builder, cudnn_descriptor to, int attribute, int type,
                         int value);
void weft_cudnn_set_descriptor(weft_cudnn_builder *builder, cudnn_descriptor to, int attribute,
                               cudnn_descriptor value);
void weft_cudnn_finish(weft_cudnn_builder *builder, cudnn_descriptor descriptor);

typedef struct weft_cudnn_tensor {
    int64_t id; /* unique in the graph */
    int type;
    int rank;
    int64_t dim[5], stride[5];
    bool is_virtual, by_value;
    int64_t alignment; /* bytes; 0: CUDNN_ALIGNMENT */
} weft_cudnn_tensor;
cudnn_descriptor weft_cudnn_add_tensor(weft_cudnn_builder *builder,
                                       const weft_cudnn_tensor *tensor);
/* y = x `mode` b in f32. b NULL: of x alone. */
cudnn_descriptor weft_cudnn_add_pointwise(weft_cudnn_builder *builder, int mode, cudnn_descriptor x,
                                          cudnn_descriptor b, cudnn_descriptor y);
cudnn_descriptor weft_cudnn_add_graph(weft_cudnn_builder *builder, const cudnn_descriptor *ops,
                                      int count);

/* Limits of the engines that a plan may use. All sums have one order: engines that cuDNN notes as
 * nondeterministic are skipped. */
typedef struct weft_cudnn_wish {
    int variant;       /* first configuration of the heuristics that may be used, from 0 */
    bool full_f32;     /* no engine that rounds f32 to TF32 */
    bool ordered;      /* sets the knob that orders the sums of attention's gradient */
    int64_t least;     /* least bytes of the workspace: plans with fewer are skipped */
    int64_t workspace; /* most bytes */
} weft_cudnn_wish;

/* Finds the first plan from the variant of the wish on, its own variant and its workspace. Builds
 * no plan of an earlier variant, which cuDNN may have to compile. The descriptor is the builder's,
 * and its status is WEFT_E_UNSUPPORTED if no engine fits. */
cudnn_descriptor weft_cudnn_add_plan(weft_cudnn_builder *builder, cudnn_descriptor graph,
                                     const weft_cudnn_wish *wish, int *variant, int64_t *workspace);

/* Returns cuDNN's description of the GPU as JSON (heap, the caller's); NULL: the builder's status
 * has the error. Such a text is the `device_json` of builders on machines without the GPU. */
char *weft_cudnn_describe_device(weft_cudnn_builder *builder);

#endif
