/* Allocation: checked heap calls with a failure switch for tests, arenas, growable buffers. */
#ifndef WEFT_BASE_MEMORY_H
#define WEFT_BASE_MEMORY_H

#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Heap. NULL on failure (no message: the caller reports the purpose). Memory is zeroed. */
void *weft_alloc(int64_t bytes);
/* `count` elements of `size` bytes each. NULL also if the product is more than an int64_t. */
void *weft_calloc(int64_t count, size_t size);
void *weft_realloc(void *ptr, int64_t bytes); /* new bytes are not zeroed */
void weft_free(void *ptr);                    /* accepts NULL */
char *weft_strdup(const char *text);
/* Buffers that kernels see begin at multiples of this: a cache line, the widest vector. */
enum { WEFT_ALIGNMENT = 64 };
static inline int64_t weft_aligned(int64_t bytes) /* rounded up to one */
{
    return (bytes + WEFT_ALIGNMENT - 1) / WEFT_ALIGNMENT * WEFT_ALIGNMENT;
}
/* So aligned, not zeroed; free with weft_free. */
void *weft_alloc_aligned(int64_t bytes);
/* Asks the system for pages of 2 MiB for a new block of weft_alloc_aligned(). Blocks below 32 MiB
 * and blocks of a replaced source of memory stay as they are. Kernels read columns, and rows of a
 * head, that are some KiB apart. With pages of 4 KiB such reads often wait for the address of a
 * page. */
void weft_use_large_pages(void *block, int64_t bytes);

/* Source of the process's memory: functions that replace malloc, realloc and free. Several threads
 * may call them at a time. */
typedef struct weft_memory_source {
    /* `alignment` is a power of two, 16 or more. The content is undefined. NULL: out of memory. */
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    /* Same contract as realloc, with an alignment of 16. NULL: out of memory, and `ptr` is
     * unchanged. */
    void *(*realloc)(void *user, void *ptr, size_t bytes);
    void (*free)(void *user, void *ptr); /* `ptr` is not NULL */
    void *user;
} weft_memory_source;
/* Replaces the source of memory (copied; NULL: the C library). Returns WEFT_E_ARG while memory of
 * the earlier source is in use. No other thread may call weft meanwhile. */
weft_status weft_memory_set_source(const weft_memory_source *source);

/* Tests: the n-th allocation of this thread from now (1 = the next) fails, once; 0 switches off.
 * weft_alloc_count() counts this thread's allocations, to find where the loop over n ends. */
void weft_alloc_fail_at(int64_t n);
int64_t weft_alloc_count(void);

/* Arena: objects that live and die together. Not thread safe. */
typedef struct weft_arena weft_arena;
weft_arena *weft_arena_create(void); /* NULL: out of memory */
void weft_arena_free(weft_arena *arena);
/* Zeroed, 16-byte aligned; NULL: out of memory. */
void *weft_arena_alloc(weft_arena *arena, int64_t bytes);
void *weft_arena_calloc(weft_arena *arena, int64_t count, size_t size);
char *weft_arena_strdup(weft_arena *arena, const char *text);
char *weft_arena_printf(weft_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int64_t weft_arena_bytes(const weft_arena *arena); /* reserved in all */

/* Sets the pointer `ptr` to `count` zeroed elements on the heap or in an arena, or to NULL, and
 * checks it with WEFT_ALLOCATED (base/status.h):
 *   WEFT_TRY(WEFT_NEW(order, count, "the order of %" PRId64 " tasks", count)); */
#define WEFT_NEW(ptr, count, ...)                                                                  \
    WEFT_ALLOCATED((ptr) = weft_calloc((count), sizeof *(ptr)), __VA_ARGS__)
#define WEFT_ARENA_NEW(arena, ptr, count, ...)                                                     \
    WEFT_ALLOCATED((ptr) = weft_arena_calloc((arena), (count), sizeof *(ptr)), __VA_ARGS__)

/* Growable byte buffer and string builder. Zero-initialise; `data` is always NUL-terminated once
 * something was appended. Sticky failure: after an allocation fails `failed` is set, further
 * appends do nothing, and weft_buf_check() reports it. */
typedef struct weft_buf {
    char *data;
    int64_t len; /* bytes, without the NUL */
    int64_t capacity;
    bool failed;
} weft_buf;
void weft_buf_append(weft_buf *buf, const void *bytes, int64_t len);
void weft_buf_printf(weft_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void weft_buf_vprintf(weft_buf *buf, const char *fmt, va_list args);
weft_status weft_buf_check(const weft_buf *buf);
void weft_buf_free(weft_buf *buf);

/* Makes room for one more element in a heap array of `count` elements whose capacity is kept in
 * *capacity: WEFT_E_MEMORY leaves the array as it was.
 *   WEFT_TRY(weft_grow((void **)&list, count, &capacity, sizeof *list)); list[count++] = ...; */
weft_status weft_grow(void **array, int64_t count, int64_t *capacity, int64_t element_bytes);

/* Makes the C library map each block of 512 KiB and more on its own: the system gets the block back
 * when it is freed. By default the library raises this size to the size of the largest freed block.
 * Large blocks then share the heap with small blocks and leave holes, which stay resident: 2 to
 * 3 MiB of a small run on two ranks. Call it first in a program. A library must not change its
 * host's heap. */
void weft_memory_map_large_blocks(void);
/* Returns freed memory to the system. Call after a phase with a high peak: its freed blocks would
 * otherwise stay resident next to the blocks of the next phase. */
void weft_memory_trim(void);
/* Bytes of this process that are in memory now; 0: not known. */
int64_t weft_memory_resident(void);
/* Resident bytes that no file backs: heap and stacks, without code. */
int64_t weft_memory_anonymous(void);
/* Bytes of the C library's heap in use, of all threads, and resident bytes of code that libraries
 * generated; 0: not known. */
int64_t weft_memory_library_use(void);
/* Peak of the resident bytes so far. */
int64_t weft_memory_peak(void);

/* Bytes that this process can still allocate without taking memory from another process: the
 * minimum of the machine's available memory and the limit of the control group. INT64_MAX:
 * unknown. */
int64_t weft_memory_available(void);
/* Bytes of memory of the machine, or of this process's control group if that has less. INT64_MAX:
 * unknown. */
int64_t weft_memory_machine(void);
/* Limits this process to `bytes` more of private memory from now on. Allocations above the limit
 * fail, also in libraries. 0: no limit. False: the system does not support a limit. */
bool weft_memory_limit(int64_t bytes);

/* WEFT_E_MEMORY when `bytes` are more than the machine's memory and swap together: Linux promises
 * what it does not have and kills at random later. `what` begins the message ("the weights of the
 * model"). */
weft_status weft_memory_check(int64_t bytes, const char *what);

/* "12.3 MiB" in text[32]; returns text. */
const char *weft_format_bytes(int64_t bytes, char text[32]);
/* "1 h 02 min", "3 min 20 s", "42.1 s", "4.21 s", "12.3 ms", "85 us". */
const char *weft_format_seconds(double seconds, char text[32]);
/* The end of a regular noun after a count: "" for 1, otherwise "s". */
const char *weft_plural(int64_t count);

#endif
