/* Embeddings of the shots of one video, in a safetensors file next to its record:
 *
 *     embeddings   f32 [shots, width]; a row of NaN: the attempt failed
 *     spans        i64 [shots, 2]; first and last frame
 *     metadata     definition, source_bytes, source_mtime_ns, failed (the first reason) */
#ifndef WEFT_CURATE_EMBEDDINGS_EMBEDDING_FILE_H
#define WEFT_CURATE_EMBEDDINGS_EMBEDDING_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_embeddings {
    int64_t width; /* 0: not known yet */
    int64_t count, capacity;
    int64_t (*span)[2]; /* owned, and so the vectors */
    float *vector;      /* [count, width] */
    char failed[300];   /* reason of the first failure; "": none */
} weft_embeddings;

/* Identity of a file of embeddings: of another one nothing is read. */
typedef struct weft_embeddings_of {
    const char *definition;
    int64_t bytes, mtime_ns; /* of the video */
} weft_embeddings_of;

/* Adds or replaces the embedding of a span. `vector` NULL: a failed attempt. */
weft_status weft_embeddings_add(weft_embeddings *e, const int64_t span[2], const float *vector,
                                int64_t width);
/* NULL: none, or failed. */
const float *weft_embeddings_find(const weft_embeddings *e, int64_t start, int64_t end);
/* Whether the span has an embedding or a failed attempt. */
bool weft_embeddings_tried(const weft_embeddings *e, int64_t start, int64_t end);
/* Reads the file if it exists and is of `of`; otherwise `e` is empty. `failures`: without failed
 * attempts. WEFT_E_MEMORY. */
weft_status weft_embeddings_read(const char *path, const weft_embeddings_of *of, bool failures,
                                 weft_embeddings *e);
weft_status weft_embeddings_write(const char *folder, const char *stem,
                                  const weft_embeddings_of *of, const weft_embeddings *e);
void weft_embeddings_free(weft_embeddings *e);

#endif
