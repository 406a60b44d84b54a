#include "allocations.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static atomic_bool counting;
static atomic_long own, others, largest, aligned;

#if COUNTS_ALLOCATIONS
/* Every allocation of the process calls this function; the return address identifies the caller. */
extern const char __executable_start, etext;

static void note_from(const char *caller, size_t bytes, bool is_aligned)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed))
        return;
    if (caller < &__executable_start || caller >= &etext) {
        atomic_fetch_add(&others, 1);
        return;
    }
    atomic_fetch_add(&own, 1);
    if (is_aligned)
        atomic_fetch_add(&aligned, (long)bytes);
    if ((long)bytes > atomic_load(&largest))
        atomic_store(&largest, (long)bytes);
}
#define note(bytes) note_from(__builtin_return_address(0), bytes, false)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void *malloc(size_t bytes)
{
    note(bytes);
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
    note(n * bytes);
    return __libc_calloc(n, bytes);
}
void *realloc(void *p, size_t bytes)
{
    note(bytes);
    return __libc_realloc(p, bytes);
}
void *aligned_alloc(size_t align, size_t bytes)
{
    note_from(__builtin_return_address(0), bytes, true);
    return __libc_memalign(align, bytes);
}
void *memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes)
{
    note(bytes);
    return __libc_memalign(align, bytes);
}
int posix_memalign(void **p, size_t align, size_t bytes)
{
    note(bytes);
    *p = __libc_memalign(align, bytes);
    return *p ? 0 : 12;
}

#endif

void allocations_begin(void)
{
    atomic_store(&own, 0);
    atomic_store(&others, 0);
    atomic_store(&largest, 0);
    atomic_store(&aligned, 0);
    atomic_store(&counting, true);
}

allocations allocations_end(void)
{
    atomic_store(&counting, false);
    return (allocations){atomic_load(&own), atomic_load(&others), atomic_load(&largest),
                         atomic_load(&aligned)};
}
