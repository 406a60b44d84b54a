/* An allocator for tests: counts, fails on request, and detects memory of other allocators. */
#ifndef TESTS_API_POOL_H
#define TESTS_API_POOL_H

#include <weft/core.h>

#include <stdatomic.h>

typedef struct pool {
    atomic_llong calls, blocks; /* allocations so far, and blocks in use */
    long long fail_at;   /* number of the allocation that fails, from 1; 0 (default): none fails */
    atomic_bool foreign; /* weft released memory of another allocator */
} pool;
/* Makes `p` the allocator of weft. */
weft_status_code use_pool(pool *p);

#endif
