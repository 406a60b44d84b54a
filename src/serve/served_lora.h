/* LoRA adapters that the server offers: `--lora NAME=FILE`, chosen by a request as
 * "NAME[:WEIGHT],NAME...". */
#ifndef WEFT_SERVE_SERVED_LORA_H
#define WEFT_SERVE_SERVED_LORA_H

#include "base/json.h"
#include "base/memory.h"
#include "model/adapter_settings.h"

enum { WEFT_LORA_NAME = 64, WEFT_LORAS = 8 }; /* bytes of a name, adapters of a request */

typedef struct weft_served_lora {
    char name[WEFT_LORA_NAME + 1];
    char *path;                     /* absolute; owned */
    weft_adapter_settings settings; /* of a distilled adapter */
} weft_served_lora;
typedef struct weft_served_loras {
    weft_served_lora *at; /* [count] */
    int count;
} weft_served_loras;

/* Reads the options of `weft serve`. */
weft_status weft_served_loras_open(const char *const *specs, int count, weft_served_loras *loras);
void weft_served_loras_close(weft_served_loras *loras);
/* The names for /v1/loras, with the settings of distilled adapters. NULL: out of memory. */
json_t *weft_served_loras_json(const weft_served_loras *loras);
/* Sets `lora` of a request to the canonical form of the field `lora`, or of the job to vary. Sets
 * steps and guidance_scale as the first distilled adapter needs, unless the fields have them. They
 * are the `usual` ones if only the job to vary had such an adapter, and the job's with the same
 * one.
 * `base`: the request of that job; NULL: none. WEFT_E_ARG: an adapter is unknown or repeated. */
weft_status weft_served_loras_read(const weft_served_loras *loras, const json_t *fields,
                                   const json_t *base, const weft_adapter_settings *usual,
                                   json_t *request);
/* Values of --lora for the canonical form `text`: FILE:WEIGHT (weft_free). *count: their number.
 * WEFT_E_NOT_FOUND: an adapter is not served any more. */
weft_status weft_served_loras_options(const weft_served_loras *loras, const char *text,
                                      char *options[WEFT_LORAS], int *count);

#endif
