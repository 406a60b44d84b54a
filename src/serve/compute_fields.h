/* The fields of a request that choose the types of numbers in which a video is computed: options of
 * `weft generate`, with few legal values. */
#ifndef WEFT_SERVE_COMPUTE_FIELDS_H
#define WEFT_SERVE_COMPUTE_FIELDS_H

#include "base/json.h"
#include "base/status.h"

typedef enum weft_compute_field {
    WEFT_COMPUTE_PRECISION,
    WEFT_COMPUTE_VAE_PRECISION,
    WEFT_COMPUTE_WEIGHTS,
    WEFT_COMPUTE_FIELDS
} weft_compute_field;

typedef struct weft_compute_kind {
    const char *field, *option;
    const char *const *values; /* NULL-terminated; the first one is the default of weft */
} weft_compute_kind;
extern const weft_compute_kind weft_compute_kinds[WEFT_COMPUTE_FIELDS];

/* A value for each field; of the table, or of the request that was read. */
typedef struct weft_compute {
    const char *value[WEFT_COMPUTE_FIELDS];
} weft_compute;

/* The defaults of the server, from its options with the same names. NULL: the default of weft.
 * WEFT_E_ARG: the error's key is the option. */
weft_status weft_compute_defaults(const char *const given[WEFT_COMPUTE_FIELDS],
                                  weft_compute *compute);
/* Sets the values that `fields` has. WEFT_E_ARG: the error's key is the field. */
weft_status weft_compute_read(const json_t *fields, weft_compute *compute);
/* The values of a stored request, which has the ones that are not the defaults of weft. */
weft_compute weft_compute_of(const json_t *request);
/* Adds the values that are not the defaults of weft. */
void weft_compute_store(const weft_compute *compute, json_t *request);
/* Legal values and `defaults` for /capabilities, by field. NULL: out of memory. */
json_t *weft_compute_json(const weft_compute *defaults);

#endif
