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

weft_status weft_json_refuse_foreign(const char *class_name, const char *key, const json_t *value,
                                     const char *where, weft_message_class kind)
{
    char *text = weft_json_line(value);
    const weft_status_code status =
        weft_error(kind, WEFT_AT(.file = where, .key = key, .value = text),
                   "weft does not implement this field%s%s (its value: %.80s). Remove the field if "
                   "the model does not depend on it; otherwise weft cannot run this model.",
                   class_name ? " of " : "", class_name ? class_name : "", text ? text : "?");
    weft_free(text);
    return status;
}

/* Rejects a value that is not in the list of the field. */
static weft_status check_value(const weft_json_field *f, const json_t *value, const char *where,
                               weft_message_class kind)
{
    if (!f->only)
        return WEFT_OK;
    char *text = weft_json_line(value);
    json_t *only = json_loads(f->only, 0, NULL);
    const weft_status_code status =
        !text || !only ? weft_no_memory("%s", where)
        : is_one_of(value, only)
            ? WEFT_OK
            : weft_error(kind, WEFT_AT(.file = where, .key = f->key, .value = text),
                         "%.80s is not supported; supported are %s", text, f->only);
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
        WEFT_TRY(f->key ? check_value(f, value, where, kind)
                        : weft_json_refuse_foreign(NULL, own, value, where, kind));
    }
    return WEFT_OK;
}
