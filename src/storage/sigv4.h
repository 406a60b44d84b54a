/* AWS Signature Version 4: functions of numbers and strings, without clock, network or files.
 *
 *     request ──> canonical request ── SHA-256 ──> string to sign ── HMAC by the key of the day ──>
 *     value of the Authorization header
 *
 * Paths are signed as they are sent, encoded once and not normalized, as S3 expects. */
#ifndef WEFT_STORAGE_SIGV4_H
#define WEFT_STORAGE_SIGV4_H

#include "base/memory.h"
#include "storage/sha256.h"

/* Appends text with all bytes but letters, digits and "-._~" as %XX. `slashes`: '/' stays, too. */
void weft_uri_encode(weft_buf *to, const char *text, bool slashes);

/* A name and its value: of a header (name in lower case) or a query (decoded). Borrowed. */
typedef struct weft_name_value {
    const char *name, *value;
} weft_name_value;

typedef struct weft_sigv4_keys {
    const char *access_key, *secret_key; /* borrowed */
    const char *region, *service;        /* "us-east-1", "s3" */
} weft_sigv4_keys;

typedef struct weft_sigv4_request {
    const char *method;
    const char *path; /* encoded: "/bucket/a%20b" */
    const weft_name_value *query;
    int query_count;
    const weft_name_value *header; /* all headers to sign, with host and x-amz-date */
    int header_count;
    const char *payload_hash; /* value of x-amz-content-sha256 */
    const char *date;         /* value of x-amz-date: "20150830T123600Z" */
} weft_sigv4_request;

/* Appends the query sorted and encoded, "a=1&b=": as it is signed and sent. */
weft_status weft_canonical_query(const weft_name_value *query, int count, weft_buf *to);
/* Appends the canonical request. */
weft_status weft_canonical_request(const weft_sigv4_request *request, weft_buf *to);
/* Appends the value of the Authorization header. The secret key is in no output. */
weft_status weft_sigv4_authorization(const weft_sigv4_keys *keys, const weft_sigv4_request *request,
                                     weft_buf *to);
/* "20150830T123600Z" of seconds since 1970. */
void weft_sigv4_date(int64_t seconds, char date[17]);

#endif
