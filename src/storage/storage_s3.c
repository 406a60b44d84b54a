/* A bucket, or a prefix of one, as a storage. Names are keys after the prefix. */
#include "storage/storage_s3.h"

#include "base/compare.h"
#include "base/config.h"
#include "storage/s3_upload.h"
#include "storage/s3_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct store {
    weft_s3 *s3;
    char *bucket, *prefix; /* owned; the prefix is "" or ends with '/' */
    char *origin;          /* owned */
    weft_remote_table table;
} store;

/* ---- open ---------------------------------------------------------------------------------- */

static void store_close(void *self)
{
    store *s = self;
    weft_s3_close(s->s3);
    weft_remote_table_free(&s->table);
    weft_free(s->bucket);
    weft_free(s->prefix);
    weft_free(s->origin);
    weft_free(s);
}

static char *printed(const char *format, const char *a, const char *b)
{
    weft_buf text = {0};
    weft_buf_printf(&text, format, a, b);
    if (text.failed)
        weft_buf_free(&text);
    return text.data;
}

static weft_status store_open(const char *root, void **self)
{
    const char *bucket = root + strlen("s3://");
    const size_t length = strcspn(bucket, "/");
    const char *prefix = bucket[length] ? bucket + length + 1 : "";
    if (!length)
        return weft_error(WEFT_MSG_STORAGE_BUCKET, WEFT_AT(.file = root),
                          "the location has no bucket; write s3://BUCKET/PREFIX");
    store *s;
    WEFT_TRY(WEFT_NEW(s, 1, "%s", root));
    weft_remote_table_init(&s->table);
    s->bucket = printed("%s%s", bucket, "");
    s->prefix = printed("%s%s", prefix, *prefix && prefix[strlen(prefix) - 1] != '/' ? "/" : "");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(s->bucket && s->prefix, "%s", root));
    s->bucket[length] = 0;
    WEFT_GO(weft_s3_open(s->bucket, &s->s3));
    s->origin = printed("%s %s", weft_s3_endpoint(s->s3), root);
    WEFT_GO(WEFT_ALLOCATED(s->origin, "%s", root));
out:
    if (status != WEFT_OK) {
        store_close(s);
        return weft_error_at(status, WEFT_AT(.file = root));
    }
    *self = s;
    return WEFT_OK;
}

static const char *store_origin(void *self)
{
    return ((store *)self)->origin;
}

static weft_status key_of(const store *s, const char *name, char **key)
{
    *key = printed("%s%s", s->prefix, name);
    return WEFT_ALLOCATED(*key, "%s", name);
}

/* ---- facts and reading --------------------------------------------------------------------- */

/* Facts and ETag from the table, or from the server. */
static weft_status learn(store *s, const char *name, char etag[WEFT_ETAG_BYTES],
                         weft_storage_facts *facts)
{
    char *key;
    weft_http_reply reply;
    if (weft_remote_table_get(&s->table, name, etag, facts))
        return WEFT_OK;
    WEFT_TRY(key_of(s, name, &key));
    weft_status_code status =
        weft_s3_send(s->s3, &(weft_s3_request){.method = "HEAD", .key = key}, &reply);
    weft_free(key);
    WEFT_TRY(status);
    status =
        weft_remote_table_put(&s->table, name, reply.etag, reply.length < 0 ? 0 : reply.length);
    weft_http_reply_free(&reply);
    WEFT_TRY(status);
    return weft_remote_table_get(&s->table, name, etag, facts)
               ? WEFT_OK
               : weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = name),
                            "the object was removed while it was in use");
}

static weft_status store_facts(void *self, const char *name, weft_storage_facts *facts)
{
    return learn(self, name, NULL, facts);
}

static bool store_known(void *self, const char *name, weft_storage_facts *facts)
{
    return weft_remote_table_get(&((store *)self)->table, name, NULL, facts);
}

/* The error of an object that a list or an earlier request has named. */
static weft_status fail_removed(const store *s, const char *key, int64_t bytes)
{
    weft_buf location = {0};
    weft_buf_printf(&location, "s3://%s/%s", s->bucket, key);
    WEFT_TRY(weft_buf_check(&location));
    (void)!weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = location.data),
                      "the object had %" PRId64 " bytes when this command asked first, and was "
                      "removed since. Restore it, or run the command again without it.",
                      bytes);
    weft_buf_free(&location);
    return WEFT_E_IO;
}

/* Reads a range into memory or into a sink; the other one is NULL. */
static weft_status get_range(store *s, const char *name, int64_t at, int64_t bytes, void *to,
                             const weft_byte_sink *sink)
{
    char etag[WEFT_ETAG_BYTES], root[WEFT_ETAG_BYTES], *key;
    weft_storage_facts facts;
    weft_http_reply reply;
    WEFT_TRY(learn(s, name, etag, &facts));
    if (at + bytes > facts.bytes)
        return weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = name),
                          "the object ends at byte %" PRId64 ", and bytes up to %" PRId64
                          " are needed. It was rewritten shorter.",
                          facts.bytes, at + bytes);
    WEFT_TRY(key_of(s, name, &key));
    snprintf(root, sizeof root, "s3://%s", s->bucket);
    const weft_remote_range of = {root, key, etag, facts.bytes, weft_s3_version_of};
    weft_http_range range = weft_remote_range_of(&of, at, bytes);
    weft_status_code status = weft_s3_send(s->s3,
                                           &(weft_s3_request){.method = "GET",
                                                              .key = key,
                                                              .range = &range,
                                                              .if_match = *etag ? etag : NULL,
                                                              .to = to,
                                                              .sink = sink,
                                                              .to_bytes = bytes},
                                           &reply);
    if (status != WEFT_OK && weft_error_class() == WEFT_MSG_FILE_NOT_FOUND)
        status = fail_removed(s, key, facts.bytes);
    WEFT_GO(status);
    status = weft_remote_range_check(&range, &reply);
    weft_http_reply_free(&reply);
out:
    /* facts stay as they are: a new version of the object is an error in every later read, too */
    weft_free(key);
    return status;
}

static weft_status store_read(void *self, const char *name, int64_t at, int64_t bytes, void *to)
{
    return get_range(self, name, at, bytes, to, NULL);
}

static weft_status store_stream(void *self, const char *name, int64_t at, int64_t bytes,
                                const weft_byte_sink *to)
{
    return get_range(self, name, at, bytes, NULL, to);
}

/* ---- list ---------------------------------------------------------------------------------- */

/* Reads the ETag of an object. Some servers list ETags without the quotes of their replies. */
static void read_etag(const char *element, char etag[WEFT_ETAG_BYTES])
{
    char text[WEFT_ETAG_BYTES - 2];
    weft_xml_text(element, "ETag", text, sizeof text);
    const bool quoted = !*text || *text == '"' || !strncmp(text, "W/", 2);
    snprintf(etag, WEFT_ETAG_BYTES, quoted ? "%s" : "\"%s\"", text);
}

/* Adds the name of a <Contents> element, and its facts. */
static weft_status add_name(store *s, const char *element, const char *name, weft_names *names)
{
    char size[32], etag[WEFT_ETAG_BYTES];
    weft_xml_text(element, "Size", size, sizeof size);
    read_etag(element, etag);
    WEFT_TRY(weft_remote_table_put(&s->table, name, etag, strtoll(size, NULL, 10)));
    WEFT_TRY(weft_grow((void **)&names->name, names->count, &names->capacity, sizeof *names->name));
    WEFT_TRY(WEFT_ALLOCATED((names->name[names->count] = weft_strdup(name)), "%s", name));
    names->count++;
    return WEFT_OK;
}

/* Adds the object of a <Contents> element. */
static weft_status add_object(store *s, const char *element, bool encoded, weft_names *names)
{
    int64_t length;
    weft_buf key = {0};
    const char *content = weft_xml_find(element, "Key", &length);
    weft_xml_decode(&key, content ? content : "", content ? length : 0);
    weft_buf_append(&key, "", 0);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&key));
    if (encoded)
        key.len = weft_uri_decode(key.data, key.len);
    const size_t prefix = strlen(s->prefix);
    const bool below = (size_t)key.len > prefix && !strncmp(key.data, s->prefix, prefix) &&
                       key.data[key.len - 1] != '/';
    if (below)
        WEFT_GO(add_name(s, element, key.data + prefix, names));
out:
    weft_buf_free(&key);
    return status;
}

static weft_status add_page(store *s, char *xml, weft_names *names)
{
    char type[16];
    int64_t bytes;
    const bool encoded = !strcmp(weft_xml_text(xml, "EncodingType", type, sizeof type), "url");
    for (char *at = (char *)weft_xml_find(xml, "Contents", &bytes); at;) {
        char *end = at + bytes, kept = *end;
        *end = 0;
        const weft_status_code status = add_object(s, at, encoded, names);
        *end = kept;
        WEFT_TRY(status);
        at = (char *)weft_xml_find(end, "Contents", &bytes);
    }
    return WEFT_OK;
}

/* Asks for the page after `token` (NULL: the first), and replaces *token; NULL: it was the last.
 * `all`: also objects of folders below the prefix. */
static weft_status list_page(store *s, bool all, char **token, weft_names *names)
{
    weft_name_value query[6] = {
        {"list-type", "2"}, {"prefix", s->prefix}, {"max-keys", "1000"}, {"encoding-type", "url"}};
    int count = 4;
    if (!all)
        query[count++] = (weft_name_value){"delimiter", "/"};
    if (*token)
        query[count++] = (weft_name_value){"continuation-token", *token};
    char truncated[8], next[2048];
    weft_http_reply reply;
    WEFT_TRY(weft_s3_send(
        s->s3, &(weft_s3_request){.method = "GET", .key = "", .query = query, .query_count = count},
        &reply));
    weft_xml_text(reply.body.data, "IsTruncated", truncated, sizeof truncated);
    weft_xml_text(reply.body.data, "NextContinuationToken", next, sizeof next);
    const weft_status_code status =
        strstr(reply.body.data, "ListBucketResult")
            ? add_page(s, reply.body.data, names)
            : weft_error(WEFT_MSG_STORAGE_REQUEST, WEFT_AT(.file = s->bucket),
                         "the server answered a list with something else. Check the endpoint.");
    weft_http_reply_free(&reply);
    WEFT_TRY(status);
    const bool more = !strcmp(truncated, "true");
    if (more && (!*next || strlen(next) == sizeof next - 1 || (*token && !strcmp(*token, next))))
        return weft_error(WEFT_MSG_STORAGE_REQUEST, WEFT_AT(.file = s->bucket),
                          "the server cut a list and gave no way to continue it. Check the "
                          "endpoint.");
    weft_free(*token);
    *token = more ? weft_strdup(next) : NULL;
    return WEFT_ALLOCATED(!more || *token, "a list");
}

static weft_status list_objects(store *s, bool all, weft_names *names)
{
    char *token = NULL;
    *names = (weft_names){0};
    weft_remote_table_clear(&s->table);
    weft_status_code status = WEFT_OK;
    do
        WEFT_GO(list_page(s, all, &token, names));
    while (token);
    if (names->count)
        qsort(names->name, (size_t)names->count, sizeof *names->name, weft_compare_text);
out:
    weft_free(token);
    if (status != WEFT_OK)
        weft_names_free(names);
    return status;
}

static weft_status store_list(void *self, weft_names *names)
{
    return list_objects(self, false, names);
}

static weft_status store_list_all(void *self, weft_names *names)
{
    return list_objects(self, true, names);
}

/* ---- writing ------------------------------------------------------------------------------- */

static weft_status store_remove(void *self, const char *name)
{
    store *s = self;
    char *key;
    weft_http_reply reply;
    WEFT_TRY(key_of(s, name, &key));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_s3_send(s->s3, &(weft_s3_request){.method = "DELETE", .key = key}, &reply));
    weft_http_reply_free(&reply);
out:
    weft_free(key);
    weft_remote_table_drop(&s->table, name);
    return status == WEFT_E_NOT_FOUND && weft_error_class() == WEFT_MSG_FILE_NOT_FOUND ? WEFT_OK
                                                                                       : status;
}

typedef struct store_file {
    store *store;
    char *name; /* owned */
    weft_s3_upload *upload;
} store_file;

static void store_free(void *file)
{
    store_file *f = file;
    weft_s3_upload_free(f->upload);
    weft_free(f->name);
    weft_free(f);
}

static weft_status store_begin(void *self, const char *name, bool hasty, void **file)
{
    store *s = self;
    store_file *f;
    char *key = NULL;
    (void)hasty; /* a committed object is durable */
    WEFT_TRY(WEFT_NEW(f, 1, "%s", name));
    f->store = s;
    f->name = weft_strdup(name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(f->name, "%s", name));
    WEFT_GO(key_of(s, name, &key));
    WEFT_GO(weft_s3_upload_begin(s->s3, key, &f->upload));
    *file = f;
out:
    weft_free(key);
    if (status != WEFT_OK)
        store_free(f);
    return status;
}

static weft_status store_write(void *file, const void *data, int64_t bytes)
{
    return weft_s3_upload_write(((store_file *)file)->upload, data, bytes);
}

static weft_status store_commit(void *file)
{
    store_file *f = file;
    int64_t bytes;
    char etag[WEFT_ETAG_BYTES] = "";
    const weft_status_code status = weft_s3_upload_commit(f->upload, &bytes, etag);
    /* After the upload: until its end, readers store the facts of the earlier object. */
    weft_remote_table_drop(&f->store->table, f->name);
    return status == WEFT_OK && *etag
               ? weft_remote_table_put(&f->store->table, f->name, etag, bytes)
               : status;
}

const weft_storage_kind weft_storage_s3 = {.scheme = "s3://",
                                           .open = store_open,
                                           .close = store_close,
                                           .origin = store_origin,
                                           .facts = store_facts,
                                           .known = store_known,
                                           .read = store_read,
                                           .stream = store_stream,
                                           .list = store_list,
                                           .list_all = store_list_all,
                                           .remove = store_remove,
                                           .begin = store_begin,
                                           .write = store_write,
                                           .commit = store_commit,
                                           .free = store_free};
