/* SHA-256 (FIPS 180-4), for stored tokens. */
#ifndef WEFT_SERVE_SHA256_H
#define WEFT_SERVE_SHA256_H

#include <stddef.h>

/* Writes the digest as 64 hexadecimal digits and a NUL. */
void weft_sha256_hex(const void *data, size_t bytes, char hex[65]);

#endif
