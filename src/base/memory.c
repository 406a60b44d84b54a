#include "base/memory.h"

#include <malloc.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static _Thread_local int64_t fail_at;
static _Thread_local int64_t allocation_count;

static bool allocation_allowed(int64_t bytes)
{
    allocation_count++;
    if (fail_at > 0 && --fail_at == 0)
        return false;
    return bytes >= 0;
}

void weft_alloc_fail_at(int64_t n)
{
    fail_at = n;
}

int64_t weft_alloc_count(void)
{
    return allocation_count;
}

/* ---- the source of memory -------------------------------------------------------------------- */

static weft_memory_source source; /* alloc NULL: the C library */
static atomic_llong blocks;       /* allocated and not freed */

static void *counted(void *ptr)
{
    if (ptr)
        atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
    return ptr;
}

weft_status weft_memory_set_source(const weft_memory_source *replacement)
{
    const int64_t used = atomic_load(&blocks);
    if (used != 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(used)),
                          "the allocator cannot be replaced while weft has %" PRId64
                          " blocks of memory; "
                          "set it before other calls",
                          used);
    source = replacement ? *replacement : (weft_memory_source){0};
    return WEFT_OK;
}

enum { HEAP_ALIGNMENT = 16 };

void *weft_alloc(int64_t bytes)
{
    if (!allocation_allowed(bytes))
        return NULL;
    const size_t size = bytes ? (size_t)bytes : 1;
    if (!source.alloc)
        return counted(calloc(1, size));
    void *ptr = source.alloc(source.user, size, HEAP_ALIGNMENT);
    return counted(ptr ? memset(ptr, 0, size) : NULL);
}

/* -1 if the product is too large, which every allocator below refuses. */
static int64_t array_bytes(int64_t count, size_t size)
{
    int64_t bytes = 0;
    return __builtin_mul_overflow(count, size, &bytes) ? -1 : bytes;
}

void *weft_calloc(int64_t count, size_t size)
{
    return weft_alloc(array_bytes(count, size));
}

void *weft_realloc(void *ptr, int64_t bytes)
{
    if (!allocation_allowed(bytes))
        return NULL;
    const size_t size = bytes ? (size_t)bytes : 1;
    if (source.alloc && !ptr)
        return counted(source.alloc(source.user, size, HEAP_ALIGNMENT));
    void *grown = source.alloc ? source.realloc(source.user, ptr, size) : realloc(ptr, size);
    return ptr ? grown : counted(grown);
}

void weft_free(void *ptr)
{
    if (!ptr)
        return;
    atomic_fetch_sub_explicit(&blocks, 1, memory_order_relaxed);
    if (source.alloc)
        source.free(source.user, ptr);
    else
        free(ptr);
}

void *weft_alloc_aligned(int64_t bytes)
{
    if (!allocation_allowed(bytes) || bytes > INT64_MAX - WEFT_ALIGNMENT)
        return NULL;
    const size_t size = (size_t)weft_aligned(bytes ? bytes : 1);
    return counted(source.alloc ? source.alloc(source.user, size, WEFT_ALIGNMENT)
                                : aligned_alloc(WEFT_ALIGNMENT, size));
}

char *weft_strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = weft_alloc((int64_t)bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* The C library maps blocks of this size on their own, whatever it has freed before: the advice is
 * gone when such a block is freed. */
enum { LARGE_BLOCK = 32 << 20, LARGE_PAGE = 2 << 20 };

void weft_use_large_pages(void *block, int64_t bytes)
{
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = LARGE_PAGE, first = ((uintptr_t)block + page - 1) & ~(page - 1),
                    end = ((uintptr_t)block + (uintptr_t)bytes) & ~(page - 1);
    if (block && !source.alloc && bytes >= LARGE_BLOCK)
        madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

/* Arena: a chain of blocks, the newest first. Large requests get a block of their own. */
typedef struct block {
    struct block *next;
    int64_t capacity, used; /* bytes of `data` */
    _Alignas(16) unsigned char data[];
} block;

struct weft_arena {
    block *head;
    int64_t reserved;
};

/* Blocks are as large as all before them: there are many arenas of a few objects. */
enum { LEAST_BLOCK = 1024, BLOCK_BYTES = 64 * 1024 };

weft_arena *weft_arena_create(void)
{
    return weft_alloc(sizeof(weft_arena));
}

void weft_arena_free(weft_arena *arena)
{
    if (!arena)
        return;
    for (block *b = arena->head; b;) {
        block *next = b->next;
        weft_free(b);
        b = next;
    }
    weft_free(arena);
}

void *weft_arena_alloc(weft_arena *arena, int64_t bytes)
{
    if (bytes < 0 || bytes > INT64_MAX - BLOCK_BYTES - (int64_t)sizeof(block))
        return NULL;
    const int64_t rounded = (bytes + 15) / 16 * 16;
    block *b = arena->head;
    if (!b || b->capacity - b->used < rounded) {
        const bool large = rounded > BLOCK_BYTES;
        int64_t capacity = arena->reserved < BLOCK_BYTES ? arena->reserved : BLOCK_BYTES;
        capacity = capacity < LEAST_BLOCK ? LEAST_BLOCK : capacity;
        capacity = capacity < rounded ? rounded : capacity;
        b = weft_alloc((int64_t)sizeof(block) + capacity);
        if (!b)
            return NULL;
        b->capacity = capacity;
        /* a large block follows the head, so that small allocations still fill the head */
        block **link = large && arena->head ? &arena->head->next : &arena->head;
        b->next = *link;
        *link = b;
        arena->reserved += (int64_t)sizeof(block) + capacity;
    }
    void *result = b->data + b->used;
    b->used += rounded;
    return result;
}

void *weft_arena_calloc(weft_arena *arena, int64_t count, size_t size)
{
    return weft_arena_alloc(arena, array_bytes(count, size));
}

char *weft_arena_strdup(weft_arena *arena, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = weft_arena_alloc(arena, (int64_t)bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *weft_arena_printf(weft_arena *arena, const char *fmt, ...)
{
    va_list args, args_copy;
    va_start(args, fmt);
    va_copy(args_copy, args);
    const int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : weft_arena_alloc(arena, len + 1);
    if (text)
        vsnprintf(text, (size_t)len + 1, fmt, args_copy);
    va_end(args_copy);
    return text;
}

int64_t weft_arena_bytes(const weft_arena *arena)
{
    return arena->reserved;
}

static bool buf_reserve(weft_buf *buf, int64_t extra)
{
    if (buf->failed || extra < 0 || extra > INT64_MAX / 2 - buf->len - 1) {
        buf->failed = true;
        return false;
    }
    const int64_t needed = buf->len + extra + 1;
    if (needed <= buf->capacity)
        return true;
    int64_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    char *data = weft_realloc(buf->data, capacity);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void weft_buf_append(weft_buf *buf, const void *bytes, int64_t len)
{
    if (!buf_reserve(buf, len))
        return;
    if (len)
        memcpy(buf->data + buf->len, bytes, (size_t)len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void weft_buf_vprintf(weft_buf *buf, const char *fmt, va_list args)
{
    va_list args_copy;
    const int64_t space = buf->failed ? 0 : buf->capacity - buf->len;
    char none, *end = space > 0 ? buf->data + buf->len : &none;
    va_copy(args_copy, args);
    const int len = vsnprintf(end, (size_t)(space > 0 ? space : 1), fmt, args);
    if (len >= 0 && buf_reserve(buf, len)) {
        if (len >= space) /* it did not fit */
            vsnprintf(buf->data + buf->len, (size_t)len + 1, fmt, args_copy);
        buf->len += len;
    } else {
        *end = '\0';
        buf->failed = true;
    }
    va_end(args_copy);
}

void weft_buf_printf(weft_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    weft_buf_vprintf(buf, fmt, args);
    va_end(args);
}

weft_status weft_buf_check(const weft_buf *buf)
{
    if (buf->failed)
        return weft_no_memory("more than %" PRId64 " bytes of text", buf->len);
    return WEFT_OK;
}

void weft_buf_free(weft_buf *buf)
{
    weft_free(buf->data);
    *buf = (weft_buf){0};
}

weft_status weft_grow(void **array, int64_t count, int64_t *capacity, int64_t element_bytes)
{
    if (count < *capacity)
        return WEFT_OK;
    const int64_t larger = *capacity ? *capacity * 2 : 8;
    void *grown =
        larger > INT64_MAX / element_bytes ? NULL : weft_realloc(*array, larger * element_bytes);
    if (!grown)
        return weft_no_memory("growing a list to %" PRId64 " elements of %" PRId64 " bytes", larger,
                              element_bytes);
    *array = grown;
    *capacity = larger;
    return WEFT_OK;
}

const char *weft_format_bytes(int64_t bytes, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int u = 0;
    while (value >= 1024 && u < 6) {
        value /= 1024;
        u++;
    }
    snprintf(text, 32, u ? "%.2f %s" : "%.0f %s", value, unit[u]);
    return text;
}

/* The number after `key` in the file, times `unit`; -1: none. */
static int64_t number_in(const char *path, const char *key, int64_t unit)
{
    char line[256];
    int64_t value = -1;
    FILE *file = fopen(path, "r");
    while (file && value < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            if (sscanf(line + strlen(key), "%" SCNd64, &value) != 1)
                value = -1;
    if (file)
        fclose(file);
    return value < 0 ? -1 : value * unit;
}

int64_t weft_memory_available(void)
{
    const int64_t machine = number_in("/proc/meminfo", "MemAvailable:", 1024),
                  most = number_in("/sys/fs/cgroup/memory.max", "", 1),
                  taken = number_in("/sys/fs/cgroup/memory.current", "", 1),
                  /* pages of files are given back when they are needed */
        files = number_in("/sys/fs/cgroup/memory.stat", "inactive_file ", 1);
    int64_t available = machine < 0 ? INT64_MAX : machine;
    if (most >= 0 && taken >= 0) {
        const int64_t left = most - taken + (files > 0 ? files : 0);
        available = left < available ? left : available;
    }
    return available < 0 ? 0 : available;
}

int64_t weft_memory_machine(void)
{
    const int64_t machine = number_in("/proc/meminfo", "MemTotal:", 1024),
                  group = number_in("/sys/fs/cgroup/memory.max", "", 1);
    if (machine < 0)
        return INT64_MAX;
    return group > 0 && group < machine ? group : machine;
}

bool weft_memory_limit(int64_t bytes)
{
    struct rlimit limit;
    const int64_t used = number_in("/proc/self/status", "VmData:", 1024);
    if (bytes <= 0)
        return true;
    if (used < 0 || bytes > INT64_MAX - used || getrlimit(RLIMIT_DATA, &limit) != 0)
        return false;
    const rlim_t most = (rlim_t)(used + bytes);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= most)
        return true;
    limit.rlim_cur = most;
    return setrlimit(RLIMIT_DATA, &limit) == 0;
}

weft_status weft_memory_check(int64_t bytes, const char *what)
{
    struct sysinfo machine;
    if (sysinfo(&machine) != 0)
        return WEFT_OK;
    const double most = ((double)machine.totalram + (double)machine.totalswap) * machine.mem_unit;
    if ((double)bytes <= most)
        return WEFT_OK;
    char need[32], has[32];
    return weft_error(WEFT_MSG_MEMORY_NEEDED, WEFT_NOWHERE,
                      "%s: %s are needed, and this machine has %s. Use a smaller model or batch.",
                      what, weft_format_bytes(bytes, need), weft_format_bytes((int64_t)most, has));
}

const char *weft_format_seconds(double seconds, char text[32])
{
    if (!(seconds >= 0))
        snprintf(text, 32, "?");
    else if (seconds < 1e-3)
        snprintf(text, 32, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, 32, "%.*f ms", seconds < 0.01 ? 2 : seconds < 0.1 ? 1 : 0, seconds * 1e3);
    else if (seconds < 10)
        snprintf(text, 32, "%.2f s", seconds);
    else if (seconds < 60)
        snprintf(text, 32, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, 32, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, 32, seconds < 1e12 ? "%.0f h %02d min" : "%.3g h",
                 seconds < 1e12 ? floor(seconds / 3600) : seconds / 3600,
                 (int)(fmod(seconds, 3600) / 60));
    return text;
}

const char *weft_plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

void weft_memory_map_large_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 19);
#endif
}

void weft_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Resident bytes of a mapping. */
static int64_t resident_part(uintptr_t start, uintptr_t end)
{
    unsigned char present[1024];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), most = sizeof present * page;
    int64_t bytes = 0;
    for (size_t size; start < end; start += size) {
        size = end - start < most ? end - start : most;
        if (mincore((void *)start, size, present))
            return bytes;
        for (size_t i = 0; i < size / page; i++)
            bytes += present[i] & 1 ? (int64_t)page : 0;
    }
    return bytes;
}

/* Resident bytes of anonymous mappings that can be executed. /proc/self/smaps has them too, but
 * takes 10 ms, because it counts the pages of all libraries. */
static int64_t generated_code(void)
{
    char line[512];
    int64_t bytes = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long start, end;
        char name[8];
        const char *access = strchr(line, ' ');
        if (access && access[3] == 'x' &&
            sscanf(line, "%llx-%llx %*s %*s %*s %*s %7s", &start, &end, name) == 2)
            bytes += resident_part((uintptr_t)start, (uintptr_t)end);
    }
    if (file)
        fclose(file);
    return bytes;
}

int64_t weft_memory_library_use(void)
{
    int64_t bytes = generated_code();
#ifdef __GLIBC__
    const struct mallinfo2 heap = mallinfo2();
    bytes += (int64_t)(heap.uordblks + heap.hblkhd);
#endif
    return bytes;
}

int64_t weft_memory_peak(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? 1024 * (int64_t)usage.ru_maxrss : 0;
}

/* A figure of the page tables, in bytes; 0: the kernel has no such file. */
static int64_t rollup(const char *name)
{
    char line[256];
    int64_t bytes = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && !bytes && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            bytes = 1024 * strtoll(line + strlen(name), NULL, 10);
    if (file)
        fclose(file);
    return bytes;
}

int64_t weft_memory_anonymous(void)
{
    const int64_t exact = rollup("Anonymous:");
    return exact > 0 ? exact : weft_memory_resident();
}

int64_t weft_memory_resident(void)
{
    /* statm has sums of per-processor counters, which are some hundred KiB off */
    const int64_t exact = rollup("Rss:");
    int64_t pages = 0;
    FILE *file = exact > 0 ? NULL : fopen("/proc/self/statm", "r");
    if (!file)
        return exact;
    if (fscanf(file, "%*s %" SCNd64, &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}
