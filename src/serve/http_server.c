#include "serve/http_server.h"

#include "base/listen_address.h"
#include "base/log.h"
#include "serve/event_stream.h"
#include "serve/routes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_BYTES = 16 << 10, IDLE_SECONDS = 30, STOP_MS = 200 };

/* ---- answers -------------------------------------------------------------------------------- */

static struct MHD_Response *copy_text(const char *text, size_t count)
{
    return MHD_create_response_from_buffer(count, (void *)text, MHD_RESPMEM_MUST_COPY);
}

static void add_range_headers(struct MHD_Response *response, const weft_serve_reply *reply)
{
    char text[96];
    if (reply->file || reply->status == 416)
        MHD_add_response_header(response, "Accept-Ranges", "bytes");
    if (reply->status == 206)
        snprintf(text, sizeof text, "bytes %" PRId64 "-%" PRId64 "/%" PRId64, reply->first,
                 reply->first + reply->count - 1, reply->total);
    else
        snprintf(text, sizeof text, "bytes */%" PRId64, reply->total);
    if (reply->status == 206 || reply->status == 416)
        MHD_add_response_header(response, "Content-Range", text);
}

static struct MHD_Response *make_response(weft_serve_reply *reply)
{
    struct MHD_Response *response = NULL;
    const char *type = reply->type;
    if (reply->file) {
        response = MHD_create_response_from_fd_at_offset64((uint64_t)reply->count, reply->file - 1,
                                                           (uint64_t)reply->first);
        if (!response)
            close(reply->file - 1);
    } else if (reply->json) {
        char *text = json_dumps(reply->json, JSON_COMPACT);
        type = "application/json";
        response = text ? copy_text(text, strlen(text)) : NULL;
        free(text);
    } else {
        response = copy_text(reply->text.data ? reply->text.data : "", (size_t)reply->text.len);
    }
    if (response && type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (response)
        add_range_headers(response, reply);
    json_decref(reply->json);
    weft_buf_free(&reply->text);
    return response;
}

static struct MHD_Response *make_stream(weft_serve_request *r, weft_serve_reply *reply)
{
    pthread_mutex_lock(&r->server->lock);
    struct MHD_Response *response = weft_event_stream_open(r, reply->text.data);
    pthread_mutex_unlock(&r->server->lock);
    weft_buf_free(&reply->text);
    if (response) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
        MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    }
    return response;
}

static enum MHD_Result send_reply(weft_serve_request *r, weft_serve_reply reply)
{
    const unsigned status = reply.status;
    struct MHD_Response *response = reply.streams ? make_stream(r, &reply) : make_response(&reply);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (reply.policy) {
        MHD_add_response_header(response, "Content-Security-Policy", reply.policy);
        MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    }
    if (reply.allow)
        MHD_add_response_header(response, "Allow", reply.allow);
    if (reply.waits || status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    const enum MHD_Result result = MHD_queue_response(r->connection, status, response);
    MHD_destroy_response(response);
    pthread_mutex_lock(&r->server->lock);
    r->server->responses[status / 100 < 6 ? status / 100 : 5]++;
    pthread_mutex_unlock(&r->server->lock);
    return result;
}

/* ---- checks before the body ----------------------------------------------------------------- */

static const char *header(const weft_serve_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result count_lengths(void *cls, enum MHD_ValueKind kind, const char *key,
                                     const char *value)
{
    int *count = cls;
    (void)kind;
    (void)value;
    *count += !strcasecmp(key, "Content-Length") || !strcasecmp(key, "Transfer-Encoding");
    return MHD_YES;
}

/* Whether a Host is a loopback address or "localhost", with or without a port. */
static bool is_local_host(const char *host)
{
    char name[64];
    const size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    const char *port = length <= strlen(host) ? host + length : "";
    if (length >= sizeof name ||
        (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1))))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)length, host);
    return !strcasecmp(name, "localhost") || !strcmp(name, "[::1]") ||
           (!strncmp(name, "127.", 4) && strspn(name, "0123456789.") == strlen(name));
}

/* A page of another site must not use a server without tokens through the user's browser. The name
 * of such a site may resolve to this machine. */
static bool is_foreign(const weft_serve_request *r)
{
    const char *origin = header(r, "Origin"), *host = header(r, "Host"),
               *slashes = origin ? strstr(origin, "://") : NULL;
    return !host || !is_local_host(host) ||
           (origin && !(slashes && !strcasecmp(slashes + 3, host)));
}

/* Whether the request has fields. A cancel has none, and a duplicate may have none. */
static bool has_fields(weft_serve_request *r)
{
    const bool posts = !strcmp(r->method, "POST");
    const char *last = r->part[3];
    if (!strcmp(r->method, "PATCH"))
        return true;
    if (!posts || r->parts != 4)
        return posts;
    r->without_body = !strcmp(last, "duplicate") && !header(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    return !strcmp(last, "remix") || !strcmp(last, "move") ||
           (!strcmp(last, "duplicate") && !r->without_body);
}

/* Returns false if the request is accepted so far. */
static bool refuse_early(weft_serve_request *r, weft_serve_reply *reply)
{
    weft_server *s = r->server;
    int lengths = 0;
    const char *length = header(r, "Content-Length");
    r->owner = weft_access_tokens_name(&s->tokens, header(r, "Authorization"));
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_lengths, &lengths);
    if (lengths > 1)
        *reply = weft_serve_error(400, "ambiguous_length", NULL,
                                  "the request has two lengths of its body");
    else if (!header(r, "Host"))
        *reply = weft_serve_error(400, "missing_host", "Host", "the request has no Host");
    else if (s->tokens.count && !weft_routes_is_open(r) && !r->owner)
        *reply = weft_serve_error(401, "invalid_token", "Authorization",
                                  "the request has no valid bearer token");
    else if (!s->tokens.count && is_foreign(r))
        *reply = weft_serve_error(
            403, "foreign_origin", "Origin",
            "without tokens the server answers only the pages and names of this machine");
    else if (has_fields(r) && !weft_serve_request_begin_body(r))
        *reply = weft_serve_error(
            415, "unsupported_type", "Content-Type",
            "the header Content-Type must be application/json or multipart/form-data");
    else if (length && strtod(length, NULL) > (r->is_form ? WEFT_FORM_LIMIT : WEFT_JSON_LIMIT))
        *reply = weft_serve_error(413, "too_large", "Content-Length", "the body is too large");
    else
        return false;
    return true;
}

/* ---- requests ------------------------------------------------------------------------------- */

static weft_serve_request *begin_request(weft_server *s, struct MHD_Connection *connection,
                                         const char *url, const char *method)
{
    weft_serve_request *r = weft_calloc(1, sizeof *r);
    char *at, *save;
    if (!r)
        return NULL;
    *r = (weft_serve_request){
        .server = s, .connection = connection, .method = method, .path = weft_strdup(url)};
    for (int i = 0; i <= WEFT_PATH_PARTS; i++)
        r->part[i] = "";
    if (!r->path) {
        weft_serve_request_free(r);
        return NULL;
    }
    for (at = strtok_r(r->path, "/", &save); at && r->parts < WEFT_PATH_PARTS;
         at = strtok_r(NULL, "/", &save))
        r->part[r->parts++] = at;
    return r;
}

/* Long answers hold their connections, and others need some. A request that was stored already is
 * exempt: its client needs the answer. */
static bool is_too_long(const weft_serve_request *r, const weft_serve_reply *reply)
{
    return (reply->waits || reply->streams) && !r->held && r->stage == 0 &&
           weft_connections_are_busy(&r->server->connections);
}

/* An uploaded file could not be written: the disk may be full. */
static weft_serve_reply refuse_upload(const weft_serve_request *r)
{
    errno = r->upload_error;
    (void)weft_error_errno(WEFT_AT(.file = r->server->state), "cannot store an uploaded file");
    return weft_serve_own_error();
}

/* Answers, or suspends the connection until the next change. */
static enum MHD_Result answer(weft_serve_request *r)
{
    weft_server *s = r->server;
    weft_serve_reply reply;
    weft_connections_set(&s->connections, r->connection, WEFT_CONNECTION_ANSWERING);
    pthread_mutex_lock(&s->lock);
    if (r->too_large)
        reply =
            weft_serve_error(413, "too_large", NULL, "the body or one of its fields is too large");
    else if (r->upload_error)
        reply = refuse_upload(r);
    else
        reply = weft_routes_answer(r);
    if (is_too_long(r, &reply)) {
        weft_buf_free(&reply.text);
        reply = weft_serve_error(
            503, "busy", NULL, "the server waits for many requests; send the request again later");
    }
    if (reply.waits && !s->stopping) {
        r->asleep = r->held = true;
        r->next = s->waiting;
        s->waiting = r;
        MHD_suspend_connection(r->connection);
        pthread_mutex_unlock(&s->lock);
        return MHD_YES;
    }
    pthread_mutex_unlock(&s->lock);
    if (reply.waits)
        reply = weft_serve_error(503, "stopping", NULL, "the server is stopping");
    return send_reply(r, reply);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *bytes, void **context)
{
    weft_serve_request *r = *context;
    weft_serve_reply reply;
    (void)version;
    if (!r) {
        r = *context = begin_request(cls, connection, url, method);
        if (!r)
            return MHD_NO;
        weft_connections_set(&r->server->connections, connection, WEFT_CONNECTION_RECEIVING);
        r->refused = refuse_early(r, &reply);
        return r->refused ? send_reply(r, reply) : MHD_YES;
    }
    if (*bytes) {
        const bool ok = weft_serve_request_receive(r, data, *bytes);
        *bytes = 0;
        return ok ? MHD_YES : MHD_NO;
    }
    return r->refused ? MHD_YES : answer(r);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code)
{
    weft_server *s = cls;
    weft_serve_request *r = *context;
    (void)code;
    weft_connections_set(&s->connections, connection, WEFT_CONNECTION_IDLE);
    if (!r)
        return;
    pthread_mutex_lock(&s->lock);
    for (weft_serve_request **at = &s->waiting; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&s->lock);
    weft_serve_request_free(r);
    *context = NULL;
}

void weft_http_server_wake(weft_server *s)
{
    weft_serve_request *r = s->waiting;
    s->waiting = NULL;
    while (r) {
        weft_serve_request *next = r->next;
        r->asleep = false;
        r->next = NULL;
        MHD_resume_connection(r->connection);
        r = next;
    }
}

/* ---- start and stop ------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static weft_status check_exposed(const weft_server *s, const struct sockaddr *address)
{
    if (s->tokens.count)
        return WEFT_OK;
    if (!is_loopback(address))
        return weft_error(WEFT_MSG_SERVER_TOKEN,
                          WEFT_AT(.key = "--listen", .value = s->options->listen),
                          "other machines can reach this address, so requests need a token. Create "
                          "one with --new-token NAME, or listen at 127.0.0.1.");
    weft_warning(WEFT_MSG_SERVER_UNPROTECTED, WEFT_AT(.value = s->options->listen),
                 "every user and program of this machine can use the server, because no token "
                 "exists. --new-token NAME creates one.");
    return WEFT_OK;
}

static void drop_log(void *cls, const char *format, va_list args)
{
    (void)cls;
    (void)format;
    (void)args;
}

static struct MHD_Daemon *start_daemon(weft_server *s, const struct addrinfo *address, bool secure)
{
    const struct MHD_OptionItem tls[] = {
        {secure ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, 0, s->key},
        {MHD_OPTION_HTTPS_MEM_CERT, 0, s->certificate},
        {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG |
            (secure ? MHD_USE_TLS : 0) | (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0),
        0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, drop_log, NULL,
        MHD_OPTION_SOCK_ADDR, address->ai_addr, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEADER_BYTES, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(s->connections.limit + WEFT_CONNECTIONS_SLACK), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_SECONDS, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, weft_connections_notify, &s->connections, MHD_OPTION_ARRAY,
        tls, MHD_OPTION_END);
}

/* The library does not report why it cannot start. An address that plain HTTP can use is not the
 * cause. */
static weft_status refuse_start(weft_server *s, const struct addrinfo *address)
{
    const int cause = errno;
    struct MHD_Daemon *plain = s->key ? start_daemon(s, address, false) : NULL;
    if (!plain)
        return weft_error(WEFT_MSG_SERVER_LISTEN,
                          WEFT_AT(.key = "--listen", .value = s->options->listen),
                          "the address cannot be used: %s", strerror(cause));
    MHD_stop_daemon(plain);
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) == MHD_NO)
        return weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_AT(.key = "--tls-cert"),
                          "libmicrohttpd of this machine has no TLS");
    return weft_error(WEFT_MSG_OPTION_INVALID,
                      WEFT_AT(.file = s->options->certificate, .key = "--tls-cert"),
                      "TLS cannot start. Give a certificate in PEM, and its private key without a "
                      "password as --tls-key.");
}

weft_status weft_http_server_start(weft_server *s, int *port)
{
    struct addrinfo *address = NULL;
    WEFT_TRY(weft_connections_init(&s->connections));
    WEFT_TRY(weft_listen_address_read(s->options->listen, "--listen", &address));
    weft_status_code status = WEFT_OK;
    WEFT_GO(check_exposed(s, address->ai_addr));
    s->daemon = start_daemon(s, address, s->key != NULL);
    if (!s->daemon)
        WEFT_GO(refuse_start(s, address));
    *port = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
out:
    freeaddrinfo(address);
    return status;
}

void weft_http_server_stop(weft_server *s)
{
    if (!s->daemon)
        return;
    const MHD_socket listening = MHD_quiesce_daemon(s->daemon);
    if (listening != MHD_INVALID_SOCKET)
        close(listening);
    for (int ms = 0; ms < STOP_MS; ms += 10) { /* suspended connections must not exist at the end */
        pthread_mutex_lock(&s->lock);
        weft_http_server_wake(s);
        weft_event_streams_changed(s, NULL);
        pthread_mutex_unlock(&s->lock);
        if (!MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections)
            break;
        usleep(10000);
    }
    MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
}
