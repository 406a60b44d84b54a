/* Models whose matrices stay quantized in memory: as in a GGUF file, or rounded to int8. */
#ifndef WEFT_GENERATE_GENERATOR_QUANTIZED_WEIGHTS_H
#define WEFT_GENERATE_GENERATOR_QUANTIZED_WEIGHTS_H

#include "base/json.h"
#include "model/adapter.h"
#include "model/key_mapping.h"

/* The weights of a part. Borrowed. */
typedef struct weft_quantized_source {
    const weft_family *family;
    const char *prefix, *path; /* of the names in the graph; of the files */
    const weft_adapter_use *use;
    int uses;
    bool int8; /* the weights of linear layers become int8, else what the file quantizes stays */
    const json_t *layers; /* int8: choice of layers (int8_layers.h); NULL: none */
} weft_quantized_source;

/* Whether the weights at `path` have quantized matrices (blocks of small integers). */
weft_status weft_packed_has(const char *path, bool *has);
/* Rewrites `g`, the graph of the part, with quantized matrices
 * (transform/numeric/quantized_params.h). Matrices that adapters change are excluded. */
weft_status weft_quantized_weights(const weft_graph *g, const weft_quantized_source *from,
                                   weft_graph **out);
/* Multiplies the columns of smoothed layers in `file` (int8_layers.h). Smoothed are parameters of
 * `own` of type u8, the rewritten graph, whose names begin with `prefix`, and that have factors in
 * `layers` (NULL: none). */
weft_status weft_quantized_smooth(const weft_graph *own, const char *prefix, const json_t *layers,
                                  weft_tensors *file);

#endif
