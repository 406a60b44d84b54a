#include "model/json_fields.h"

#include "base/memory.h"

#include <string.h>

weft_status weft_model_read_i64s(const json_t *json, const char *key, const char *where, int count,
                                 int64_t *out)
{
    const json_t *array = json_object_get(json, key);
    if (!array || json_is_null(array))
        return WEFT_OK;
    if (!json_is_array(array) || json_array_size(array) != (size_t)count)
        return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" must be a list of %d integers", where, key,
                         count);
    for (int i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, (size_t)i);
        if (!json_is_integer(item))
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\"[%d] is not an integer", where, key, i);
        out[i] = json_integer_value(item);
    }
    return WEFT_OK;
}

weft_status weft_model_read_count(const json_t *json, const char *key, const char *where,
                                  int64_t fallback, int64_t min, int64_t *out)
{
    int64_t value;
    WEFT_TRY(weft_json_get_i64_or(json, key, where, fallback, &value));
    if (value < min || value > INT32_MAX)
        return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" is %lld; it must lie in %lld..%d", where, key,
                         (long long)value, (long long)min, INT32_MAX);
    *out = value;
    return WEFT_OK;
}

weft_status weft_model_require(const json_t *json, const char *key, const char *where,
                               const char *only)
{
    const json_t *value = json_object_get(json, key);
    if (!value || json_is_null(value))
        return WEFT_OK;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", where);
    const bool same = !strcmp(text, only);
    const weft_status_code status =
        same ? WEFT_OK
             : weft_fail(WEFT_E_UNSUPPORTED, "%s: \"%s\": %s is not supported; only %s is", where,
                         key, text, only);
    free(text);
    return status;
}

json_t *weft_model_write_i64s(const int64_t *values, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(values[i]));
    return array;
}

json_t *weft_model_write_f64s(const double *values, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}
