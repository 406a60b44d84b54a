/* Cosmos' transformer with the hints of a control branch as inputs. */
#ifndef WEFT_MODEL_DENOISERS_COSMOS_DIT_H
#define WEFT_MODEL_DENOISERS_COSMOS_DIT_H

#include "model/model.h"

/* Number of hints that a CosmosTransformer3DModel reads ("controlnet_block_every_n"); 0: none. */
int64_t weft_cosmos_hints(const weft_model *model);
/* Returns the prediction of that model with the inputs `in` and the hints hint[] (B,S,C). */
weft_value weft_cosmos_hinted(weft_graph *g, const weft_model *model, const weft_ports *in,
                              const weft_value *hint);

#endif
