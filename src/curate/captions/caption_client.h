/* Captions from an OpenAI-compatible server. Many threads use one client
 * and share its budget, the pauses that the server requests, and its refusals.
 *
 *     clip ── windows ── frames ── JPEG ──> POST URL/chat/completions ──> text ── parse ──> caption
 *                                                  ▲                                 │ not valid
 *                                                  └── the same with the reason, once ┘
 *
 * The key is in no message and no record. */
#ifndef WEFT_CURATE_CAPTIONS_CAPTION_CLIENT_H
#define WEFT_CURATE_CAPTIONS_CAPTION_CLIENT_H

#include "base/json.h"
#include "curate/captions/captions_config.h"

enum { WEFT_CAPTION_MOST_FAILURES = 8 };

typedef struct weft_caption_clip {
    const char *path, *id;
    int64_t frames;
    double seconds;
} weft_caption_clip;

/* Counts of a run. */
typedef struct weft_caption_counts {
    int64_t requests, repeated, tokens; /* tokens as reported by the server */
} weft_caption_counts;

typedef struct weft_caption_client weft_caption_client;

/* Checks the config. WEFT_E_CONFIG: no model, a URL with a password, a key that is not set. */
weft_status weft_captions_check(const weft_captions_config *config);
/* A hash of the keys that captions depend on. */
void weft_captions_define(const weft_captions_config *config, char definition[24]);

weft_status weft_caption_client_open(const weft_captions_config *config,
                                     weft_caption_client **client);
void weft_caption_client_close(weft_caption_client *client); /* accepts NULL */
/* Captions a clip. *record (new reference) has "caption" and "windows", each with its frames, the
 * "raw" replies and the caption; or "failed", the reason. WEFT_E_IO (model-server): the server
 * refuses all requests. WEFT_E_CANCELLED, WEFT_E_MEMORY. */
weft_status weft_caption_client_clip(weft_caption_client *client, const weft_caption_clip *clip,
                                     json_t **record);
weft_caption_counts weft_caption_client_counts(weft_caption_client *client);

#endif
