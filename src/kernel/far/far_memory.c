#include "kernel/far/far_memory.h"

#include "base/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGNMENT = 64 };
static const int64_t span = (int64_t)1 << 42;

typedef struct allocation {
    int64_t at, bytes; /* offset of the data */
    bool freed;
} allocation;

static struct {
    pthread_mutex_t lock;
    char *base;       /* NULL: not reserved yet */
    allocation *list; /* sorted by address */
    int64_t count, capacity, used;
    struct sigaction before;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local const char *current = "";

void far_memory_name(const char *text)
{
    current = text;
}

/* ---- faults -------------------------------------------------------------------------------- */

/* Reports an access to an address of the device, and lets the handler from before end the
 * process. */
static void report_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    const char *at = info->si_addr, *base = memory.base;
    char text[512];
    if (at >= base && at < base + 2 * span) {
        const int length =
            snprintf(text, sizeof text, "far: %s memory of the device (address %p); node: %s\n",
                     at >= base + span ? "the host accessed" : "access outside allocated",
                     (const void *)at, current[0] ? current : "none");
        const ssize_t written = write(STDERR_FILENO, text, (size_t)length);
        (void)written;
    }
    sigaction(SIGSEGV, &memory.before, NULL); /* the access is repeated */
}

static bool reserve(void)
{
    if (memory.base)
        return true;
    char *base = mmap(NULL, (size_t)(2 * span), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    memory.base = base;
    struct sigaction action = {.sa_sigaction = report_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, &memory.before);
    return true;
}

/* ---- allocations --------------------------------------------------------------------------- */

/* The index of the allocation that begins at or before offset `at`; -1: none. Requires the lock. */
static int64_t find(int64_t at)
{
    int64_t low = 0, high = memory.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (memory.list[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static void *allocate(int64_t bytes)
{
    const int64_t padded = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT,
                  length = (padded + PAGE - 1) / PAGE * PAGE;
    if (!reserve() || memory.used + length + PAGE > span ||
        weft_grow((void **)&memory.list, memory.count, &memory.capacity, sizeof *memory.list) !=
            WEFT_OK)
        return NULL;
    char *pages = memory.base + memory.used;
    if (mprotect(pages, (size_t)length, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    memset(pages, 0xff, (size_t)length);
    const int64_t at = memory.used + length - padded;
    memory.list[memory.count++] = (allocation){.at = at, .bytes = bytes};
    memory.used += length + PAGE;
    return memory.base + span + at;
}

void *far_alloc(int64_t bytes)
{
    pthread_mutex_lock(&memory.lock);
    void *data = allocate(bytes);
    pthread_mutex_unlock(&memory.lock);
    return data;
}

void far_free(void *data)
{
    pthread_mutex_lock(&memory.lock);
    const int64_t at = (char *)data - memory.base - span, i = find(at);
    allocation *a = &memory.list[i];
    const int64_t first = a->at / PAGE * PAGE, end = (a->at + a->bytes) / PAGE * PAGE + PAGE;
    a->freed = true;
    madvise(memory.base + first, (size_t)(end - first), MADV_DONTNEED);
    mprotect(memory.base + first, (size_t)(end - first), PROT_NONE);
    pthread_mutex_unlock(&memory.lock);
}

int64_t far_size(const void *data)
{
    pthread_mutex_lock(&memory.lock);
    const int64_t i = find((const char *)data - memory.base - span), bytes = memory.list[i].bytes;
    pthread_mutex_unlock(&memory.lock);
    return bytes;
}

bool far_holds(const void *data, int64_t bytes)
{
    pthread_mutex_lock(&memory.lock);
    const int64_t at = (const char *)data - memory.base - span,
                  i = memory.base && at >= 0 && at < span ? find(at) : -1;
    const bool holds =
        i >= 0 && !memory.list[i].freed && at + bytes <= memory.list[i].at + memory.list[i].bytes;
    pthread_mutex_unlock(&memory.lock);
    return holds;
}

void *far_near(const void *data)
{
    return (char *)(uintptr_t)data - span;
}
