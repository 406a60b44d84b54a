/* Reading and writing the arrays of public config.json files. */
#ifndef WEFT_MODEL_JSON_FIELDS_H
#define WEFT_MODEL_JSON_FIELDS_H

#include "base/json.h"

/* `count` integers at `key`; absent keeps what is in out[]. */
weft_status weft_model_read_i64s(const json_t *json, const char *key, const char *where, int count,
                                 int64_t *out);
/* An integer of at least `min`; absent or null gives `fallback`. */
weft_status weft_model_read_count(const json_t *json, const char *key, const char *where,
                                  int64_t fallback, int64_t min, int64_t *out);
/* The field must be absent, null, or equal to `only` (as JSON text), else WEFT_E_UNSUPPORTED. */
weft_status weft_model_require(const json_t *json, const char *key, const char *where,
                               const char *only);
json_t *weft_model_write_i64s(const int64_t *values, int64_t count);
json_t *weft_model_write_f64s(const double *values, int64_t count);

#endif
