#include "serve/serve_request.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { POST_BUFFER = 8192, FIELD_LIMIT = 64 << 10 };

/* ---- upload --------------------------------------------------------------------------------- */

/* The file has no name until its job is accepted, so an interrupted upload leaves nothing. */
static bool write_image(weft_serve_request *r, const char *bytes, size_t count)
{
    if (r->image < 0)
        r->image = open(r->server->state, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (!r->image_hash && (r->image_hash = XXH3_createState()))
        XXH3_128bits_reset(r->image_hash);
    if (r->image < 0 || !r->image_hash)
        return false;
    XXH3_128bits_update(r->image_hash, bytes, count);
    while (count) {
        const ssize_t n = write(r->image, bytes, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        count -= (size_t)n;
    }
    return true;
}

static bool append_field(weft_serve_request *r, const char *key, const char *bytes, size_t count,
                         uint64_t offset)
{
    json_t *before = json_object_get(r->fields, key);
    const size_t had = json_string_length(before);
    r->repeated = r->repeated || (offset == 0 && had);
    if (had + count > FIELD_LIMIT || json_object_size(r->fields) > 64)
        return false;
    weft_buf text = {0};
    if (had)
        weft_buf_append(&text, json_string_value(before), (int64_t)had);
    weft_buf_append(&text, bytes, (int64_t)count);
    /* bytes that are not UTF-8 may be half of a character until the field is complete */
    const bool ok =
        !text.failed && json_object_set_new_nocheck(r->fields, key,
                                                    json_stringn_nocheck(text.data ? text.data : "",
                                                                         (size_t)text.len)) == 0;
    weft_buf_free(&text);
    return ok;
}

static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *key,
                               const char *filename, const char *type, const char *encoding,
                               const char *data, uint64_t offset, size_t size)
{
    weft_serve_request *r = cls;
    (void)kind;
    (void)type;
    (void)encoding;
    if (!key)
        return MHD_NO;
    const bool upload = filename && !strcmp(key, "input_reference");
    r->repeated = r->repeated || (upload && offset == 0 && r->image_hash);
    return (upload ? write_image(r, data, size) : append_field(r, key, data, size, offset))
               ? MHD_YES
               : MHD_NO;
}

static bool read_at(int fd, int64_t at, unsigned char *bytes, size_t count)
{
    return pread(fd, bytes, count, (off_t)at) == (ssize_t)count;
}

/* Whether the chunks of a PNG have an image and reach its end chunk. */
static bool is_whole_png(int fd, int64_t bytes)
{
    unsigned char h[8];
    bool has_data = false;
    for (int64_t at = 8; at + 12 <= bytes && read_at(fd, at, h, 8);) {
        const int64_t length = (int64_t)h[0] << 24 | h[1] << 16 | h[2] << 8 | h[3];
        if (at == 8 && memcmp(h + 4, "IHDR", 4) != 0)
            return false;
        has_data = has_data || (!memcmp(h + 4, "IDAT", 4) && length > 0);
        if (at + 12 + length > bytes)
            return false;
        if (!memcmp(h + 4, "IEND", 4))
            return has_data;
        at += 12 + length;
    }
    return false;
}

/* A JPEG has the end marker; padding may follow. The RIFF of a WebP has its length. */
static bool is_whole(int fd, const char *name, int64_t bytes)
{
    unsigned char h[8], end[64];
    const size_t last = bytes < 64 ? (size_t)bytes : 64;
    if (!strcmp(name, "input.png"))
        return is_whole_png(fd, bytes);
    if (!strcmp(name, "input.webp"))
        return read_at(fd, 0, h, 8) &&
               ((int64_t)h[7] << 24 | h[6] << 16 | h[5] << 8 | h[4]) + 8 <= bytes;
    return read_at(fd, bytes - (int64_t)last, end, last) && memmem(end, last, "\xff\xd9", 2);
}

weft_status weft_serve_request_image(const weft_serve_request *r, const char **name)
{
    unsigned char head[12] = {0};
    *name = NULL;
    if (r->image < 0)
        return WEFT_OK;
    const ssize_t n = pread(r->image, head, sizeof head, 0);
    if (n >= 8 && !memcmp(head, "\x89PNG\r\n\x1a\n", 8))
        *name = "input.png";
    else if (n >= 3 && !memcmp(head, "\xff\xd8\xff", 3))
        *name = "input.jpg";
    else if (n >= 12 && !memcmp(head, "RIFF", 4) && !memcmp(head + 8, "WEBP", 4))
        *name = "input.webp";
    if (!*name)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "input_reference"),
                          "the file is not a PNG, JPEG or WebP image");
    const int64_t bytes = lseek(r->image, 0, SEEK_END);
    return is_whole(r->image, *name, bytes)
               ? WEFT_OK
               : weft_error(WEFT_MSG_REQUEST_INVALID,
                            WEFT_AT(.key = "input_reference", WEFT_NUMBER(bytes)),
                            "the image is truncated or damaged after %" PRId64
                            " bytes; send the whole file",
                            bytes);
}

weft_status weft_serve_request_store_image(weft_serve_request *r, const char *folder,
                                           const char *name)
{
    char from[64], *to = weft_path_join(folder, name);
    WEFT_TRY(WEFT_ALLOCATED(to, "an image"));
    snprintf(from, sizeof from, "/proc/self/fd/%d", r->image);
    weft_status_code status = WEFT_OK;
    if (fsync(r->image) != 0 || linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0)
        status = weft_error_errno(WEFT_AT(.file = to), "cannot store the image");
    weft_free(to);
    return status;
}

/* ---- body ----------------------------------------------------------------------------------- */

bool weft_serve_request_begin_body(weft_serve_request *r)
{
    const char *type =
        MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (type && !strncasecmp(type, "application/json", 16))
        return true;
    if (!type || strncasecmp(type, "multipart/form-data", 19) != 0)
        return false;
    r->is_form = true;
    r->fields = json_object();
    r->form = MHD_create_post_processor(r->connection, POST_BUFFER, on_part, r);
    return r->form && r->fields;
}

bool weft_serve_request_receive(weft_serve_request *r, const char *bytes, size_t count)
{
    const int64_t limit = r->is_form ? WEFT_FORM_LIMIT : WEFT_JSON_LIMIT;
    r->received += (int64_t)count;
    if (r->received > limit) /* an answer can be sent after the whole body only */
        r->too_large = true;
    if (r->received > 2 * limit)
        return false;
    if (r->too_large || r->refused)
        return true;
    if (!r->is_form)
        weft_buf_append(&r->body, bytes, (int64_t)count);
    else if (MHD_post_process(r->form, bytes, count) != MHD_YES)
        r->too_large = true;
    return true;
}

/* Form values are bytes until here. */
static weft_status check_form(const json_t *fields)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)fields, key, value)
    {
        json_t *copy = json_stringn(json_string_value(value), json_string_length(value)),
               *name = json_string(key);
        const bool ok = copy && name;
        json_decref(copy);
        json_decref(name);
        if (!ok)
            return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_NOWHERE,
                              "a field of the form is not UTF-8");
    }
    return WEFT_OK;
}

static weft_status read_json(const weft_buf *body, json_t **fields)
{
    const char *text = body->data ? body->data : "";
    json_error_t error;
    json_t *json = json_loadb(text, (size_t)body->len, JSON_REJECT_DUPLICATES, &error);
    if (!json && json_error_code(&error) == json_error_numeric_overflow)
        /* a number of any size, which the check of its field refuses */
        json = json_loadb(text, (size_t)body->len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL,
                          &error);
    if (!json)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.line = error.line),
                          "line %d of the body is not JSON: %s", error.line, error.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_NOWHERE, "the body is not a JSON object");
    }
    *fields = json;
    return WEFT_OK;
}

weft_status weft_serve_request_fields(weft_serve_request *r, json_t **fields)
{
    if (r->is_form) {
        if (r->form && MHD_destroy_post_processor(r->form) != MHD_YES) {
            r->form = NULL;
            return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_NOWHERE, "the form is incomplete");
        }
        r->form = NULL;
        if (r->repeated)
            return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_NOWHERE,
                              "the form has a field twice; send each field once");
        WEFT_TRY(check_form(r->fields));
        *fields = json_incref(r->fields);
        return WEFT_OK;
    }
    if (!r->body.len && r->without_body) {
        *fields = json_object();
        return WEFT_ALLOCATED(*fields, "a request");
    }
    return read_json(&r->body, fields);
}

const char *weft_serve_request_query(const weft_serve_request *r, const char *key)
{
    const char *value = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, key);
    return value ? value : "";
}

void weft_serve_request_free(weft_serve_request *r)
{
    if (!r)
        return;
    if (r->form)
        MHD_destroy_post_processor(r->form);
    if (r->image >= 0)
        close(r->image);
    if (r->image_hash)
        XXH3_freeState(r->image_hash);
    json_decref(r->fields);
    weft_buf_free(&r->body);
    weft_free(r->path);
    weft_free(r);
}
