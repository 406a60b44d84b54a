/* Repetition of failed requests: which ones, and the delays. Functions of numbers and strings. */
#ifndef WEFT_STORAGE_HTTP_RETRY_H
#define WEFT_STORAGE_HTTP_RETRY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_HTTP_RETRY_FIRST_MS = 100,   /* maximum delay before the second attempt */
    WEFT_HTTP_RETRY_MOST_MS = 20000,  /* maximum delay without Retry-After */
    WEFT_HTTP_RETRY_AFTER_MS = 120000 /* maximum that Retry-After can set */
};

/* Status 0: no reply, because the connection failed. 408, 429, 500, 502, 503 and 504 are transient,
 * all others are final. */
bool weft_http_is_transient(int status);
/* Milliseconds before the attempt after `failures` (1, 2, ...) failed ones: exponential, with
 * `random` in [0, 1) as jitter. `retry_after` adds seconds, or the time to a date; "" or NULL:
 * none. `now`: seconds since 1970. */
int64_t weft_http_retry_ms(int failures, double random, const char *retry_after, int64_t now);

#endif
