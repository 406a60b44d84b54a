/* Weights in the memory of the worker, from its reports. */
#ifndef WEFT_SERVE_LOADED_WEIGHTS_H
#define WEFT_SERVE_LOADED_WEIGHTS_H

#include "base/json.h"
#include "base/memory.h"

/* Zero-initialised: none, and no worker has loaded any. */
typedef struct weft_loaded_weights {
    json_t *state;          /* of the worker, as of weft_resident_json; NULL: none */
    int64_t loads, unloads; /* of earlier workers */
} weft_loaded_weights;

/* Takes the state that the worker reports. */
void weft_loaded_weights_set(weft_loaded_weights *weights, json_t *state);
/* The worker and its weights have ended. */
void weft_loaded_weights_clear(weft_loaded_weights *weights);
/* [{"model", "part", "adapters", "bytes"}]; never NULL unless memory lacks. */
json_t *weft_loaded_weights_json(const weft_loaded_weights *weights);
int64_t weft_loaded_weights_bytes(const weft_loaded_weights *weights);
/* How often weights were loaded, and unloaded, since the start of the server. */
int64_t weft_loaded_weights_loads(const weft_loaded_weights *weights);
int64_t weft_loaded_weights_unloads(const weft_loaded_weights *weights);

#endif
