/* Inside cli/: a model's weights from one file to another, tensor by tensor. */
#ifndef WEFT_CLI_CONVERT_MODEL_H
#define WEFT_CLI_CONVERT_MODEL_H

#include "model/adapter.h"
#include "model/model.h"

typedef enum weft_convert_to {
    WEFT_TO_DIFFUSERS, /* a folder: the model's own names, config.json */
    WEFT_TO_ORIGINAL,  /* a file: the names of the family's authors */
    WEFT_TO_COMFYUI    /* the same behind "model.diffusion_model.", or of an autoencoder "vae." */
} weft_convert_to;

/* WEFT_DTYPE_COUNT in the place of a type: every tensor's own. F8E4M3 is for matrices, the rest is
 * BF16 then. */
typedef struct weft_conversion {
    const weft_model *model;
    const char *in;
    const char *folder, *stem; /* <folder>/<stem>.safetensors, or shards */
    weft_convert_to to;
    weft_dtype dtype;
    int64_t shard_bytes; /* 0: one file */
    /* merged; of the graph of weft_convert_graph, without prefix */
    const weft_adapter_use *adapter;
    int adapters;
} weft_conversion;

/* The model's parameters by themselves. */
weft_status weft_convert_graph(const weft_model *model, weft_graph **graph);
/* No more memory than the largest tensor takes in f32 with adapters, a few MiB without. Atomic:
 * files have their names when they are whole, and config.json comes last. */
weft_status weft_convert_model(const weft_conversion *c, const weft_graph *graph);

#endif
