#include "serve/request_fields.h"

#include "base/memory.h"
#include "serve/shown_text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

weft_status_code weft_request_refuse(const char *key, const char *value, const char *fmt, ...)
{
    weft_buf text = {0};
    va_list args;
    va_start(args, fmt);
    weft_buf_vprintf(&text, fmt, args);
    va_end(args);
    const weft_status_code status =
        weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = key, .value = value), "%s",
                   text.data ? text.data : "");
    weft_buf_free(&text);
    return status;
}

weft_status weft_request_known(const json_t *fields, const char *const *names, int count)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)fields, key, value)
    {
        bool is = false;
        for (int i = 0; i < count; i++)
            is = is || !strcmp(key, names[i]);
        if (!is)
            return weft_request_refuse(key, NULL, "the field is unknown; remove it");
    }
    return WEFT_OK;
}

const char *weft_request_show(const json_t *value, char out[WEFT_REQUEST_SHOWN])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    weft_shown_text_copy(out, WEFT_REQUEST_SHOWN - 3, text ? text : "");
    if (text && strlen(out) < strlen(text))
        strcat(out, "...");
    free(text);
    return out;
}

/* NULL: absent. */
static const json_t *get(const json_t *fields, const char *key)
{
    const json_t *value = json_object_get(fields, key);
    return value && !json_is_null(value) ? value : NULL;
}

weft_status weft_request_text(const json_t *fields, const char *key, size_t limit, const char **out)
{
    const json_t *value = get(fields, key);
    char shown[WEFT_REQUEST_SHOWN];
    if (!value)
        return WEFT_OK;
    if (!json_is_string(value))
        return weft_request_refuse(key, NULL, "%s is not a string",
                                   weft_request_show(value, shown));
    if (json_string_length(value) > limit)
        return weft_request_refuse(key, NULL, "the value has %zu bytes, and the limit is %zu",
                                   json_string_length(value), limit);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return weft_request_refuse(key, NULL, "the value has a NUL character; remove it");
    *out = json_string_value(value);
    return WEFT_OK;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static bool is_decimal(const char *text)
{
    const char *at = text + (*text == '-');
    const size_t whole = strspn(at, DIGITS);
    size_t fraction = 0;
    at += whole;
    if (*at == '.') {
        fraction = strspn(at + 1, DIGITS);
        at += 1 + fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        const size_t exponent = strspn(at, DIGITS);
        if (exponent == 0)
            return false;
        at += exponent;
    }
    return *at == '\0';
}

static bool read_number(const json_t *value, double *x)
{
    const char *text = json_string_value(value);
    if (json_is_number(value))
        *x = json_number_value(value);
    else if (text && is_decimal(text))
        *x = strtod(text, NULL);
    else
        return false;
    return isfinite(*x);
}

/* A double does not represent every whole number from 2^53 on. */
static bool read_whole(const json_t *value, int64_t *out)
{
    const char *text = json_string_value(value);
    double x;
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (text && is_decimal(text) && !strpbrk(text, ".eE")) {
        errno = 0;
        *out = strtoll(text, NULL, 10);
        return errno == 0;
    }
    if (!read_number(value, &x) || x != floor(x) || fabs(x) >= 9007199254740992.)
        return false;
    *out = (int64_t)x;
    return true;
}

weft_status weft_request_number(const json_t *fields, const char *key, double min, double max,
                                double *out)
{
    const json_t *value = get(fields, key);
    char shown[WEFT_REQUEST_SHOWN];
    double x;
    if (!value)
        return WEFT_OK;
    if (!read_number(value, &x) || !(x >= min && x <= max))
        return weft_request_refuse(key, weft_request_show(value, shown),
                                   "%s is not a number from %.15g to %.15g", shown, min, max);
    *out = x;
    return WEFT_OK;
}

weft_status weft_request_whole(const json_t *fields, const char *key, int64_t min, int64_t max,
                               int64_t *out)
{
    const json_t *value = get(fields, key);
    char shown[WEFT_REQUEST_SHOWN];
    int64_t x;
    if (!value)
        return WEFT_OK;
    if (!read_whole(value, &x) || x < min || x > max)
        return weft_request_refuse(key, weft_request_show(value, shown),
                                   "%s is not a whole number from %" PRId64 " to %" PRId64, shown,
                                   min, max);
    *out = x;
    return WEFT_OK;
}

weft_status weft_request_either(const json_t *fields, const char *const names[2], int64_t min,
                                int64_t max, int64_t *out)
{
    int64_t x[2] = {INT64_MIN, INT64_MIN};
    for (int i = 0; i < 2; i++)
        WEFT_TRY(weft_request_whole(fields, names[i], min, max, &x[i]));
    if (x[0] != INT64_MIN && x[1] != INT64_MIN && x[0] != x[1])
        return weft_request_refuse(names[1], NULL,
                                   "%" PRId64 " and %s %" PRId64
                                   " set the same value; remove one of the two fields",
                                   x[1], names[0], x[0]);
    if (x[0] != INT64_MIN || x[1] != INT64_MIN)
        *out = x[0] != INT64_MIN ? x[0] : x[1];
    return WEFT_OK;
}
