/* Ids of plans and of their inputs: FNV-1a, printed as 16 hexadecimal digits. */
#ifndef WEFT_PLAN_ID_HASH_H
#define WEFT_PLAN_ID_HASH_H

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#define WEFT_ID_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t weft_id_mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline void weft_id_print(uint64_t hash, char text[20])
{
    snprintf(text, 20, "%016" PRIx64, hash);
}

#endif
