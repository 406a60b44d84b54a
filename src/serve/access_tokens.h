/* Bearer tokens in STATE/tokens: lines "NAME SHA256". The tokens themselves are not stored. */
#ifndef WEFT_SERVE_ACCESS_TOKENS_H
#define WEFT_SERVE_ACCESS_TOKENS_H

#include "base/memory.h"

typedef struct weft_access_tokens {
    char (*hash)[65]; /* [count] */
    int64_t count, capacity;
} weft_access_tokens;

/* Reads the tokens of a state folder. Without the file count is 0. */
weft_status weft_access_tokens_read(const char *folder, weft_access_tokens *tokens);
void weft_access_tokens_free(weft_access_tokens *tokens);
/* Whether the header `Authorization` (NULL: none) has one of the tokens. */
bool weft_access_tokens_admit(const weft_access_tokens *tokens, const char *authorization);
/* Creates a random token with a name, stores its hash and writes the token to `token`. */
weft_status weft_access_tokens_create(const char *folder, const char *name, char token[64]);
/* Writes `bytes` random bytes as hexadecimal digits and a NUL. */
weft_status weft_random_hex(int bytes, char *hex);

#endif
