/* Models of a curation in buckets: copies of this machine replace their locations in the config. */
#ifndef WEFT_CURATE_MODEL_COPIES_H
#define WEFT_CURATE_MODEL_COPIES_H

#include "curate/curate.h"

typedef struct weft_model_copies weft_model_copies;
/* Copies the remote models of shots.weights, embeddings and operators. Scores and embeddings of
 * another machine count if its copies are of the same version. */
weft_status weft_model_copies_open(weft_curate_config *config, weft_model_copies **copies);
/* The config is used before. Accepts NULL. */
void weft_model_copies_close(weft_model_copies *copies);

#endif
