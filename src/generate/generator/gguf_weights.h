/* Models whose matrices stay quantized as in a GGUF file. */
#ifndef WEFT_GENERATE_GENERATOR_GGUF_WEIGHTS_H
#define WEFT_GENERATE_GENERATOR_GGUF_WEIGHTS_H

#include "model/adapter.h"
#include "model/key_mapping.h"

/* Whether the weights at `path` have quantized matrices (blocks of small integers). */
weft_status weft_packed_has(const char *path, bool *has);
/* Rewrites `g`, a model of the family whose names begin with `prefix`. Matrices that the file at
 * `path` quantizes stay quantized (transform/numeric/quantized_params.h), except the ones that
 * adapters change. */
weft_status weft_gguf_keep_quantized(const weft_family *family, const weft_graph *g,
                                     const char *prefix, const char *path,
                                     const weft_adapter_use *use, int uses, weft_graph **out);

#endif
