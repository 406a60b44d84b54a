/* The config section `captions` of a curation. */
#ifndef WEFT_CURATE_CAPTIONS_CAPTIONS_CONFIG_H
#define WEFT_CURATE_CAPTIONS_CAPTIONS_CONFIG_H

#include "base/config.h"

typedef enum weft_caption_format { WEFT_CAPTION_STRUCTURED, WEFT_CAPTION_TEXT } weft_caption_format;
typedef enum weft_caption_request { WEFT_CAPTION_IMAGES, WEFT_CAPTION_VIDEO } weft_caption_request;

typedef struct weft_captions_config {
    const char *url, *model, *prompt;
    int format;              /* weft_caption_format */
    int request;             /* weft_caption_request */
    weft_string_list append; /* texts with values in braces (caption_append.h) */
    int64_t frames, side;
    double window_seconds;
    const char *key_variable;
    int64_t max_tokens;
    double temperature;
    bool json_schema, strip_openings;
    int64_t concurrency, attempts, budget_requests, budget_tokens;
    double timeout_seconds;
} weft_captions_config;

extern const weft_section weft_captions_section;

#endif
