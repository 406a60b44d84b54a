/* Bearer tokens in STATE/tokens: lines "NAME SHA256", with the limits of the token, if any:
 * "NAME SHA256 jobs=4 seconds=3600". The tokens themselves are not stored. */
#ifndef WEFT_SERVE_ACCESS_TOKENS_H
#define WEFT_SERVE_ACCESS_TOKENS_H

#include "base/memory.h"

enum { WEFT_TOKEN_NAME = 64 }; /* longest name */

/* Limits of a token's jobs; 0 (default): none. */
typedef struct weft_token_limits {
    int64_t jobs;   /* that wait or run at a time */
    double seconds; /* of generation in 24 hours, used and predicted */
} weft_token_limits;
typedef struct weft_access_token {
    char hash[65], name[WEFT_TOKEN_NAME + 1];
    weft_token_limits limits;
} weft_access_token;
typedef struct weft_access_tokens {
    weft_access_token *at; /* [count] */
    int64_t count, capacity;
} weft_access_tokens;

/* Reads the tokens of a state folder. Without the file count is 0. */
weft_status weft_access_tokens_read(const char *folder, weft_access_tokens *tokens);
void weft_access_tokens_free(weft_access_tokens *tokens);
/* The name of the token that the header `Authorization` (NULL: none) has; NULL: it has none. */
const char *weft_access_tokens_name(const weft_access_tokens *tokens, const char *authorization);
/* The limits of the token `name`; NULL: none. */
weft_token_limits weft_access_tokens_limits(const weft_access_tokens *tokens, const char *name);
/* Creates a random token with a name, stores its hash and writes the token to `token`. */
weft_status weft_access_tokens_create(const char *folder, const char *name,
                                      const weft_token_limits *limits, char token[64]);
/* Writes `bytes` random bytes as hexadecimal digits and a NUL. */
weft_status weft_random_hex(int bytes, char *hex);

#endif
