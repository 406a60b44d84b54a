/* Thin helpers over jansson: errors carry file, line and key. */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The caller owns *json (json_decref). Duplicate keys are errors. */
weft_status weft_json_load(const char *path, json_t **json);
weft_status weft_json_parse(const char *text, int64_t bytes, const char *name, json_t **json);
/* Parses text that begins in line `line` of `name`. */
weft_status weft_json_parse_at(const char *text, int64_t bytes, const char *name, int64_t line,
                               json_t **json);
/* A file of one JSON value a line, in order; empty lines are passed over, and the last one need not
 * end. `each` borrows its value. Errors name the line; a status of `each` that is not OK ends
 * it. */
weft_status weft_json_lines(const char *path, weft_status_code (*each)(void *user, json_t *value),
                            void *user);
/* Reads a log that a run appends to. A last line without its end is ignored: it is being written,
 * or a kill or a full disk truncated it. */
weft_status weft_json_log_lines(const char *path,
                                weft_status_code (*each)(void *user, json_t *value), void *user);
/* Atomic; indent 1, keys in insertion order, newline at the end. */
weft_status weft_json_save(const char *path, const json_t *json);
/* One line, heap, free with weft_free; NULL: out of memory. */
char *weft_json_line(const json_t *json);
/* Writes a line for each of `items`. `line`: the value of item i, NULL: out of memory. */
weft_status weft_json_save_lines(const char *path, json_t *(*line)(const void *items, int64_t i),
                                 const void *items, int64_t count);

/* WEFT_E_FORMAT names the first member that is not among `known`, and the nearest one that is. */
weft_status weft_json_only(const json_t *object, const char *where, const char *const *known,
                           int count);

/* A number, or null for NaN and infinity, which JSON does not have. New reference. */
json_t *weft_json_finite(double value);

/* Typed members of `object`; `where` (a file, or a path inside a file) begins the message. A
 * missing member is an error in the plain forms; the _or forms return the fallback for a missing
 * member or null. Integers accept a real with an integral value. */
weft_status weft_json_get_i64(const json_t *object, const char *key, const char *where,
                              int64_t *out);
weft_status weft_json_get_f64(const json_t *object, const char *key, const char *where,
                              double *out);
weft_status weft_json_get_bool(const json_t *object, const char *key, const char *where, bool *out);
/* Borrowed from the object. */
weft_status weft_json_get_string(const json_t *object, const char *key, const char *where,
                                 const char **out);
weft_status weft_json_get_i64_or(const json_t *object, const char *key, const char *where,
                                 int64_t fallback, int64_t *out);
weft_status weft_json_get_f64_or(const json_t *object, const char *key, const char *where,
                                 double fallback, double *out);
weft_status weft_json_get_string_or(const json_t *object, const char *key, const char *where,
                                    const char *fallback, const char **out);

#endif
