/* Fields of a request: values of JSON, or text of a form, in which numbers are text, too. A field
 * that is absent or null leaves the output unchanged. Every error (WEFT_E_ARG) names the field, the
 * value and the legal values. */
#ifndef WEFT_SERVE_REQUEST_FIELDS_H
#define WEFT_SERVE_REQUEST_FIELDS_H

#include "base/json.h"

/* The error about a field. `value`: for its fields; NULL: none. */
weft_status_code weft_request_refuse(const char *key, const char *value, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses a field that is not among names[count]. */
weft_status weft_request_known(const json_t *fields, const char *const *names, int count);
/* A value in JSON, shortened to WEFT_REQUEST_SHOWN bytes. Returns `out`. */
enum { WEFT_REQUEST_SHOWN = 96 };
const char *weft_request_show(const json_t *value, char out[WEFT_REQUEST_SHOWN]);
/* Text of at most `limit` bytes without NUL; borrowed. */
weft_status weft_request_text(const json_t *fields, const char *key, size_t limit,
                              const char **out);
/* Numbers are decimal: no other base, no spaces, no infinity. */
weft_status weft_request_number(const json_t *fields, const char *key, double min, double max,
                                double *out);
/* Exact for every int64_t. */
weft_status weft_request_whole(const json_t *fields, const char *key, int64_t min, int64_t max,
                               int64_t *out);
/* A whole number that has two names. Different values are an error. */
weft_status weft_request_either(const json_t *fields, const char *const names[2], int64_t min,
                                int64_t max, int64_t *out);

#endif
