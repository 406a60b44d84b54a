#include "storage/s3.h"

#include "base/config.h"
#include "base/log.h"
#include "storage/aws_credentials.h"
#include "storage/s3_xml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REGION_BYTES = 40,
    EARLY_SECONDS = 300, /* credentials are read again this long before they expire */
    RETRY_SECONDS = 30   /* between early renewals that fail */
};

struct weft_s3 {
    weft_arena *arena;
    const char *bucket;
    weft_aws_settings settings;
    weft_http *http;
    pthread_mutex_t lock; /* of all below */
    weft_aws_credentials credentials;
    bool has_credentials;
    bool warned;          /* of a renewal that failed; false again after one that did not */
    int64_t next_renewal; /* no early renewal before this time; seconds since 1970 */
    char region[REGION_BYTES];
};

weft_status weft_s3_open(const char *bucket, weft_s3 **s3)
{
    weft_s3 *s;
    WEFT_TRY(WEFT_NEW(s, 1, "s3://%s", bucket));
    pthread_mutex_init(&s->lock, NULL);
    s->arena = weft_arena_create();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(s->arena && (s->bucket = weft_arena_strdup(s->arena, bucket)), "s3://%s",
                           bucket));
    WEFT_GO(weft_aws_settings_read(s->arena, &s->settings));
    snprintf(s->region, sizeof s->region, "%s", s->settings.region);
    WEFT_GO(weft_http_open(&s->http));
    *s3 = s;
    return WEFT_OK;
out:
    weft_s3_close(s);
    return status;
}

void weft_s3_close(weft_s3 *s)
{
    if (!s)
        return;
    weft_http_close(s->http);
    weft_aws_credentials_free(&s->credentials);
    pthread_mutex_destroy(&s->lock);
    weft_arena_free(s->arena);
    weft_free(s);
}

const char *weft_s3_endpoint(const weft_s3 *s)
{
    return s->settings.endpoint ? s->settings.endpoint : "";
}

const char *weft_s3_version_of(const weft_http_reply *reply)
{
    return reply->etag;
}

/* ---- signed headers ------------------------------------------------------------------------ */

/* A request, and the input of the signatures of its attempts. */
typedef struct sending {
    weft_s3 *s3;
    const weft_s3_request *request;
    const char *region;       /* of the signature and of the address */
    weft_buf url, host, path; /* path: encoded, as signed */
    char hash[WEFT_SHA256_HEX];
} sending;

/* Reads the credentials unless they are valid for a while. An early renewal that fails is a
 * warning: the present credentials are used until they expire. The caller has the lock. */
static weft_status renew(weft_s3 *s)
{
    weft_aws_credentials *own = &s->credentials, fresh;
    const int64_t now = (int64_t)time(NULL);
    const bool early = s->has_credentials && own->expires > now;
    if (early && (own->expires - EARLY_SECONDS > now || s->next_renewal > now))
        return WEFT_OK;
    const weft_status_code status = weft_aws_credentials_read(&s->settings, s->http, &fresh);
    if (status == WEFT_OK) {
        weft_aws_credentials_free(own);
        *own = fresh;
        s->has_credentials = true;
        s->warned = false;
        return WEFT_OK;
    }
    if (!early || status == WEFT_E_CANCELLED)
        return status;
    s->next_renewal = now + RETRY_SECONDS;
    if (!s->warned)
        weft_warn_error(WEFT_MSG_STORAGE_CREDENTIALS,
                        "the credentials could not be renewed; the present ones expire in %" PRId64
                        " seconds and are used until then",
                        own->expires - now);
    s->warned = true;
    weft_error_clear();
    return WEFT_OK;
}

/* Copies of the keys, since another thread may renew the credentials. */
static weft_status copy_credentials(weft_s3 *s, weft_aws_credentials *copy)
{
    const weft_aws_credentials *own = &s->credentials;
    *copy = (weft_aws_credentials){0};
    pthread_mutex_lock(&s->lock);
    weft_status_code status = WEFT_OK;
    WEFT_GO(renew(s));
    if (s->settings.source != WEFT_AWS_UNSIGNED) {
        copy->access_key = weft_strdup(own->access_key);
        copy->secret_key = weft_strdup(own->secret_key);
        copy->session_token = own->session_token ? weft_strdup(own->session_token) : NULL;
        WEFT_GO(WEFT_ALLOCATED(copy->access_key && copy->secret_key, "the credentials"));
    }
out:
    pthread_mutex_unlock(&s->lock);
    return status;
}

static weft_status add_all(const weft_name_value *header, int count, const char *authorization,
                           weft_http_headers *to)
{
    for (int i = 0; i < count; i++)
        WEFT_TRY(weft_http_headers_add(to, header[i].name, header[i].value));
    return authorization ? weft_http_headers_add(to, "Authorization", authorization) : WEFT_OK;
}

static weft_status sign(const void *user, weft_http_headers *headers)
{
    const sending *o = user;
    const weft_s3_request *q = o->request;
    weft_aws_credentials keys;
    weft_buf authorization = {0};
    char date[17], range[WEFT_HTTP_RANGE_TEXT];
    weft_name_value header[8];
    int count = 0;
    weft_sigv4_date((int64_t)time(NULL), date);
    weft_status_code status = WEFT_OK;
    WEFT_GO(copy_credentials(o->s3, &keys));
    header[count++] = (weft_name_value){"host", o->host.data};
    if (q->range) {
        weft_http_range_print(q->range, range);
        header[count++] = (weft_name_value){"range", range};
    }
    if (q->if_match)
        header[count++] = (weft_name_value){"if-match", q->if_match};
    if (o->s3->settings.source != WEFT_AWS_UNSIGNED) {
        header[count++] = (weft_name_value){"x-amz-content-sha256", o->hash};
        header[count++] = (weft_name_value){"x-amz-date", date};
        if (keys.session_token)
            header[count++] = (weft_name_value){"x-amz-security-token", keys.session_token};
        WEFT_GO(weft_sigv4_authorization(
            &(weft_sigv4_keys){keys.access_key, keys.secret_key, o->region, "s3"},
            &(weft_sigv4_request){q->method, o->path.data, q->query, q->query_count, header, count,
                                  o->hash, date},
            &authorization));
    }
    status = add_all(header, count, authorization.data, headers);
out:
    weft_buf_free(&authorization);
    weft_aws_credentials_free(&keys);
    return status;
}

/* ---- addresses ----------------------------------------------------------------------------- */

/* A dot in the bucket's name does not fit the server's certificate. */
static bool is_in_path(const weft_s3 *s)
{
    return s->settings.path_style || (!s->settings.endpoint && strchr(s->bucket, '.'));
}

static weft_status make_address(sending *o)
{
    const weft_s3 *s = o->s3;
    const char *endpoint = s->settings.endpoint, *scheme = "https://", *base = "";
    const bool in_path = is_in_path(s);
    weft_buf authority = {0};
    if (endpoint) {
        const char *after = strstr(endpoint, "://") + 3;
        scheme = endpoint[4] == 's' ? "https://" : "http://";
        base = strchr(after, '/') ? strchr(after, '/') : "";
        weft_buf_printf(&authority, "%.*s", (int)strcspn(after, "/"), after);
    } else {
        weft_buf_printf(&authority, "s3.%s.amazonaws.com%s", o->region,
                        strncmp(o->region, "cn-", 3) ? "" : ".cn");
    }
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&authority));
    weft_buf_printf(&o->host, "%s%s%s", in_path ? "" : s->bucket, in_path ? "" : ".",
                    authority.data);
    weft_buf_printf(&o->path, "%s/", base);
    if (in_path) {
        weft_uri_encode(&o->path, s->bucket, false);
        weft_buf_printf(&o->path, "/");
    }
    weft_uri_encode(&o->path, o->request->key, true);
    weft_buf_printf(&o->url, "%s%s%s%s", scheme, o->host.data, o->path.data,
                    o->request->query_count ? "?" : "");
    WEFT_GO(weft_canonical_query(o->request->query, o->request->query_count, &o->url));
out:
    weft_buf_free(&authority);
    WEFT_TRY(status);
    WEFT_TRY(weft_buf_check(&o->host));
    WEFT_TRY(weft_buf_check(&o->path));
    return weft_buf_check(&o->url);
}

/* ---- errors -------------------------------------------------------------------------------- */

static bool has_code(const char *code, const char *const *codes, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(code, codes[i]))
            return true;
    return false;
}

/* Failures that pass although their status says otherwise. A reply with status 200 may contain an
 * error: the server had sent the status before it knew. It may also end before its last element. */
static bool is_transient(int status, const char *body)
{
    static const char *const codes[] = {"RequestTimeout", "SlowDown", "InternalError",
                                        "ServiceUnavailable", "Throttling"};
    char code[64];
    if (weft_http_is_success(status) && weft_xml_is_cut(body))
        return true;
    if (status == 0 || !body || !strstr(body, "<Error>"))
        return false;
    weft_xml_text(strstr(body, "<Error>"), "Code", code, sizeof code);
    return has_code(code, codes, WEFT_COUNT(codes));
}

/* Seconds that the server's clock is ahead of this machine's; 0: not known. */
static int64_t clock_ahead(const weft_http_reply *reply)
{
    struct tm date = {0};
    return strptime(reply->date, "%a, %d %b %Y %H:%M:%S GMT", &date)
               ? (int64_t)timegm(&date) - (int64_t)time(NULL)
               : 0;
}

/* A refusal without a body, as of HEAD, has no code: then the dates decide. A request that is not
 * signed has no date. Servers accept signatures of 15 minutes. */
static bool is_of_clock(const weft_s3 *s, const weft_http_reply *reply, const char *code)
{
    enum { ACCEPTED_SECONDS = 900 };
    static const char *const clock[] = {"RequestTimeTooSkewed", "RequestExpired"};
    return has_code(code, clock, WEFT_COUNT(clock)) ||
           (reply->status == 403 && !*code && s->settings.source != WEFT_AWS_UNSIGNED &&
            llabs(clock_ahead(reply)) > ACCEPTED_SECONDS);
}

static weft_message_class class_of(const weft_s3 *s, const weft_http_reply *reply, const char *code)
{
    const int status = reply->status;
    if (!strcmp(code, "NoSuchBucket") || !strcmp(code, "InvalidBucketName"))
        return WEFT_MSG_STORAGE_BUCKET;
    if (is_of_clock(s, reply, code))
        return WEFT_MSG_STORAGE_CLOCK;
    if (status == 404)
        return WEFT_MSG_FILE_NOT_FOUND;
    if (status == 412)
        return WEFT_MSG_FILE_CHANGED;
    if (status == 401 || status == 403 || !strcmp(code, "ExpiredToken") ||
        !strcmp(code, "InvalidToken"))
        return WEFT_MSG_STORAGE_DENIED;
    return WEFT_MSG_STORAGE_REQUEST;
}

/* A server that may not list the bucket refuses missing objects, too, so that their names stay
 * unknown. */
static const char *remedy_of_denial(const weft_s3_request *q)
{
    if (!*q->key)
        return "Check the keys or AWS_PROFILE. A list needs the permission s3:ListBucket for the "
               "bucket";
    if (!strcmp(q->method, "HEAD"))
        return "Check the keys or AWS_PROFILE, and the permission s3:GetObject. Without "
               "s3:ListBucket for the bucket, a missing object is refused as well";
    return "Check the keys or AWS_PROFILE, and the bucket's policy for this request";
}

static const char *remedy_of(weft_message_class kind, const weft_s3_request *q)
{
    switch (kind) {
    case WEFT_MSG_STORAGE_BUCKET:
        return "Correct the bucket's name, or AWS_ENDPOINT_URL_S3 and AWS_PROFILE";
    case WEFT_MSG_STORAGE_CLOCK:
        return "Set the clock of this machine; `date -u` and the server's time differ";
    case WEFT_MSG_STORAGE_DENIED: return remedy_of_denial(q);
    case WEFT_MSG_FILE_CHANGED:
        return "The object was rewritten while it was in use; run the command again";
    case WEFT_MSG_FILE_NOT_FOUND: return "Check the name with `aws s3 ls`";
    default: return "Check the endpoint and the region";
    }
}

static weft_status fail(const weft_s3 *s, const weft_s3_request *q, const weft_http_reply *reply,
                        const char *location, const char *region)
{
    char code[64], text[200], number[16];
    const char *error = reply->body.data ? strstr(reply->body.data, "<Error>") : NULL;
    weft_xml_text(error, "Code", code, sizeof code);
    weft_xml_text(error, "Message", text, sizeof text);
    snprintf(number, sizeof number, "%d", reply->status);
    const weft_message_class kind = class_of(s, reply, code);
    return weft_error(
        kind,
        WEFT_AT(.file = location, .value = *code ? code : number,
                WEFT_DETAILS(WEFT_WORD("method", q->method), WEFT_DETAIL("status", reply->status))),
        "%s at %s: status %d%s%s%s%s%s. %s.", q->method,
        s->settings.endpoint ? s->settings.endpoint : region, reply->status, *code ? ", " : "",
        code, *text ? ": " : "", text,
        weft_http_is_success(reply->status) && !error ? ", but the end of the reply is missing"
                                                      : "",
        remedy_of(kind, q));
}

/* ---- sending ------------------------------------------------------------------------------- */

static void copy_region(weft_s3 *s, char region[REGION_BYTES])
{
    pthread_mutex_lock(&s->lock);
    memcpy(region, s->region, REGION_BYTES);
    pthread_mutex_unlock(&s->lock);
}

/* Whether the reply says that the bucket is in another region than the request's, which is used
 * from now on and replaces `region`. Another thread may have learned it meanwhile. */
static bool learn_region(weft_s3 *s, const weft_http_reply *reply, char region[REGION_BYTES])
{
    char right[REGION_BYTES];
    const bool refused = reply->status == 301 || reply->status == 307 || reply->status == 400;
    snprintf(right, sizeof right, "%s", reply->region);
    if (!*right && reply->body.data && strstr(reply->body.data, "<Region>"))
        weft_xml_text(reply->body.data, "Region", right, sizeof right);
    if (!refused || !*right || !strcmp(right, region))
        return false;
    pthread_mutex_lock(&s->lock);
    memcpy(s->region, right, sizeof right);
    pthread_mutex_unlock(&s->lock);
    memcpy(region, right, sizeof right);
    return true;
}

static weft_status send_once(weft_s3 *s, const weft_s3_request *q, const char *location,
                             const char *region, weft_http_reply *reply)
{
    sending o = {.s3 = s, .request = q, .region = region};
    weft_status_code status = WEFT_OK;
    WEFT_GO(make_address(&o));
    WEFT_GO(weft_sha256_hex(q->body ? q->body : "", q->body_bytes, o.hash));
    status = weft_http_send(s->http,
                            &(weft_http_request){.method = q->method,
                                                 .url = o.url.data,
                                                 .location = location,
                                                 .body = q->body,
                                                 .body_bytes = q->body_bytes,
                                                 .to = q->to,
                                                 .sink = q->sink,
                                                 .to_bytes = q->to_bytes,
                                                 .range = q->range,
                                                 .attempts = s->settings.attempts,
                                                 .uninterrupted = q->uninterrupted,
                                                 .prepare = sign,
                                                 .transient = is_transient,
                                                 .user = &o},
                            reply);
out:
    weft_buf_free(&o.url);
    weft_buf_free(&o.host);
    weft_buf_free(&o.path);
    return status;
}

weft_status weft_s3_send(weft_s3 *s, const weft_s3_request *q, weft_http_reply *reply)
{
    weft_buf location = {0};
    char region[REGION_BYTES];
    *reply = (weft_http_reply){0};
    copy_region(s, region);
    weft_buf_printf(&location, "s3://%s%s%s", s->bucket, *q->key ? "/" : "", q->key);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&location));
    WEFT_GO(send_once(s, q, location.data, region, reply));
    if (learn_region(s, reply, region)) {
        weft_http_reply_free(reply);
        WEFT_GO(send_once(s, q, location.data, region, reply));
    }
    const bool error = reply->body.data && strstr(reply->body.data, "<Error>");
    if (!weft_http_is_success(reply->status) || error || weft_xml_is_cut(reply->body.data))
        WEFT_GO(fail(s, q, reply, location.data, region));
out:
    weft_buf_free(&location);
    if (status != WEFT_OK) {
        weft_http_reply_free(reply);
        *reply = (weft_http_reply){0};
    }
    return status;
}
