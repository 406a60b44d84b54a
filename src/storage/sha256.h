/* SHA-256 and its HMAC, of libavutil: payload hashes and signatures of requests, stored tokens. */
#ifndef WEFT_STORAGE_SHA256_H
#define WEFT_STORAGE_SHA256_H

#include "base/memory.h"

enum { WEFT_SHA256_BYTES = 32, WEFT_SHA256_HEX = 65 }; /* hexadecimal: with the NUL */

/* SHA-256 of some bytes as lower-case hexadecimal. */
weft_status weft_sha256_hex(const void *data, int64_t bytes, char hex[WEFT_SHA256_HEX]);
weft_status weft_hmac_sha256(const void *key, int64_t key_bytes, const void *data, int64_t bytes,
                             uint8_t mac[WEFT_SHA256_BYTES]);
/* Writes a digest as lower-case hexadecimal. */
void weft_sha256_to_hex(const uint8_t digest[WEFT_SHA256_BYTES], char hex[WEFT_SHA256_HEX]);

#endif
