#include "storage/aws_credentials.h"

#include "base/fs.h"
#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void erase(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    weft_free(text);
}

void weft_aws_credentials_free(weft_aws_credentials *c)
{
    erase(c->access_key);
    erase(c->secret_key);
    erase(c->session_token);
    *c = (weft_aws_credentials){0};
}

static weft_status copy_keys(const char *access, const char *secret, const char *token,
                             weft_aws_credentials *c)
{
    c->access_key = weft_strdup(access);
    c->secret_key = weft_strdup(secret);
    c->session_token = token ? weft_strdup(token) : NULL;
    c->expires = INT64_MAX;
    if (c->access_key && c->secret_key && (c->session_token || !token))
        return WEFT_OK;
    weft_aws_credentials_free(c);
    return weft_no_memory("the credentials");
}

static weft_status none_at(const char *location, const char *problem)
{
    return weft_error(WEFT_MSG_STORAGE_CREDENTIALS, WEFT_AT(.file = location),
                      "%s. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or run "
                      "`aws configure`; for a public bucket set WEFT_S3_UNSIGNED=1.",
                      problem);
}

weft_status weft_aws_credentials_parse(const char *json, int64_t bytes, const char *location,
                                       weft_aws_credentials *c)
{
    /* not weft_json_parse, whose messages may quote the text */
    json_t *root = json_loadb(json, (size_t)bytes, 0, NULL);
    const char *access = json_string_value(json_object_get(root, "AccessKeyId")),
               *secret = json_string_value(json_object_get(root, "SecretAccessKey")),
               *token = json_string_value(json_object_get(root, "SessionToken")),
               *expiration = json_string_value(json_object_get(root, "Expiration"));
    struct tm date = {0};
    token = token ? token : json_string_value(json_object_get(root, "Token"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(access && secret ? copy_keys(access, secret, token && *token ? token : NULL, c)
                             : none_at(location, "the reply has no credentials in JSON"));
    if (expiration && strptime(expiration, "%Y-%m-%dT%H:%M:%S", &date))
        c->expires = (int64_t)timegm(&date);
out:
    json_decref(root);
    return status;
}

static weft_status read_process(const weft_aws_settings *s, weft_aws_credentials *c)
{
    enum { MOST = 1 << 16 };
    char *text;
    WEFT_TRY(WEFT_NEW(text, MOST, "the credentials"));
    FILE *pipe = popen(s->process, "re");
    if (!pipe) {
        weft_free(text);
        return weft_error_errno(WEFT_AT(.key = "credential_process"), "cannot run the command");
    }
    const size_t bytes = fread(text, 1, MOST - 1, pipe);
    const int result = pclose(pipe);
    const weft_status_code status =
        result != 0 ? none_at("credential_process", "the command failed")
                    : weft_aws_credentials_parse(text, (int64_t)bytes, "credential_process", c);
    erase(text);
    return status;
}

/* ---- metadata servers ---------------------------------------------------------------------- */

/* A header of a request, for `prepare`. */
static weft_status add_header(const void *user, weft_http_headers *headers)
{
    const weft_name_value *header = user;
    return header->value ? weft_http_headers_add(headers, header->name, header->value) : WEFT_OK;
}

/* Reads a reply of at most a few kilobytes. The caller frees it. `location` is in messages. */
static weft_status fetch(weft_http *http, const char *method, const char *url, const char *location,
                         const weft_name_value *header, weft_buf *body)
{
    const weft_http_request request = {.method = method,
                                       .url = url,
                                       .location = location,
                                       .attempts = 3,
                                       .local = true,
                                       .prepare = add_header,
                                       .user = header};
    weft_http_reply reply;
    weft_status_code status = weft_http_send(http, &request, &reply);
    if (status == WEFT_E_IO)
        status =
            none_at(location, "no credentials are set, and the metadata server does not answer");
    WEFT_GO(status);
    if (reply.status != 200)
        WEFT_GO(none_at(location, "the metadata server has no credentials"));
    *body = reply.body;
out:
    if (status != WEFT_OK)
        weft_http_reply_free(&reply);
    return status;
}

static weft_status read_container(const weft_aws_settings *s, weft_http *http,
                                  weft_aws_credentials *c)
{
    static const char location[] = "the container's credentials"; /* the URL may contain a token */
    const char *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
               *file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    char *text = NULL;
    int64_t bytes;
    weft_buf body = {0};
    if (file && *file) {
        WEFT_TRY(weft_file_read(file, 1 << 16, &text, &bytes));
        text[strcspn(text, "\r\n")] = 0;
        token = text;
    }
    const weft_name_value header = {"Authorization", token && *token ? token : NULL};
    weft_status_code status = WEFT_OK;
    WEFT_GO(fetch(http, "GET", s->container, location, &header, &body));
    WEFT_GO(weft_aws_credentials_parse(body.data, body.len, location, c));
out:
    erase(text);
    weft_buf_free(&body);
    return status;
}

/* Instance metadata, version 2: a session token first, then the role, then its credentials. */
static weft_status read_instance(const weft_aws_settings *s, weft_http *http,
                                 weft_aws_credentials *c)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    const weft_name_value seconds = {"X-aws-ec2-metadata-token-ttl-seconds", "21600"};
    weft_buf url = {0}, token = {0}, role = {0}, body = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&url, "%s/latest/api/token", s->instance);
    WEFT_GO(weft_buf_check(&url));
    WEFT_GO(fetch(http, "PUT", url.data, s->instance, &seconds, &token));
    const weft_name_value header = {"X-aws-ec2-metadata-token", token.data};
    url.len = 0;
    weft_buf_printf(&url, "%s%s", s->instance, roles);
    WEFT_GO(weft_buf_check(&url));
    WEFT_GO(fetch(http, "GET", url.data, s->instance, &header, &role));
    role.data[strcspn(role.data, "\r\n")] = 0;
    weft_buf_printf(&url, "%s", role.data);
    WEFT_GO(weft_buf_check(&url));
    WEFT_GO(fetch(http, "GET", url.data, s->instance, &header, &body));
    status = weft_aws_credentials_parse(body.data, body.len, s->instance, c);
out:
    weft_buf_free(&url);
    weft_buf_free(&token);
    weft_buf_free(&role);
    weft_buf_free(&body);
    return status;
}

weft_status weft_aws_credentials_read(const weft_aws_settings *s, weft_http *http,
                                      weft_aws_credentials *c)
{
    *c = (weft_aws_credentials){.expires = INT64_MAX};
    switch (s->source) {
    case WEFT_AWS_KEYS: return copy_keys(s->access_key, s->secret_key, s->session_token, c);
    case WEFT_AWS_PROCESS: return read_process(s, c);
    case WEFT_AWS_CONTAINER: return read_container(s, http, c);
    case WEFT_AWS_INSTANCE: return read_instance(s, http, c);
    case WEFT_AWS_UNSIGNED: break;
    }
    return WEFT_OK;
}
