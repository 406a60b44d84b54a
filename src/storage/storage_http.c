/* A folder of a web server as a storage that is only read. Names are paths below its URL. A server
 * has no list of files; index.json of `weft shard` is the list. */
#include "storage/storage_http.h"

#include "base/compare.h"
#include "base/config.h"
#include "base/json.h"
#include "storage/http.h"
#include "storage/remote_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct site {
    weft_http *http;
    char *root; /* owned; without '/' at its end */
    int64_t attempts;
    weft_remote_table table;
} site;

/* ---- open ---------------------------------------------------------------------------------- */

static void site_close(void *self)
{
    site *s = self;
    weft_http_close(s->http);
    weft_remote_table_free(&s->table);
    weft_free(s->root);
    weft_free(s);
}

static weft_status check_root(const char *root)
{
    const char *host = strstr(root, "://") + 3;
    const size_t authority = strcspn(host, "/");
    if (authority == 0 || strpbrk(root, "?#") || memchr(host, '@', authority))
        return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.key = "URL"),
                          "the URL has no host, or has a user, a query or a fragment, which are "
                          "not used. Write https://HOST/PATH.");
    return WEFT_OK;
}

static weft_status read_attempts(int64_t *attempts)
{
    const char *text = getenv("AWS_MAX_ATTEMPTS");
    *attempts = 8;
    if (text && *text && (!weft_parse_i64(text, attempts) || *attempts < 1))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS,
                          WEFT_AT(.key = "AWS_MAX_ATTEMPTS", .value = text),
                          "\"%s\" is not a number of attempts; use 1 or more", text);
    return WEFT_OK;
}

static weft_status site_open(const char *root, void **self)
{
    WEFT_TRY(check_root(root));
    site *s;
    WEFT_TRY(WEFT_NEW(s, 1, "%s", root));
    weft_remote_table_init(&s->table);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(s->root = weft_strdup(root), "%s", root));
    for (size_t n = strlen(s->root); n && s->root[n - 1] == '/'; n--)
        s->root[n - 1] = 0;
    WEFT_GO(read_attempts(&s->attempts));
    WEFT_GO(weft_http_open(&s->http));
    *self = s;
    return WEFT_OK;
out:
    site_close(s);
    return status;
}

static const char *site_origin(void *self)
{
    return ((site *)self)->root;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* The range and version of a request, and the receiver of its body: memory or a sink. */
typedef struct wanted {
    weft_http_range *range; /* NULL: the whole file, which reply->body receives */
    const char *etag;       /* NULL: none that a server compares */
    void *data;
    const weft_byte_sink *sink;
} wanted;

static weft_status add_headers(const void *user, weft_http_headers *headers)
{
    const wanted *w = user;
    char range[WEFT_HTTP_RANGE_TEXT];
    if (w->range) {
        weft_http_range_print(w->range, range);
        WEFT_TRY(weft_http_headers_add(headers, "Range", range));
    }
    return w->etag ? weft_http_headers_add(headers, "If-Match", w->etag) : WEFT_OK;
}

static weft_status fail(const char *url, const char *method, const weft_http_reply *reply)
{
    char number[16];
    const int status = reply->status;
    const weft_message_class kind = status == 404 || status == 410   ? WEFT_MSG_FILE_NOT_FOUND
                                    : status == 412                  ? WEFT_MSG_FILE_CHANGED
                                    : status == 401 || status == 403 ? WEFT_MSG_STORAGE_DENIED
                                                                     : WEFT_MSG_STORAGE_REQUEST;
    const char *remedy = kind == WEFT_MSG_FILE_CHANGED
                             ? "The file was rewritten while it was in use; run the command again"
                         : kind == WEFT_MSG_STORAGE_DENIED
                             ? "weft sends no passwords to web servers; permit to read the file, "
                               "or copy it"
                             : "Check the address";
    snprintf(number, sizeof number, "%d", status);
    return weft_error(
        kind,
        WEFT_AT(.file = url, .value = number,
                WEFT_DETAILS(WEFT_WORD("method", method), WEFT_DETAIL("status", status))),
        "%s: status %d. %s.", method, status, remedy);
}

/* Sends a request for `name`. A status of 2xx is a success. */
static weft_status send_request(site *s, const char *method, const char *name, const wanted *w,
                                weft_http_reply *reply)
{
    weft_buf url = {0};
    *reply = (weft_http_reply){0};
    weft_buf_printf(&url, "%s/", s->root);
    weft_uri_encode(&url, name, true);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&url));
    WEFT_GO(weft_http_send(s->http,
                           &(weft_http_request){.method = method,
                                                .url = url.data,
                                                .location = url.data,
                                                .to = w->data,
                                                .to_bytes = w->range ? w->range->bytes : 0,
                                                .sink = w->sink,
                                                .range = w->range,
                                                .attempts = s->attempts,
                                                .follow = true,
                                                .prepare = add_headers,
                                                .user = w},
                           reply));
    if (reply->status < 200 || reply->status > 299)
        WEFT_GO(fail(url.data, method, reply));
out:
    weft_buf_free(&url);
    if (status != WEFT_OK) {
        weft_http_reply_free(reply);
        *reply = (weft_http_reply){0};
    }
    return status;
}

/* The version of a file: its ETag, else its time of change. */
static const char *version_of(const weft_http_reply *reply)
{
    return *reply->etag ? reply->etag : reply->last_modified;
}

/* ---- facts and reading --------------------------------------------------------------------- */

static weft_status learn(site *s, const char *name, char version[WEFT_ETAG_BYTES],
                         weft_storage_facts *facts)
{
    weft_http_reply reply;
    if (weft_remote_table_get(&s->table, name, version, facts))
        return WEFT_OK;
    WEFT_TRY(send_request(s, "HEAD", name, &(wanted){0}, &reply));
    weft_status_code status =
        reply.length >= 0
            ? weft_remote_table_put(&s->table, name, version_of(&reply), reply.length)
            : weft_error(WEFT_MSG_STORAGE_REQUEST, WEFT_AT(.file = name),
                         "%s does not report the size of the file. Use a server with ranges, or "
                         "copy the file.",
                         s->root);
    weft_http_reply_free(&reply);
    WEFT_TRY(status);
    return weft_remote_table_get(&s->table, name, version, facts) ? WEFT_OK
                                                                  : weft_no_memory("%s", name);
}

static weft_status site_facts(void *self, const char *name, weft_storage_facts *facts)
{
    return learn(self, name, NULL, facts);
}

static bool site_known(void *self, const char *name, weft_storage_facts *facts)
{
    return weft_remote_table_get(&((site *)self)->table, name, NULL, facts);
}

/* Reads a range into memory or into a sink; the other one is NULL. */
static weft_status get_range(site *s, const char *name, int64_t at, int64_t bytes, void *to,
                             const weft_byte_sink *sink)
{
    char version[WEFT_ETAG_BYTES];
    weft_storage_facts facts;
    weft_http_reply reply;
    WEFT_TRY(learn(s, name, version, &facts));
    if (at + bytes > facts.bytes)
        return weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = name),
                          "the file ends at byte %" PRId64 ", and bytes up to %" PRId64
                          " are needed. It was rewritten shorter.",
                          facts.bytes, at + bytes);
    const weft_remote_range of = {s->root, name, version, facts.bytes, version_of};
    weft_http_range range = weft_remote_range_of(&of, at, bytes);
    /* a weak ETag and a date match nothing */
    const wanted w = {&range, *version == '"' ? version : NULL, to, sink};
    WEFT_TRY(send_request(s, "GET", name, &w, &reply));
    const weft_status_code status = weft_remote_range_check(&range, &reply);
    weft_http_reply_free(&reply);
    return status;
}

static weft_status site_read(void *self, const char *name, int64_t at, int64_t bytes, void *to)
{
    return get_range(self, name, at, bytes, to, NULL);
}

static weft_status site_stream(void *self, const char *name, int64_t at, int64_t bytes,
                               const weft_byte_sink *to)
{
    return get_range(self, name, at, bytes, NULL, to);
}

/* ---- list ---------------------------------------------------------------------------------- */

static weft_status add_name(weft_names *names, const char *name)
{
    WEFT_TRY(weft_grow((void **)&names->name, names->count, &names->capacity, sizeof *names->name));
    names->name[names->count] = weft_strdup(name);
    WEFT_TRY(WEFT_ALLOCATED(names->name[names->count], "%s", name));
    names->count++;
    return WEFT_OK;
}

static weft_status add_shards(const json_t *list, weft_names *names)
{
    size_t i;
    json_t *shard;
    WEFT_TRY(add_name(names, "index.json"));
    json_array_foreach(json_object_get(list, "shards"), i, shard)
    {
        const char *file = json_string_value(json_object_get(shard, "file"));
        if (file)
            WEFT_TRY(add_name(names, file));
    }
    qsort(names->name, (size_t)names->count, sizeof *names->name, weft_compare_text);
    return WEFT_OK;
}

static weft_status site_list(void *self, weft_names *names)
{
    site *s = self;
    weft_http_reply reply;
    json_t *list = NULL;
    *names = (weft_names){0};
    weft_status_code status = send_request(s, "GET", "index.json", &(wanted){0}, &reply);
    if (status == WEFT_E_NOT_FOUND)
        return weft_error_add(status, "It is the list of the shards, which `weft shard` writes. "
                                      "Copy it to the server, or name the shards: "
                                      "https://HOST/PATH/train-{000000..000012}.tar.");
    WEFT_TRY(status);
    status = weft_json_parse(reply.body.data, reply.body.len, "index.json", &list);
    weft_http_reply_free(&reply);
    WEFT_GO(status);
    WEFT_GO(add_shards(list, names));
out:
    json_decref(list);
    if (status != WEFT_OK)
        weft_names_free(names);
    return status;
}

/* ---- kinds --------------------------------------------------------------------------------- */

#define SITE(name)                                                                                 \
    {                                                                                              \
        .scheme = name, .read_only = true, .open = site_open, .close = site_close,                 \
        .origin = site_origin, .facts = site_facts, .known = site_known, .read = site_read,        \
        .stream = site_stream, .list = site_list                                                   \
    }
const weft_storage_kind weft_storage_http = SITE("http://"), weft_storage_https = SITE("https://");
