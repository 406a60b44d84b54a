/* A small byte-level transformer text encoder, trained together with the DiT, for a machine without
 * any pretrained weights. Tokens are the UTF-8 bytes of the caption; 256 ends it, 257 pads. */
#ifndef WEFT_MODEL_BYTES_ENCODER_H
#define WEFT_MODEL_BYTES_ENCODER_H

#include "base/json.h"
#include "graph/graph.h"

enum { WEFT_BYTES_END = 256, WEFT_BYTES_PAD = 257, WEFT_BYTES_VOCAB = 258 };

typedef struct weft_bytes_config {
    int64_t dim, heads, layers, ffn_dim;
    int64_t max_length; /* L: tokens per caption; longer ones are cut */
} weft_bytes_config;

weft_status weft_bytes_config_read(const json_t *json, const char *where,
                                   weft_bytes_config *config);
json_t *weft_bytes_config_write(const weft_bytes_config *config);

/* tokens i32 (B,L) -> (B,L,dim). */
weft_value weft_bytes_encoder(weft_graph *g, const weft_bytes_config *config, weft_value tokens_bl);
/* Fills tokens[max_length] from a NUL-terminated caption ("" is the empty prompt). */
void weft_bytes_tokens(const weft_bytes_config *config, const char *caption, int32_t *tokens);

#endif
