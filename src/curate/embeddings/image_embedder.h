/* Embeddings of images: CLIP on weft's engine, an ONNX file, or a server (embedding_client.h).
 *
 *     frames ── shorter side, centre ──> model ──> unit vectors ── mean ──> embedding of the shot
 *
 * The mean is not scaled to length 1: a linear score of the mean is the mean of the scores. */
#ifndef WEFT_CURATE_EMBEDDINGS_IMAGE_EMBEDDER_H
#define WEFT_CURATE_EMBEDDINGS_IMAGE_EMBEDDER_H

#include "curate/embeddings/embeddings_config.h"
#include "curate/operators/shot_frames.h"

typedef struct weft_image_embedder weft_image_embedder;

/* Opens the model of the config, which is borrowed. The model runs on `threads` threads. */
weft_status weft_image_embedder_open(const weft_embeddings_config *config, int threads,
                                     weft_image_embedder **embedder);
void weft_image_embedder_close(weft_image_embedder *embedder); /* accepts NULL */
/* Threads of the model from the next shot. */
void weft_image_embedder_set_threads(weft_image_embedder *embedder, int threads);
/* Pixels of the shorter side of the frames that it needs. */
int64_t weft_image_embedder_side(const weft_image_embedder *embedder);
/* The embedding of the frames of a shot, *vector with *width numbers, is valid until the next
 * call. WEFT_E_IO, WEFT_E_FORMAT: no embedding of this shot; the text is the reason. */
weft_status weft_image_embedder_shot(weft_image_embedder *embedder, const weft_shot_frames *frames,
                                     const float **vector, int64_t *width);
/* Whether the server refused a request in a way that no repetition changes. */
bool weft_image_embedder_is_refused(const weft_image_embedder *embedder);

#endif
