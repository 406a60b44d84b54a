#include "serve/serve_request.h"

#include <errno.h>
#include <string.h>

enum { POST_BUFFER = 8192, FIELD_LIMIT = 64 << 10 };

/* ---- form ----------------------------------------------------------------------------------- */

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

/* The upload of a part of the field of `input`. Files of a repeated field fill its inputs in
 * sequence; `begins`: the part is the first one of its file. */
static weft_upload *upload_of(weft_serve_request *r, weft_request_input input, bool begins)
{
    if (!begins)
        return &r->uploads[r->receiving];
    while (r->uploads[input].file && weft_input_after(input) < WEFT_INPUTS)
        input = weft_input_after(input);
    r->receiving = input;
    return &r->uploads[input];
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
    const weft_request_input input = filename ? weft_input_find(key) : WEFT_INPUTS;
    if (input == WEFT_INPUTS)
        return append_field(r, key, data, size, offset) ? MHD_YES : MHD_NO;
    weft_upload *u = upload_of(r, input, offset == 0);
    r->repeated = r->repeated || (offset == 0 && u->file);
    errno = 0;
    if (weft_upload_write(u, r->server->state, data, size))
        return MHD_YES;
    r->upload_error = errno ? errno : ENOMEM;
    return MHD_NO;
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
    if (r->too_large || r->upload_error || r->refused)
        return true;
    if (!r->is_form)
        weft_buf_append(&r->body, bytes, (int64_t)count);
    else if (MHD_post_process(r->form, bytes, count) != MHD_YES)
        r->too_large = !r->upload_error;
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
    for (int i = 0; i < WEFT_INPUTS; i++)
        weft_upload_close(&r->uploads[i]);
    json_decref(r->fields);
    weft_buf_free(&r->body);
    weft_free(r->path);
    weft_free(r);
}
