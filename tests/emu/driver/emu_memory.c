/* Memory of emulated GPUs, and pinned memory.
 *
 *   base            base + SPAN
 *   |  values  ...  |  addresses of GPUs: no access  |
 *
 * Pinned memory is mapped twice: the program's pages are protected while a copy is under way, and
 * streams use the other pages. Addresses are used once. Data ends at a page without access.
 *
 * Parameters of kernels have pairs of numbers with 32 bits, and bytes between members with a half
 * of an address. No such word is an address of a GPU: the low halves of addresses begin above
 * integers below 2^30 and floats below 2^33, and end before negative numbers. */
#include "emu_driver.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGNMENT = 256, MAX_DEVICES = 16 };
static const size_t span = (size_t)1 << 42, four_gib = (size_t)1 << 32;
static const size_t low_begin = 0x50000000, low_end = 0x7f000000; /* of the halves */

typedef struct allocation {
    char *data;   /* as programs have it */
    char *inside; /* where streams find it */
    size_t bytes;
    char *pages; /* of `inside` */
    size_t length;
    int device;
    emu_kind kind;
    bool live;
    bool is_protected; /* some pages */
} allocation;

typedef struct list {
    allocation *at;
    size_t count, capacity;
} list;

static struct {
    pthread_mutex_t lock;
    char *base;
    size_t used;
    list devices; /* also freed ones, in order of addresses */
    list pinned;  /* live ones */
    int64_t taken[MAX_DEVICES];
    struct sigaction before;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local const char *current = "";

void emu_memory_name(const char *text)
{
    current = text;
}

void emu_stop(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("emulated driver: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

int64_t emu_setting(const char *name, int64_t usual)
{
    const char *text = getenv(name);
    return text && text[0] ? strtoll(text, NULL, 10) : usual;
}

/* ---- faults -------------------------------------------------------------------------------- */

static bool is_write(void *context)
{
#ifdef __x86_64__
    return ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
    (void)context;
    return true;
#endif
}

static allocation *find_pinned(const char *at)
{
    for (size_t i = 0; i < memory.pinned.count; i++) {
        allocation *a = &memory.pinned.at[i];
        if (at >= a->data && at < a->data + a->length)
            return a;
    }
    return NULL;
}

/* True if the page is accessible now: only other bytes of it are still in use. */
static bool open_pinned(const char *at, bool writes)
{
    const char *node = "";
    allocation *a = find_pinned(at);
    if (!a)
        return false;
    const int may = emu_order_host(at, &node);
    if (may < (writes ? 2 : 1))
        emu_stop("the host %s pinned memory at %p before it waited for %s",
                 writes ? "writes" : "reads", (const void *)at, node);
    char *page = a->data + (at - a->data) / PAGE * PAGE;
    return mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0;
}

static void report_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    const char *at = info->si_addr, *base = memory.base;
    if (base && at >= base && at < base + 2 * span)
        emu_stop("%s (address %p); node: %s",
                 at >= base + span ? "the host accessed memory of a GPU"
                                   : "a kernel left the memory of its allocations",
                 (const void *)at, current[0] ? current : "none");
    if (open_pinned(at, is_write(context)))
        return;
    sigaction(SIGSEGV, &memory.before, NULL); /* the access is repeated */
}

static bool reserve(void)
{
    if (memory.base)
        return true;
    char *base = mmap(NULL, 2 * span + four_gib, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    memory.base = base + (four_gib - (uintptr_t)base % four_gib);
    struct sigaction action = {.sa_sigaction = report_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, &memory.before);
    return true;
}

/* ---- allocations --------------------------------------------------------------------------- */

/* The place of the next allocation, which the caller counts. */
static allocation *add(list *l)
{
    if (l->count == l->capacity) {
        const size_t capacity = 2 * l->capacity + 64;
        allocation *at = realloc(l->at, capacity * sizeof *at);
        if (!at)
            return NULL;
        l->at = at;
        l->capacity = capacity;
    }
    return &l->at[l->count];
}

static size_t pages_of(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Sets the position of the next allocation. Memory that does not fit the halves gets an own range
 * of 4 GiB. */
static void skip_numbers(size_t length)
{
    const size_t low = memory.used % four_gib;
    if (low < low_begin)
        memory.used += low_begin - low;
    else if (low + length > low_end && low > low_begin)
        memory.used += four_gib - low + low_begin;
}

static void *allocate(int device, size_t bytes)
{
    const size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, length = pages_of(room);
    allocation *a = add(&memory.devices);
    skip_numbers(length);
    if (!a || !reserve() || memory.used + length + PAGE > span)
        return NULL;
    char *pages = memory.base + memory.used;
    if (mprotect(pages, length, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    memset(pages, 0xff, length);
    *a = (allocation){.inside = pages + length - room,
                      .bytes = bytes,
                      .pages = pages,
                      .length = length,
                      .device = device,
                      .kind = EMU_DEVICE,
                      .live = true};
    a->data = a->inside + span;
    memory.devices.count++;
    memory.used += length + PAGE;
    memory.taken[device] += (int64_t)bytes;
    return a->data;
}

int64_t emu_memory_left(int device)
{
    return emu_setting("WEFT_EMU_MEMORY", (int64_t)4 << 30) - memory.taken[device];
}

int emu_memory_count(emu_kind kind)
{
    const list *l = kind == EMU_PINNED ? &memory.pinned : &memory.devices;
    int count = 0;
    pthread_mutex_lock(&memory.lock);
    for (size_t i = 0; i < l->count; i++)
        count += l->at[i].live;
    pthread_mutex_unlock(&memory.lock);
    return count;
}

void *emu_memory_alloc(int device, size_t bytes)
{
    void *data = NULL;
    pthread_mutex_lock(&memory.lock);
    if ((int64_t)bytes <= emu_memory_left(device))
        data = allocate(device, bytes);
    pthread_mutex_unlock(&memory.lock);
    return data;
}

static void *map_twice(size_t bytes)
{
    const size_t length = pages_of(bytes);
    const int file = memfd_create("pinned", 0);
    allocation *a = add(&memory.pinned);
    if (!a || !reserve() || file < 0 || ftruncate(file, (off_t)length) != 0)
        return NULL;
    char *data = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
         *inside = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (data == MAP_FAILED || inside == MAP_FAILED)
        return NULL;
    memset(inside, 0xff, length);
    *a = (allocation){.data = data,
                      .inside = inside,
                      .bytes = bytes,
                      .pages = inside,
                      .length = length,
                      .kind = EMU_PINNED,
                      .live = true};
    memory.pinned.count++;
    return data;
}

void *emu_memory_pin(size_t bytes)
{
    pthread_mutex_lock(&memory.lock);
    void *data = map_twice(bytes);
    pthread_mutex_unlock(&memory.lock);
    return data;
}

/* The last allocation of a GPU that begins at this address or before; NULL: none. */
static allocation *device_before(const char *data)
{
    size_t low = 0, high = memory.devices.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (memory.devices.at[middle].data <= data)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &memory.devices.at[low - 1] : NULL;
}

/* The allocation with this address. Requires the lock. */
static allocation *holder(const char *data, bool freed)
{
    if (emu_memory_is_device(data)) {
        allocation *a = device_before(data);
        return a && (a->live || freed) && data <= a->data + a->bytes ? a : NULL;
    }
    allocation *ends = NULL; /* whose end is the address, where another may begin */
    for (size_t i = memory.pinned.count; i-- > 0;) {
        allocation *a = &memory.pinned.at[i];
        if (data >= a->data && data < a->data + a->bytes)
            return a;
        if (data == a->data + a->bytes)
            ends = a;
    }
    return ends;
}

/* Addresses of GPUs are used once, so that later accesses are found; pinned pages are mapped again. */
static void release(allocation *a)
{
    a->live = false;
    madvise(a->pages, a->length, MADV_DONTNEED);
    if (a->kind == EMU_PINNED) {
        munmap(a->data, a->length);
        munmap(a->inside, a->length);
        *a = memory.pinned.at[--memory.pinned.count];
    } else {
        mprotect(a->pages, a->length, PROT_NONE);
        memory.taken[a->device] -= (int64_t)a->bytes;
    }
}

bool emu_memory_free(void *data, emu_kind kind)
{
    pthread_mutex_lock(&memory.lock);
    allocation *a = holder(data, false);
    const bool is = a && a->data == data && a->kind == kind;
    if (is)
        release(a);
    pthread_mutex_unlock(&memory.lock);
    return is;
}

size_t emu_memory_size(const void *data)
{
    pthread_mutex_lock(&memory.lock);
    const allocation *a = holder(data, false);
    const size_t bytes = a && a->data == data ? a->bytes : 0;
    pthread_mutex_unlock(&memory.lock);
    return bytes;
}

emu_kind emu_memory_find(const void *data, size_t bytes, char **inside)
{
    pthread_mutex_lock(&memory.lock);
    const allocation *a = holder(data, false);
    emu_kind kind = EMU_UNKNOWN;
    if (a && (const char *)data + bytes <= a->data + a->bytes) {
        kind = a->kind;
        *inside = a->inside + ((const char *)data - a->data);
    }
    pthread_mutex_unlock(&memory.lock);
    return kind;
}

int emu_memory_device(const void *data)
{
    pthread_mutex_lock(&memory.lock);
    const allocation *a = holder(data, false);
    const int device = a && a->kind == EMU_DEVICE ? a->device : -1;
    pthread_mutex_unlock(&memory.lock);
    return device;
}

bool emu_memory_is_device(const void *data)
{
    const char *at = data, *base = memory.base;
    return base && at >= base + span && at < base + 2 * span;
}

bool emu_memory_is_freed(const void *data)
{
    pthread_mutex_lock(&memory.lock);
    const allocation *a = holder(data, true);
    const bool is = a && !a->live && a->kind == EMU_DEVICE;
    pthread_mutex_unlock(&memory.lock);
    return is;
}

static void protect_pages(void *user, const emu_access *access)
{
    allocation *a = user;
    const char *begin = access->begin > a->data ? access->begin : a->data,
               *end = access->end < a->data + a->bytes ? access->end : a->data + a->bytes;
    const size_t first = (size_t)(begin - a->data) / PAGE * PAGE,
                 length = pages_of((size_t)(end - a->data) - first);
    mprotect(a->data + first, length, access->writes ? PROT_NONE : PROT_READ);
    a->is_protected = true;
}

void emu_memory_protect(void)
{
    pthread_mutex_lock(&memory.lock);
    for (size_t i = 0; i < memory.pinned.count; i++) {
        allocation *a = &memory.pinned.at[i];
        if (a->is_protected)
            mprotect(a->data, a->length, PROT_READ | PROT_WRITE);
        a->is_protected = false;
        emu_order_pending(a->data, a->data + a->bytes, protect_pages, a);
    }
    pthread_mutex_unlock(&memory.lock);
}
