#ifndef WEFT_BASE_JSON_FOREIGN_H
#define WEFT_BASE_JSON_FOREIGN_H

#include "base/json.h"

/* A field that a file of another program may have. `only`: the supported values, a JSON list; NULL:
 * any, because the field is read or changes no result. */
typedef struct weft_json_field {
    const char *key, *only;
} weft_json_field;
/* Rejects fields of another program's file that weft does not implement, with the class `kind`. A
 * field in `known` (ends with a key of NULL) must be null or one of its `only`. Any other field
 * must be null, false or empty, or have a name that begins with '_'. Only fields that begin with
 * `prefix` are checked; `known` has their names without it. */
weft_status weft_json_check_foreign(const json_t *object, const char *where, const char *prefix,
                                    const weft_json_field *known, weft_message_class kind);
/* Rejects a field that weft does not implement. `class_name`: of the model; NULL: none. */
weft_status weft_json_refuse_foreign(const char *class_name, const char *key, const json_t *value,
                                     const char *where, weft_message_class kind);

#endif
