/* Requests to HTTP servers, by libcurl, which is loaded when the first client is opened.
 *
 *     s3, storage_http ── send ──> attempts with growing delays ── libcurl ──> server
 *
 * Connections are kept and used again by the next request. All functions are safe from any thread.
 * A forked child uses connections of its own. */
#ifndef WEFT_STORAGE_HTTP_H
#define WEFT_STORAGE_HTTP_H

#include "storage/byte_sink.h"
#include "storage/sigv4.h"

typedef struct weft_http weft_http;

enum { WEFT_HTTP_MOST_HEADERS = 16 };

/* Headers of a request, besides the headers that libcurl adds. */
typedef struct weft_http_headers {
    char *line[WEFT_HTTP_MOST_HEADERS]; /* "name: value"; owned */
    int count;
} weft_http_headers;
weft_status weft_http_headers_add(weft_http_headers *headers, const char *name, const char *value);

typedef struct weft_http_reply weft_http_reply;

enum { WEFT_HTTP_RANGE_TEXT = 64 };

/* The bytes that a request asks for. An attempt after a cut one asks for the missing bytes. */
typedef struct weft_http_range {
    int64_t at, bytes; /* of the file */
    int64_t kept;      /* first bytes that earlier attempts received; weft_http_send sets them */
    /* Compares the range and version of a reply with the requested ones, before its first byte is
     * used: `bytes` from byte `at` of the file. */
    weft_status (*check)(const void *user, int64_t at, int64_t bytes, const weft_http_reply *reply);
    const void *user;
} weft_http_range;
/* Value of the header Range of the next attempt: "bytes=5-9". */
void weft_http_range_print(const weft_http_range *range, char text[WEFT_HTTP_RANGE_TEXT]);

/* A request. Strings and buffers are borrowed. */
typedef struct weft_http_request {
    const char *method, *url;
    const char *location; /* in messages, in place of the URL */
    const void *body;     /* NULL: none */
    int64_t body_bytes;
    void *to; /* receives the body of a successful reply, `to_bytes`; NULL: reply->body does */
    const weft_byte_sink *sink; /* receives this body in place of `to`; NULL: `to` does */
    int64_t to_bytes;
    weft_http_range *range; /* `prepare` adds its header; NULL: the whole file */
    /* Most attempts without progress; 1: never repeated. 64 KiB of a range are progress. */
    int64_t attempts;
    int64_t seconds;    /* longest time of an attempt, which may be silent; 0: 30 s of silence */
    bool local;         /* a server of this machine: no proxy, one second to connect */
    bool follow;        /* redirections are followed */
    bool uninterrupted; /* no stop and no Ctrl-C ends the request: it cleans up */
    /* Adds headers before each attempt, as signatures contain the time; NULL: none. */
    weft_status (*prepare)(const void *user, weft_http_headers *headers);
    /* Whether a complete reply is a failure that passes, by its body; NULL: by its status alone. */
    bool (*transient)(int status, const char *body);
    const void *user;
} weft_http_request;

struct weft_http_reply {
    int status;       /* 200 */
    weft_buf body;    /* of a reply that does not fit into `to` */
    int64_t received; /* bytes written to `to` or taken by the sink, also by earlier attempts */
    int64_t length;   /* Content-Length; -1: none */
    int failures;     /* attempts before this one since the last progress */
    int64_t limit;    /* of the attempts that can help, by the cause of a missing reply */
    char etag[160], content_range[80], retry_after[40], region[40], date[40];
    char last_modified[40];
};

/* WEFT_E_UNSUPPORTED: libcurl is missing. */
weft_status weft_http_open(weft_http **http);
void weft_http_close(weft_http *http); /* accepts NULL */
/* Sends, and repeats what fails transiently. Any reply of the server is a success of this function;
 * the caller reads its status. A body that ends early is a failed attempt. */
weft_status weft_http_send(weft_http *http, const weft_http_request *request,
                           weft_http_reply *reply);
void weft_http_reply_free(weft_http_reply *reply);
bool weft_http_is_success(int status); /* 200 to 299 */

#endif
