/* Webhooks in the form of Standard Webhooks: signatures, the secret, and delays of repetitions. */
#ifndef WEFT_SERVE_WEBHOOK_H
#define WEFT_SERVE_WEBHOOK_H

#include "base/memory.h"

/* WEFT_WEBHOOK_SECRET: bytes of "whsec_" and 32 bytes in base64, with the NUL. */
enum { WEFT_WEBHOOK_ATTEMPTS = 8, WEFT_WEBHOOK_SECRET = 64, WEFT_WEBHOOK_SIGNATURE = 64 };

/* A signature's input; strings are borrowed. */
typedef struct weft_webhook_message {
    const char *id; /* the same in every attempt: a receiver ignores a repeated message */
    int64_t time;   /* of the attempt, seconds since 1970 */
    const char *body;
} weft_webhook_message;

/* Writes "v1," and the HMAC-SHA256 of "ID.TIME.BODY" in base64. WEFT_E_FORMAT: not a secret. */
weft_status weft_webhook_sign(const char *secret, const weft_webhook_message *message,
                              char signature[WEFT_WEBHOOK_SIGNATURE]);
/* Seconds between the attempt that failed as the `failures`-th one and the next: 1, 5, 25, ... 6 h;
 * about 11 h in all. */
double weft_webhook_delay(int failures);
/* Reads the secret of a state folder, which is created if it is missing (mode 0600). */
weft_status weft_webhook_secret(const char *state, char secret[WEFT_WEBHOOK_SECRET]);
/* Whether the URL is below one of the URLs `allowed`, such as "https://example.org/hooks/". */
bool weft_webhook_is_allowed(const char *url, const char *const *allowed, int count);

#endif
