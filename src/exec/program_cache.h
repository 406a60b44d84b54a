/* What was compiled, found again by what it was compiled from, and bounded in bytes.
 *
 * A key says everything that decides about a program: the graph before passes (its hash), the shape
 * of the mesh and the rank's place in it, and the options of passes, kernels and whatever else the
 * caller mixes in. It says no ranks of the job: a program is bound to a group when it is launched.
 * The value is the caller's: a program, or a program with its graphs. Values that somebody holds
 * stay; of the others the least recently used go when the bytes are more than were allowed. */
#ifndef WEFT_RUNTIME_PROGRAM_CACHE_H
#define WEFT_RUNTIME_PROGRAM_CACHE_H

#include "graph/mesh.h"

typedef struct weft_program_key {
    uint64_t graph, options; /* hashes */
    weft_mesh mesh;
    int index; /* in the mesh */
} weft_program_key;

typedef struct weft_program_cache weft_program_cache;
/* `release` frees a value. NULL: out of memory. */
weft_program_cache *weft_program_cache_create(int64_t max_bytes, void (*release)(void *value));
void weft_program_cache_free(weft_program_cache *cache); /* and all values; accepts NULL */
/* The value of `key`, held once more; NULL: there is none. */
void *weft_program_cache_take(weft_program_cache *cache, const weft_program_key *key);
/* Adds a value of so many bytes, held by the caller; the cache owns it from now on, also when this
 * fails, and has released it then. */
weft_status weft_program_cache_put(weft_program_cache *cache, const weft_program_key *key,
                                   void *value, int64_t bytes);
/* One hold less; the value must not be used after the last. */
void weft_program_cache_drop(weft_program_cache *cache, const void *value);

typedef struct weft_program_cache_counts {
    int64_t values, bytes;         /* there now */
    int64_t added, found, evicted; /* since the beginning */
} weft_program_cache_counts;
weft_program_cache_counts weft_program_cache_count(const weft_program_cache *cache);

#endif
