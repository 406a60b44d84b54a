/* The config section `embeddings` of a curation. */
#ifndef WEFT_CURATE_EMBEDDINGS_EMBEDDINGS_CONFIG_H
#define WEFT_CURATE_EMBEDDINGS_EMBEDDINGS_CONFIG_H

#include "base/config.h"

typedef enum weft_embedding_request {
    WEFT_EMBEDDING_INPUT,
    WEFT_EMBEDDING_MESSAGES
} weft_embedding_request;

/* The source is model, onnx or url; none of the three: no embeddings. */
typedef struct weft_embeddings_config {
    const char *model, *onnx, *url;
    int64_t frames, side;
    weft_f64_list mean, std;
    const char *server_model, *key_variable;
    int request; /* weft_embedding_request */
    int64_t attempts;
    double timeout_seconds;
    double merge, duplicate; /* cosines; 0: off */
    int64_t clusters, max_per_cluster;
} weft_embeddings_config;

extern const weft_section weft_embeddings_section;

bool weft_embeddings_are_on(const weft_embeddings_config *config);
/* Whether shots are compared after the selection: clusters, their limit, duplicates. */
bool weft_embeddings_choose(const weft_embeddings_config *config);
/* Checks the config; does not open the model. */
weft_status weft_embeddings_check(const weft_embeddings_config *config);
/* A hash of the keys that embeddings depend on. */
void weft_embeddings_define(const weft_embeddings_config *config, char definition[24]);

#endif
