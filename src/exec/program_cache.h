/* Cache of compiled programs, bounded in bytes.
 *
 * A key has all inputs of a compilation: the hash of the graph before passes, the mesh, the rank's
 * index in the mesh, and the options of passes, kernels and caller. A key has no ranks of the job,
 * because a program is attached to a group when it is launched. The caller defines the value: a
 * program, or a program with its graphs. A value that is in use stays. The least recently used of
 * the other values are evicted while the total exceeds the limit. */
#ifndef WEFT_EXEC_PROGRAM_CACHE_H
#define WEFT_EXEC_PROGRAM_CACHE_H

#include "graph/mesh.h"

typedef struct weft_program_key {
    uint64_t graph, options; /* hashes */
    weft_mesh mesh;
    int index; /* rank in the mesh */
} weft_program_key;

typedef struct weft_program_cache weft_program_cache;
/* `release` frees a value. Returns NULL when memory is exhausted. */
weft_program_cache *weft_program_cache_create(int64_t max_bytes, void (*release)(void *value));
/* Frees the cache and all values. Accepts NULL. */
void weft_program_cache_free(weft_program_cache *cache);
/* Returns the value of `key` and increments its use count; NULL: not cached. */
void *weft_program_cache_take(weft_program_cache *cache, const weft_program_key *key);
/* Adds a value of `bytes` bytes with use count 1. The cache owns the value; on an error the value
 * is already released. */
weft_status weft_program_cache_put(weft_program_cache *cache, const weft_program_key *key,
                                   void *value, int64_t bytes);
/* Decrements the use count. The caller must not use the value after its last drop. */
void weft_program_cache_drop(weft_program_cache *cache, const void *value);

typedef struct weft_program_cache_counts {
    int64_t values, bytes;         /* current */
    int64_t added, found, evicted; /* since creation */
} weft_program_cache_counts;
weft_program_cache_counts weft_program_cache_count(const weft_program_cache *cache);

#endif
