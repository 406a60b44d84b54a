/* Ids of plans, of their inputs, and of kernels: FNV-1a. */
#ifndef WEFT_BASE_ID_HASH_H
#define WEFT_BASE_ID_HASH_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_ID_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t weft_id_mix(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
