#include "storage/http_api.h"

#include "base/json.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

weft_status weft_http_api_check_url(const char *url, const char *url_key, const char *key_key)
{
    const char *host = strstr(url, "://");
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return weft_error(WEFT_MSG_CONFIG_VALUE, /* a password may precede the @ */
                          WEFT_AT(.key = url_key, .value = strchr(url, '@') ? NULL : url),
                          "the URL does not begin with http:// or https://");
    host += 3;
    if (memchr(host, '@', strcspn(host, "/?")) || strpbrk(host, "?#"))
        return weft_error(WEFT_MSG_CONFIG_VALUE, WEFT_AT(.key = url_key),
                          "the URL contains a user, a query or a fragment. Keys belong into the "
                          "environment variable that %s names.",
                          key_key);
    return WEFT_OK;
}

weft_status weft_http_api_url(const char *base, const char *path, char **url)
{
    weft_buf text = {0};
    size_t n = strlen(base);
    while (n && base[n - 1] == '/')
        n--;
    weft_buf_printf(&text, "%.*s/%s", (int)n, base, path);
    *url = text.data;
    return weft_buf_check(&text);
}

weft_status weft_http_api_headers(weft_http_headers *headers, const char *key)
{
    weft_buf value = {0};
    WEFT_TRY(weft_http_headers_add(headers, "Content-Type", "application/json"));
    if (!key || !key[0])
        return WEFT_OK;
    weft_buf_printf(&value, "Bearer %s", key);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&value));
    WEFT_GO(weft_http_headers_add(headers, "Authorization", value.data));
out:
    weft_buf_free(&value);
    return status;
}

void weft_http_api_hide_key(const char *key, char *text)
{
    for (char *at = text; key && key[0] && at && (at = strstr(at, key));)
        memset(at, '*', strlen(key));
}

void weft_http_api_describe(const weft_http_reply *reply, const char *key,
                            char to[WEFT_HTTP_API_ERROR])
{
    json_t *json = NULL;
    const char *text = NULL;
    if (weft_json_parse(reply->body.data, reply->body.len, "reply", &json) == WEFT_OK) {
        const json_t *error = json_object_get(json, "error");
        text = json_string_value(json_object_get(error, "message"));
        text = text ? text : json_string_value(error);
        text = text ? text : json_string_value(json_object_get(json, "detail"));
        text = text ? text : json_string_value(json_object_get(json, "message"));
    }
    weft_buf whole = {0};
    weft_buf_printf(&whole, "status %d%s%s", reply->status, text ? ": " : "", text ? text : "");
    weft_http_api_hide_key(key, whole.data);
    snprintf(to, WEFT_HTTP_API_ERROR, "%.280s", whole.data ? whole.data : "");
    weft_buf_free(&whole);
    json_decref(json);
}
