/* An S3 client of one bucket: signed requests, and errors with their cause.
 *
 * Payloads are signed with their SHA-256. Chunked uploads with trailers are never sent, and no
 * condition of a request is relied on that servers are known to ignore. */
#ifndef WEFT_STORAGE_S3_H
#define WEFT_STORAGE_S3_H

#include "storage/http.h"

typedef struct weft_s3 weft_s3;

/* A request. Strings and buffers are borrowed. */
typedef struct weft_s3_request {
    const char *method;
    const char *key; /* of the object, not encoded; "": the bucket */
    const weft_name_value *query;
    int query_count;
    weft_http_range *range; /* see weft_http_request; NULL: none */
    const char *if_match;   /* an ETag; NULL: none */
    const void *body;
    int64_t body_bytes;
    void *to; /* see weft_http_request, like `sink` and `to_bytes` */
    const weft_byte_sink *sink;
    int64_t to_bytes;
    bool uninterrupted;
} weft_s3_request;

/* Reads the settings of the AWS tools; sends nothing. */
weft_status weft_s3_open(const char *bucket, weft_s3 **s3);
void weft_s3_close(weft_s3 *s3); /* accepts NULL */
/* Sends and repeats. A status of 2xx is a success; all others are errors that name the object and
 * the server's code: WEFT_E_NOT_FOUND for a missing object. */
weft_status weft_s3_send(weft_s3 *s3, const weft_s3_request *request, weft_http_reply *reply);
/* The ETag. */
const char *weft_s3_version_of(const weft_http_reply *reply);
/* "http://127.0.0.1:9000" or "": the same names in two stores are different objects. */
const char *weft_s3_endpoint(const weft_s3 *s3);

#endif
