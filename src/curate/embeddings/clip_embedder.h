/* CLIP's image encoder on weft's engine, from a model folder. */
#ifndef WEFT_CURATE_EMBEDDINGS_CLIP_EMBEDDER_H
#define WEFT_CURATE_EMBEDDINGS_CLIP_EMBEDDER_H

#include "base/status.h"

#include <stdint.h>

typedef struct weft_clip_embedder weft_clip_embedder;
/* `folder` has config.json and the weights of CLIPVisionModel or CLIPVisionModelWithProjection. */
weft_status weft_clip_embedder_open(const char *folder, weft_clip_embedder **embedder);
void weft_clip_embedder_close(weft_clip_embedder *embedder);         /* accepts NULL */
int64_t weft_clip_embedder_side(const weft_clip_embedder *embedder); /* of its images, pixels */
/* Encodes `image` [side, side, 3], preprocessed. *output, `*width` floats, is valid until the next
 * call. */
weft_status weft_clip_embedder_run(weft_clip_embedder *embedder, const float *image,
                                   const float **output, int64_t *width);

#endif
