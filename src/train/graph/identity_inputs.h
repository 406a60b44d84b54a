/* Identity tokens in training: of reference images, or of the first frame of a clip.
 *
 *     batch.identity       f32 (B,T,Y,X,Z) latents, or (B,T,1,P,C) features of an image encoder, of
 *                          T data sets. A sample's images come first, in the order of the sets;
 *                          zeros follow
 *     batch.identity_given f32 (B,T): 1 for images, 0 for zeros after them; only if T > 1
 *
 * An image has K tokens. The tokens of absent images, up to the encoder's num_images, are zeros, as
 * the tokens of dropped samples are. A mask is not possible: several denoisers have no mask of the
 * text, and others count the valid tokens from the first one. */
#ifndef WEFT_TRAIN_GRAPH_IDENTITY_INPUTS_H
#define WEFT_TRAIN_GRAPH_IDENTITY_INPUTS_H

#include "train/graph/objective.h"

#define WEFT_IDENTITY_INPUT "batch.identity"
#define WEFT_IDENTITY_GIVEN "batch.identity_given"

/* Whether the images are inputs; otherwise the latents of the clip have the image. */
bool weft_identity_inputs_given(const weft_run *run, const weft_run_models *models);
/* Features of the image encoder that the identity encoder reads; WEFT_FEATURES_OF_FRAME (0): it
 * reads latents. */
weft_image_features_kind weft_identity_inputs_features(const weft_run_models *models);
/* Appends identity tokens to the text tokens. Dropped samples get zeros. `latents` (B,T',Y,X,Z) of
 * the clip; `key` (B) of the draws. */
void weft_identity_inputs_append(weft_graph *g, const weft_run *run, const weft_run_models *models,
                                 weft_value latents, weft_value key, weft_ports *ports);
/* Reads the identity encoder and its image encoder. `path` names the config in messages. */
weft_status weft_identity_inputs_read(const weft_run *run, const char *path,
                                      weft_run_models *models);

#endif
