#include "kernel/virtual/virtual.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernel/cpu/cpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- memory -------------------------------------------------------------------------------- */

/* A process has at most 65,530 maps. An allocation above `large` is therefore mapped in wider
 * pieces, and an allocation up to SMALL (biases) is ordinary memory. A table has the lengths of the
 * others, because a page before the data would be one more map each. */
enum { PAGE = 4096, WIDE = 1 << 30, SMALL = 96 << 10 };
static const int64_t large = (int64_t)4 << 30;

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static int window = -1; /* unnamed file of WIDE bytes; pages are allocated on the first write */

static void open_window(void)
{
    window = memfd_create("weft-virtual", MFD_CLOEXEC);
    if (window >= 0 && ftruncate(window, WIDE) != 0) {
        close(window);
        window = -1;
    }
}

/* Lengths of mapped allocations by address: open addressing with linear probing, at most half
 * full. */
typedef struct mapped {
    char *data; /* NULL: free; GONE: removed */
    int64_t length;
} mapped;
static struct {
    pthread_mutex_t lock;
    mapped *slot;
    int64_t slots, used; /* used: including removed allocations */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};
static char gone[1];

/* Returns the slot of `data`, or the free slot to insert `data` at. */
static mapped *find_mapped(mapped *slot, int64_t slots, const char *data)
{
    uint64_t at = ((uint64_t)(uintptr_t)data / PAGE * 0x9e3779b97f4a7c15u) >> 20;
    while (slot[at % (uint64_t)slots].data && slot[at % (uint64_t)slots].data != data)
        at++;
    return &slot[at % (uint64_t)slots];
}

/* Requires the lock. */
static bool grow_table(void)
{
    if (2 * table.used < table.slots)
        return true;
    int64_t live = 0;
    for (int64_t i = 0; i < table.slots; i++)
        live += table.slot[i].data && table.slot[i].data != gone;
    const int64_t slots = 4 * live + 1024;
    mapped *slot = weft_calloc(slots, sizeof *slot);
    if (!slot)
        return false;
    for (int64_t i = 0; i < table.slots; i++) {
        if (table.slot[i].data && table.slot[i].data != gone)
            *find_mapped(slot, slots, table.slot[i].data) = table.slot[i];
    }
    weft_free(table.slot);
    table.slot = slot;
    table.slots = slots;
    table.used = live;
    return true;
}

static bool note_mapped(char *data, int64_t length)
{
    pthread_mutex_lock(&table.lock);
    const bool grown = grow_table();
    if (grown) {
        *find_mapped(table.slot, table.slots, data) = (mapped){data, length};
        table.used++;
    }
    pthread_mutex_unlock(&table.lock);
    return grown;
}

/* Removes the allocation from the table and returns its length; 0: not mapped. */
static int64_t take_mapped(const char *data)
{
    int64_t length = 0;
    pthread_mutex_lock(&table.lock);
    mapped *found = table.slots ? find_mapped(table.slot, table.slots, data) : NULL;
    if (found && found->data) {
        length = found->length;
        found->data = gone;
    }
    pthread_mutex_unlock(&table.lock);
    return length;
}

/*   | window | window | ... |                                                                    */
static void *alloc_maps(int64_t bytes)
{
    pthread_once(&opened, open_window);
    const int64_t length = (bytes + PAGE - 1) / PAGE * PAGE;
    const int64_t piece = bytes > large ? WIDE : WEFT_VIRTUAL_WINDOW;
    if (window < 0)
        return NULL;
    char *base =
        mmap(NULL, (size_t)length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    bool is_mapped = note_mapped(base, length);
    for (int64_t at = 0; at < length && is_mapped; at += piece) {
        const int64_t n = length - at < piece ? length - at : piece;
        is_mapped = mmap(base + at, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                         window, 0) != MAP_FAILED;
    }
    if (is_mapped)
        return base;
    take_mapped(base);
    munmap(base, (size_t)length);
    return NULL;
}

static void *alloc(const weft_device *device, int64_t bytes)
{
    (void)device;
    return bytes > SMALL ? alloc_maps(bytes) : weft_alloc_aligned(bytes);
}

static void release(const weft_device *device, void *data)
{
    (void)device;
    const int64_t length = data ? take_mapped(data) : 0;
    if (length)
        munmap(data, (size_t)length);
    else
        weft_free(data);
}

/* ---- no memory --------------------------------------------------------------------------------
 *
 * Addresses that no process has: neither x86-64 nor arm64 map bits 52 to 55 of a user's address, so
 * any access is a fault. Allocations follow one another and are never used twice. */

enum { GAP = 64 };
static atomic_ullong next_address = 1ull << 52;

static void *alloc_addresses(const weft_device *device, int64_t bytes)
{
    (void)device;
    const unsigned long long length = (unsigned long long)(bytes + 2 * GAP) / GAP * GAP;
    return (void *)(uintptr_t)atomic_fetch_add(&next_address, length);
}

static void release_addresses(const weft_device *device, void *data)
{
    (void)device, (void)data;
}

/* ---- streams ------------------------------------------------------------------------------- */

struct weft_device_stream {
    const weft_virtual_rates *rates;
    double ready; /* time when submitted work is done, on the rank's clock or weft_now()'s */
    bool apart;   /* the user of the stream has a clock of its own */
};

static double now_of(const weft_device_stream *s)
{
    return s->apart ? s->ready : s->rates->clock ? *s->rates->clock : weft_now();
}

static void reach(const weft_device_stream *s, double when)
{
    double *clock = s->rates->clock;
    if (clock && !s->apart && *clock < when)
        *clock = when;
}

static void sleep_until(double when)
{
    for (double left = when - weft_now(); left > 0; left = when - weft_now()) {
        struct timespec t = {.tv_sec = (time_t)left};
        t.tv_nsec = (long)((left - (double)t.tv_sec) * 1e9);
        nanosleep(&t, NULL);
    }
}

static weft_status_code open_stream(const weft_device *device, const weft_backend *backend,
                                    weft_device_stream **stream)
{
    (void)device;
    weft_device_stream *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a stream"));
    s->rates = backend->self;
    *stream = s;
    return WEFT_OK;
}

static void close_stream(weft_device_stream *s)
{
    weft_free(s);
}

static weft_status_code wait(weft_device_stream *s)
{
    if (s->rates->clock)
        reach(s, s->ready);
    else
        sleep_until(s->ready);
    return WEFT_OK;
}

static weft_status_code record(weft_device_stream *s, weft_event *event)
{
    const double now = now_of(s);
    event->seconds = s->ready > now ? s->ready : now;
    return WEFT_OK;
}

static weft_status_code await(weft_device_stream *s, weft_event *event)
{
    if (s->rates->clock)
        reach(s, event->seconds);
    else
        sleep_until(event->seconds);
    return WEFT_OK;
}

static void after(weft_device_stream *s, const weft_event *event)
{
    if (s->ready < event->seconds)
        s->ready = event->seconds;
}

static void forget(const weft_device *device, weft_event *event)
{
    (void)device, (void)event;
}

static bool clock_of(weft_device_stream *s, weft_device_clock *clock)
{
    *clock = (weft_device_clock){s->rates->clock, &s->ready};
    if (s->rates->clock && !s->apart) /* once: the communicator's thread reads it later */
        s->apart = true;
    return s->apart;
}

static void take(weft_device_stream *s, double seconds)
{
    const double now = now_of(s);
    s->ready = (s->ready > now ? s->ready : now) + seconds * s->rates->scale;
}

static void charge_bytes(weft_device_stream *s, int64_t bytes)
{
    const double overhead = s->rates->pack > 0 ? s->rates->pack : s->rates->launch;
    take(s, overhead + 2 * (double)bytes / s->rates->bytes);
}

static const double usual_host = 25e9; /* bytes per second between device and host */

static void copy(weft_device_stream *s, void *to, const void *from, weft_rows rows)
{
    (void)to, (void)from;
    charge_bytes(s, rows.rows * rows.row);
}

static void host_copy(weft_device_stream *s, void *to, const void *from, int64_t bytes)
{
    (void)to, (void)from;
    take(s, s->rates->launch + (double)bytes / (s->rates->host > 0 ? s->rates->host : usual_host));
}

static void fill(weft_device_stream *s, void *to, int byte, int64_t bytes)
{
    (void)to, (void)byte;
    charge_bytes(s, bytes / 2);
}

static void convert(weft_device_stream *s, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count)
{
    (void)to, (void)from;
    charge_bytes(s, count * (weft_dtype_bytes(to_dtype) + weft_dtype_bytes(from_dtype)) / 2);
}

static void add(weft_device_stream *s, weft_dtype dtype, void *out, const void *a, const void *b,
                int64_t count)
{
    (void)out, (void)a, (void)b;
    charge_bytes(s, 3 * count * weft_dtype_bytes(dtype) / 2);
}

static void sum(weft_device_stream *s, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count)
{
    (void)term, (void)slot, (void)temp, (void)out;
    charge_bytes(s, (k + 1) * count * weft_dtype_bytes(dtype) / 2);
}

/* clang-format off */
#define STREAMS                    \
    .open = open_stream,       \
    .close = close_stream,     \
    .wait = wait,              \
    .record = record,          \
    .await = await,            \
    .after = after,            \
    .forget = forget,          \
    .copy = copy,              \
    .fill = fill,              \
    .host_copy = host_copy,            \
    .convert = convert,        \
    .add = add,                \
    .sum = sum,                \
    .clock = clock_of,
/* clang-format on */

const weft_device weft_device_virtual = {
    .name = "virtual", .meta = true, .alloc = alloc, .free = release, STREAMS};

const weft_device weft_device_empty = {
    .name = "empty", .meta = true, .alloc = alloc_addresses, .free = release_addresses, STREAMS};

/* ---- kernels ------------------------------------------------------------------------------- */

double weft_virtual_seconds(const weft_virtual_rates *r, weft_op op, weft_dtype dtype,
                            weft_cost cost)
{
    const bool own = op < WEFT_OP_COUNT, bf16 = own && dtype == WEFT_BF16 && r->op_bf16[op] > 0;
    const double flops = bf16                         ? r->op_bf16[op]
                         : own && r->op_flops[op] > 0 ? r->op_flops[op]
                                                      : r->flops,
                 bytes = own && r->op_bytes[op] > 0 ? r->op_bytes[op] : r->bytes;
    const double arithmetic = (double)cost.flops / flops, memory = (double)cost.bytes / bytes;
    return r->launch + (arithmetic > memory ? arithmetic : memory);
}

static weft_status_code run(const weft_kernel_args *args)
{
    const weft_virtual_rates *rates = args->stream->rates;
    const weft_dtype dtype = args->in_count > 0 ? args->in[0].dtype : WEFT_F32;
    take(args->stream, weft_virtual_seconds(rates, args->op, dtype, args->cost) *
                           (rates->factor ? *rates->factor : 1));
    return WEFT_OK;
}

static const weft_kernel any = {.run = run};
static const weft_virtual_rates usual = {
    .flops = 400e12, .bytes = 2e12, .launch = 5e-6, .scale = 1};

/* clang-format off */
const weft_backend weft_backend_virtual = {
    .name = "virtual",
    .device = &weft_device_virtual,
    .self = &usual,
    .kernel = {
#define WEFT_OWN(...)
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = &any,
#include "graph/op.def"
    },
};
/* clang-format on */

weft_status weft_backend_virtual_create(const weft_virtual_rates *rates, weft_backend **out)
{
    if (!(rates->flops > 0 && rates->bytes > 0 && rates->launch >= 0 && rates->scale >= 0))
        return weft_error(
            WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(rates->flops)),
            "a virtual device cannot have rates of %g FLOP/s, %g B/s, %g s a kernel and scale %g",
            rates->flops, rates->bytes, rates->launch, rates->scale);
    weft_backend *backend = weft_alloc(sizeof *backend);
    weft_virtual_rates *own = weft_alloc(sizeof *own);
    if (!backend || !own) {
        weft_free(backend);
        weft_free(own);
        return weft_no_memory("a backend");
    }
    *own = *rates;
    *backend = weft_backend_virtual;
    backend->device = rates->empty ? &weft_device_empty : &weft_device_virtual;
    backend->self = own;
    *out = backend;
    return WEFT_OK;
}

void weft_backend_virtual_free(weft_backend *backend)
{
    if (!backend)
        return;
    weft_free((void *)(uintptr_t)backend->self);
    weft_free(backend);
}

const weft_virtual_rates *weft_backend_virtual_rates(const weft_backend *backend)
{
    return backend->self;
}
