/* Converts a model's weights from one file to another, tensor by tensor. */
#ifndef WEFT_CONVERT_CONVERT_MODEL_H
#define WEFT_CONVERT_CONVERT_MODEL_H

#include "model/adapter.h"
#include "model/model.h"

typedef enum weft_convert_to {
    WEFT_TO_DIFFUSERS, /* folder: the model's own names, config.json */
    WEFT_TO_ORIGINAL,  /* file: the names of the original authors */
    WEFT_TO_COMFYUI    /* prefix "vae." or "model.diffusion_model." */
} weft_convert_to;

/* `dtype` WEFT_DTYPE_COUNT keeps each tensor's type. With F8E4M3, only matrices are F8E4M3 and all
 * other tensors are BF16. */
typedef struct weft_model_conversion {
    const weft_model *model;
    const char *in;
    const char *folder, *stem; /* <folder>/<stem>.safetensors, or shards */
    weft_convert_to to;
    weft_dtype dtype;
    int64_t shard_bytes; /* bytes per file; 0: one file */
    /* adapters to merge, of the graph of weft_convert_graph, without prefix */
    const weft_adapter_use *adapter;
    int adapters;
    /* convolutions may have fewer input channels than the model (widen_model.h); the weights of the
     * others are 0 */
    bool widens;
} weft_model_conversion;

/* Builds a graph of only the model's parameters. */
weft_status weft_convert_graph(const weft_model *model, weft_graph **graph);
/* Writes the converted files. Peak memory is that of the largest tensor in f32 with adapters, a few
 * MiB without. Atomic: files are renamed when complete, and config.json is written last. */
weft_status weft_convert_model(const weft_model_conversion *c, const weft_graph *graph);

#endif
