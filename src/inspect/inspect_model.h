/* weft inspect model: the graph of a model, its parameters, FLOPs and memory, before anything is
 * allocated. */
#ifndef WEFT_INSPECT_INSPECT_MODEL_H
#define WEFT_INSPECT_INSPECT_MODEL_H

#include "graph/mesh.h"
#include "model/model.h"
#include "transform/sharding/slices.h"

typedef struct weft_inspect_model_options {
    weft_model_size video;        /* pixels; latents with `latents` */
    bool latents;                 /* sizes are in latents */
    bool frames_given;            /* false: video.frames is adapted to the model */
    bool text_given;              /* the same for video.text */
    bool train;                   /* a training step: forward, backward, optimizer */
    bool tensors;                 /* print only names, types and sizes of the parameters */
    bool graph;                   /* print the graph */
    bool json;                    /* print the figures as one JSON object */
    bool bf16;                    /* mixed precision */
    const char *roofline;         /* cluster whose GPU's roofline is printed instead; NULL: none */
    int top;                      /* kinds of nodes and buffers to print; at most 64 */
    const char *backend;          /* name of the kernels' backend */
    const char *const *recompute; /* patterns; borrowed */
    int recompute_count;
    weft_mesh mesh; /* printed from its rank 0 */
    weft_comm_overlap overlap;
} weft_inspect_model_options;

/* Prints the model at `path`: a pipeline folder, a model folder, a config.json, the name of a
 * published size, or a file of weights. WEFT_E_NOT_FOUND: no model that weft implements. */
weft_status weft_inspect_model(const weft_inspect_model_options *options, const char *path);

#endif
