/* Image embeddings from an OpenAI-compatible server.
 *
 *     POST URL/embeddings {"model", "encoding_format": "base64", "input": ["data:image/jpeg;..."]}
 *                         or, one image each, "messages": [{"role", "content": [image_url]}]
 *     reply {"data": [{"index": 0, "embedding": base64 of f32, or a list of numbers}]}
 *
 * The key is in no message. */
#ifndef WEFT_CURATE_EMBEDDINGS_EMBEDDING_CLIENT_H
#define WEFT_CURATE_EMBEDDINGS_EMBEDDING_CLIENT_H

#include "base/json.h"
#include "curate/embeddings/embeddings_config.h"

typedef struct weft_embedding_client weft_embedding_client;
weft_status weft_embedding_client_open(const weft_embeddings_config *config,
                                       weft_embedding_client **client);
void weft_embedding_client_close(weft_embedding_client *client); /* accepts NULL */

/* Images of one size, u8 [count, side, side, 3]. */
typedef struct weft_embedding_images {
    const uint8_t *rgb;
    int64_t count, side;
} weft_embedding_images;

/* Requests embeddings. *vectors [images->count, *width], owned by the caller. WEFT_E_IO: the server
 * fails, or its reply is not of this form. */
weft_status weft_embedding_client_send(weft_embedding_client *client,
                                       const weft_embedding_images *images, float **vectors,
                                       int64_t *width);
/* Whether the server answered 401, 403 or 404. */
bool weft_embedding_client_is_refused(const weft_embedding_client *client);
/* Reads the vectors of a reply. False: `why` is the reason. */
bool weft_embedding_reply_read(const json_t *reply, int64_t count, float **vectors, int64_t *width,
                               char why[120]);

#endif
