#include "base/json_foreign.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* Returns true for null, false and what is empty: a setting that its program does not use. */
static bool is_off(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v)) ||
           (json_is_string(v) && !json_string_length(v));
}

/* Numbers are compared with the precision of a file's 9 digits. */
static bool is_one_of(const json_t *v, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const double a = json_number_value(v), b = json_number_value(one);
        if (json_is_number(v) && json_is_number(one) ? fabs(a - b) <= 1e-9 * fabs(b)
                                                     : json_equal(v, one))
            return true;
    }
    return false;
}

static weft_status check_foreign(const char *key, const json_t *value, const char *where,
                                 const weft_json_field *f, weft_message_class kind)
{
    char *text = weft_json_line(value);
    json_t *only = f->key && f->only ? json_loads(f->only, 0, NULL) : NULL;
    weft_status_code status = WEFT_OK;
    if (!text || (f->key && f->only && !only))
        status = weft_no_memory("%s", where);
    else if (f->key && only && !is_one_of(value, only))
        status = weft_error(kind, WEFT_AT(.file = where, .key = key, .value = text),
                            "%.80s is not supported; supported are %s", text, f->only);
    else if (!f->key)
        status = weft_error(kind, WEFT_AT(.file = where, .key = key, .value = text),
                            "weft does not implement this field (its value: %.80s). Remove the "
                            "field if the model does not depend on it; otherwise weft cannot run "
                            "this model.",
                            text);
    json_decref(only);
    weft_free(text);
    return status;
}

weft_status weft_json_check_foreign(const json_t *object, const char *where, const char *prefix,
                                    const weft_json_field *known, weft_message_class kind)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (strncmp(key, prefix, strlen(prefix)) != 0)
            continue;
        const char *own = key + strlen(prefix);
        const weft_json_field *f = known;
        while (f->key && strcmp(f->key, own) != 0)
            f++;
        if (json_is_null(value) || (!f->key && (is_off(value) || own[0] == '_')))
            continue;
        WEFT_TRY(check_foreign(own, value, where, f, kind));
    }
    return WEFT_OK;
}
