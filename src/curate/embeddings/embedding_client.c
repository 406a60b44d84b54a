#include "curate/embeddings/embedding_client.h"

#include "base/memory.h"
#include "draw/html.h"
#include "storage/http_api.h"
#include "video/lossy_image.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTH = 1 << 16 };

struct weft_embedding_client {
    const weft_embeddings_config *config;
    weft_http *http;
    char *url;       /* owned; of the requests */
    const char *key; /* of the environment; NULL: none */
    bool refused;
};

weft_status weft_embedding_client_open(const weft_embeddings_config *config,
                                       weft_embedding_client **client)
{
    weft_embedding_client *c;
    WEFT_TRY(WEFT_NEW(c, 1, "embeddings"));
    c->config = config;
    c->key = config->key_variable[0] ? getenv(config->key_variable) : NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_http_api_url(config->url, "embeddings", &c->url));
    WEFT_GO(weft_http_open(&c->http));
    *client = c;
out:
    if (status != WEFT_OK)
        weft_embedding_client_close(c);
    return status;
}

void weft_embedding_client_close(weft_embedding_client *c)
{
    if (!c)
        return;
    weft_http_close(c->http);
    weft_free(c->url);
    weft_free(c);
}

bool weft_embedding_client_is_refused(const weft_embedding_client *c)
{
    return c->refused;
}

/* ---- replies ------------------------------------------------------------------------------- */

/* Value of a base64 digit; -1: none. */
static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 of little-endian floats. The number of floats; -1: not such a text. */
static int64_t decode_floats(const char *text, float *to, int64_t most)
{
    size_t n = strlen(text);
    uint8_t *bytes = (uint8_t *)to;
    int64_t count = 0;
    uint32_t bits = 0;
    int have = 0;
    while (n && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const int digit = digit_of(text[i]);
        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have >= 8) {
            if (count == most * (int64_t)sizeof(float))
                return -1;
            have -= 8;
            bytes[count++] = (uint8_t)(bits >> have);
        }
    }
    return count % (int64_t)sizeof(float) ? -1 : count / (int64_t)sizeof(float);
}

/* Numbers of one embedding; -1: not one. */
static int64_t read_vector(const json_t *embedding, float *to)
{
    if (json_is_string(embedding))
        return decode_floats(json_string_value(embedding), to, MOST_WIDTH);
    const size_t n = json_array_size(embedding);
    if (n > MOST_WIDTH)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_number(json_array_get(embedding, i)))
            return -1;
        to[i] = (float)json_number_value(json_array_get(embedding, i));
    }
    return (int64_t)n;
}

static bool all_finite(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return false;
    return true;
}

bool weft_embedding_reply_read(const json_t *reply, int64_t count, float **vectors, int64_t *width,
                               char why[120])
{
    const json_t *data = json_object_get(reply, "data"), *item;
    float *row = weft_alloc(MOST_WIDTH * (int64_t)sizeof *row);
    bool *seen = weft_calloc(count, sizeof *seen);
    size_t i;
    *vectors = NULL;
    *width = 0;
    snprintf(why, 120, "the reply has %zu embeddings of %lld", json_array_size(data),
             (long long)count);
    bool valid = row && seen && json_array_size(data) == (size_t)count;
    json_array_foreach(data, i, item)
    {
        const json_t *index = json_object_get(item, "index");
        const int64_t at = json_is_integer(index) ? json_integer_value(index) : (int64_t)i,
                      n = valid ? read_vector(json_object_get(item, "embedding"), row) : -1;
        if (!valid)
            break;
        valid = at >= 0 && at < count && !seen[at] && n > 0 && (!*width || n == *width) &&
                all_finite(row, n);
        if (!valid)
            snprintf(why, 120, "embedding %zu of the reply is not a list of finite numbers", i);
        if (valid && !*vectors && !(*vectors = weft_calloc(count * n, sizeof **vectors)))
            valid = false;
        if (!valid)
            break;
        *width = n;
        seen[at] = true;
        memcpy(*vectors + at * n, row, (size_t)n * sizeof *row);
    }
    weft_free(row);
    weft_free(seen);
    if (!valid) {
        weft_free(*vectors);
        *vectors = NULL;
    }
    return valid;
}

/* ---- requests ------------------------------------------------------------------------------ */

static weft_status add_headers(const void *user, weft_http_headers *headers)
{
    const weft_embedding_client *c = user;
    return weft_http_api_headers(headers, c->key);
}

/* A data URL of an image; new reference. */
static weft_status data_url(const uint8_t *rgb, int64_t side, json_t **out)
{
    weft_buf jpeg = {0}, url = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_jpeg_encode(rgb, side, side, &jpeg));
    weft_buf_printf(&url, "data:image/jpeg;base64,");
    weft_base64(&url, jpeg.data, jpeg.len);
    WEFT_GO(weft_buf_check(&url));
    WEFT_GO(WEFT_ALLOCATED((*out = json_string(url.data)), "a request"));
out:
    weft_buf_free(&jpeg);
    weft_buf_free(&url);
    return status;
}

/* The body for images first .. first + count - 1; owned by the caller. */
static weft_status make_body(const weft_embedding_client *c, const weft_embedding_images *im,
                             int64_t first, int64_t count, char **body)
{
    const bool messages = c->config->request == WEFT_EMBEDDING_MESSAGES;
    json_t *list = json_array(), *request = NULL, *url;
    weft_status_code status = WEFT_OK;
    for (int64_t i = first; i < first + count; i++) {
        WEFT_GO(data_url(im->rgb + i * im->side * im->side * 3, im->side, &url));
        json_array_append_new(list, messages ? json_pack("{s:s,s:{s:o}}", "type", "image_url",
                                                         "image_url", "url", url)
                                             : url);
    }
    request = json_pack("{s:s,s:s}", "model", c->config->server_model, "encoding_format", "base64");
    if (messages)
        json_object_set_new(request, "messages",
                            json_pack("[{s:s,s:O}]", "role", "user", "content", list));
    else
        json_object_set(request, "input", list);
    *body = request ? weft_json_line(request) : NULL;
    status = WEFT_ALLOCATED(*body, "a request");
out:
    json_decref(list);
    json_decref(request);
    return status;
}

static weft_status read_reply(weft_embedding_client *c, const weft_http_reply *reply, int64_t count,
                              float **vectors, int64_t *width)
{
    char why[WEFT_HTTP_API_ERROR];
    json_t *json = NULL;
    if (reply->status != 200) {
        c->refused = reply->status == 401 || reply->status == 403 || reply->status == 404;
        weft_http_api_describe(reply, c->key, why);
        return weft_error(WEFT_MSG_MODEL_SERVER,
                          WEFT_AT(.file = c->url, WEFT_NUMBER(reply->status)), "the server %s: %s",
                          c->refused ? "refuses requests" : "fails", why);
    }
    bool valid = weft_json_parse(reply->body.data, reply->body.len, "reply", &json) == WEFT_OK;
    if (!valid)
        snprintf(why, sizeof why, "the reply is not JSON");
    else
        valid = weft_embedding_reply_read(json, count, vectors, width, why);
    json_decref(json);
    return valid ? WEFT_OK : weft_error(WEFT_MSG_MODEL_SERVER, WEFT_AT(.file = c->url), "%s", why);
}

static weft_status send_once(weft_embedding_client *c, const char *body, int64_t count,
                             float **vectors, int64_t *width)
{
    const weft_http_request request = {.method = "POST",
                                       .url = c->url,
                                       .location = c->url,
                                       .body = body,
                                       .body_bytes = (int64_t)strlen(body),
                                       .attempts = c->config->attempts,
                                       .seconds = (int64_t)ceil(c->config->timeout_seconds),
                                       .prepare = add_headers,
                                       .user = c};
    weft_http_reply reply;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_http_send(c->http, &request, &reply));
    WEFT_GO(read_reply(c, &reply, count, vectors, width));
out:
    weft_http_reply_free(&reply);
    return status;
}

weft_status weft_embedding_client_send(weft_embedding_client *c, const weft_embedding_images *im,
                                       float **vectors, int64_t *width)
{
    const int64_t each = c->config->request == WEFT_EMBEDDING_MESSAGES ? 1 : im->count;
    float *all = NULL, *some = NULL;
    weft_status_code status = WEFT_OK;
    *width = 0;
    for (int64_t first = 0; first < im->count; first += each) {
        char *body = NULL;
        int64_t n = 0;
        WEFT_GO(make_body(c, im, first, each, &body));
        status = send_once(c, body, each, &some, &n);
        weft_free(body);
        WEFT_GO(status);
        if (!all)
            WEFT_GO(WEFT_NEW(all, im->count * n, "embeddings"));
        if (*width && n != *width)
            WEFT_GO(weft_error(WEFT_MSG_MODEL_SERVER, WEFT_AT(.file = c->url, WEFT_NUMBER(n)),
                               "embeddings of one shot have different lengths"));
        *width = n;
        memcpy(all + first * n, some, (size_t)(each * n) * sizeof *all);
        weft_free(some);
        some = NULL;
    }
    *vectors = all;
    return WEFT_OK;
out:
    weft_free(all);
    weft_free(some);
    return status;
}
