#include "base/json.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

enum { JSON_LIMIT = 1 << 30 };

weft_status weft_json_parse(const char *text, int64_t bytes, const char *name, json_t **json)
{
    return weft_json_parse_at(text, bytes, name, 1, json);
}

weft_status weft_json_parse_at(const char *text, int64_t bytes, const char *name, int64_t line,
                               json_t **json)
{
    json_error_t error;
    json_t *parsed = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (!parsed)
        return weft_error(WEFT_MSG_JSON_SYNTAX,
                          WEFT_AT(.file = name, .line = line + error.line - 1),
                          "not valid JSON at column %d: %s", error.column, error.text);
    *json = parsed;
    return WEFT_OK;
}

weft_status weft_json_load(const char *path, json_t **json)
{
    char *text;
    int64_t bytes;
    WEFT_TRY(weft_file_read(path, JSON_LIMIT, &text, &bytes));
    const weft_status_code status = weft_json_parse(text, bytes, path, json);
    weft_free(text);
    return status;
}

static weft_status read_line(const char *text, int64_t bytes, const char *path, int64_t number,
                             weft_status_code (*each)(void *user, json_t *value), void *user)
{
    json_t *value;
    WEFT_TRY(weft_json_parse_at(text, bytes, path, number, &value));
    const weft_status_code status = each(user, value);
    json_decref(value);
    return status;
}

static weft_status read_lines(const char *path, bool ended,
                              weft_status_code (*each)(void *user, json_t *value), void *user)
{
    char *text;
    int64_t bytes, number = 1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_file_read(path, INT64_MAX - 1, &text, &bytes));
    for (const char *at = text, *end = text + bytes; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const int64_t length = (stop ? stop : end) - at;
        if ((stop || !ended) && strspn(at, " \t\r") < (size_t)length)
            WEFT_GO(read_line(at, length, path, number, each, user));
        at += length + 1;
    }
out:
    weft_free(text);
    return status;
}

weft_status weft_json_lines(const char *path, weft_status_code (*each)(void *user, json_t *value),
                            void *user)
{
    return read_lines(path, false, each, user);
}

weft_status weft_json_log_lines(const char *path,
                                weft_status_code (*each)(void *user, json_t *value), void *user)
{
    return read_lines(path, true, each, user);
}

weft_status weft_json_save(const char *path, const json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(1));
    if (!text)
        return weft_error(WEFT_MSG_OUT_OF_MEMORY, WEFT_AT(.file = path),
                          "out of memory, or a number that JSON cannot express");
    const size_t len = strlen(text);
    text[len] = '\n'; /* over the NUL: the length is passed on */
    const weft_status_code status = weft_file_write_atomic(path, text, (int64_t)len + 1);
    free(text);
    return status;
}

char *weft_json_line(const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    char *copy = text ? weft_strdup(text) : NULL;
    free(text);
    return copy;
}

weft_status weft_json_save_lines(const char *path, json_t *(*line)(const void *items, int64_t i),
                                 const void *items, int64_t count)
{
    weft_buf text = {0};
    for (int64_t i = 0; i < count; i++) {
        json_t *json = line(items, i);
        char *one = json ? json_dumps(json, JSON_COMPACT) : NULL;
        json_decref(json);
        text.failed = text.failed || !one;
        weft_buf_printf(&text, "%s\n", one ? one : "");
        free(one);
    }
    return weft_file_write_buf(path, &text);
}

weft_status weft_json_only(const json_t *object, const char *where, const char *const *known,
                           int count)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool is_known = false;
        for (int i = 0; i < count; i++)
            is_known |= strcmp(key, known[i]) == 0;
        if (is_known)
            continue;
        const char *near = weft_nearest_name(key, known, count);
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = key),
                          "unknown key%s%s%s", near ? "; did you mean \"" : "", near ? near : "",
                          near ? "\"?" : "");
    }
    return WEFT_OK;
}

/* The member, or NULL when missing or null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static weft_status wrong(const char *where, const char *key, const char *wanted,
                         const json_t *value)
{
    if (!value)
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = key),
                          "this key is missing; expected %s", wanted);
    char *text = weft_json_line(value);
    const weft_status_code code =
        weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = key, .value = text),
                   "%.80s is not %s", text ? text : "this value", wanted);
    weft_free(text);
    return code;
}

weft_status weft_json_get_i64(const json_t *object, const char *key, const char *where,
                              int64_t *out)
{
    const json_t *value = member(object, key);
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return WEFT_OK;
    }
    const double real = json_is_real(value) ? json_real_value(value) : 0.5;
    if (real == floor(real) && fabs(real) < 9e15) {
        *out = (int64_t)real;
        return WEFT_OK;
    }
    return wrong(where, key, "an integer", value);
}

weft_status weft_json_get_f64(const json_t *object, const char *key, const char *where, double *out)
{
    const json_t *value = member(object, key);
    if (!json_is_number(value))
        return wrong(where, key, "a number", value);
    *out = json_number_value(value);
    return WEFT_OK;
}

weft_status weft_json_get_bool(const json_t *object, const char *key, const char *where, bool *out)
{
    const json_t *value = member(object, key);
    if (!json_is_boolean(value))
        return wrong(where, key, "true or false", value);
    *out = json_is_true(value);
    return WEFT_OK;
}

weft_status weft_json_get_string(const json_t *object, const char *key, const char *where,
                                 const char **out)
{
    const json_t *value = member(object, key);
    if (!json_is_string(value))
        return wrong(where, key, "a string", value);
    *out = json_string_value(value);
    return WEFT_OK;
}

weft_status weft_json_get_i64_or(const json_t *object, const char *key, const char *where,
                                 int64_t fallback, int64_t *out)
{
    if (member(object, key))
        return weft_json_get_i64(object, key, where, out);
    *out = fallback;
    return WEFT_OK;
}

weft_status weft_json_get_f64_or(const json_t *object, const char *key, const char *where,
                                 double fallback, double *out)
{
    if (member(object, key))
        return weft_json_get_f64(object, key, where, out);
    *out = fallback;
    return WEFT_OK;
}

weft_status weft_json_get_string_or(const json_t *object, const char *key, const char *where,
                                    const char *fallback, const char **out)
{
    if (member(object, key))
        return weft_json_get_string(object, key, where, out);
    *out = fallback;
    return WEFT_OK;
}

json_t *weft_json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
