#include "kernel/virtual/virtual.h"

#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- memory -------------------------------------------------------------------------------- */

/* A process has no more than 65,530 maps. So what is larger than `large` is shown in wider pieces,
 * and what is small, biases and the like, is ordinary memory. HEAD bytes before the data stands the
 * length of the maps; 0: there are none. */
enum { PAGE = 4096, WIDE = 1 << 30, SMALL = 96 << 10, HEAD = 64 };
static const int64_t large = (int64_t)4 << 30;

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static int window = -1; /* an unnamed file of WIDE bytes, of which none is there until written */

static void open_window(void)
{
    window = memfd_create("weft-virtual", MFD_CLOEXEC);
    if (window >= 0 && ftruncate(window, WIDE) != 0) {
        close(window);
        window = -1;
    }
}

/*   | page: length | window | window | ... |     data begins behind the page */
static void *alloc_maps(int64_t bytes)
{
    pthread_once(&opened, open_window);
    const int64_t length = PAGE + (bytes + PAGE - 1) / PAGE * PAGE;
    if (window < 0)
        return NULL;
    char *base = mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    memcpy(base + PAGE - HEAD, &length, sizeof length);
    const int64_t piece = bytes > large ? WIDE : WEFT_VIRTUAL_WINDOW;
    for (int64_t at = PAGE; at < length; at += piece) {
        const int64_t n = length - at < piece ? length - at : piece;
        if (mmap(base + at, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, window, 0) ==
            MAP_FAILED) {
            munmap(base, (size_t)length);
            return NULL;
        }
    }
    return base + PAGE;
}

static void *alloc(int64_t bytes)
{
    if (bytes > SMALL)
        return alloc_maps(bytes);
    char *base = weft_alloc_aligned(HEAD + bytes);
    if (!base)
        return NULL;
    memset(base, 0, HEAD);
    return base + HEAD;
}

static void release(void *data)
{
    int64_t length;
    if (!data)
        return;
    char *base = (char *)data - HEAD;
    memcpy(&length, base, sizeof length);
    if (length)
        munmap((char *)data - PAGE, (size_t)length);
    else
        weft_free(base);
}

/* ---- no memory --------------------------------------------------------------------------------
 *
 * Addresses that no process has: neither x86-64 nor arm64 map bits 52 to 55 of a user's address, so
 * any access is a fault. Allocations follow one another and are never used twice. */

enum { GAP = 64 };
static atomic_ullong next_address = 1ull << 52;

static void *alloc_addresses(int64_t bytes)
{
    const unsigned long long length = (unsigned long long)(bytes + 2 * GAP) / GAP * GAP;
    return (void *)(uintptr_t)atomic_fetch_add(&next_address, length);
}

static void release_addresses(void *data)
{
    (void)data;
}

/* ---- streams ------------------------------------------------------------------------------- */

struct weft_device_stream {
    const weft_virtual_rates *rates;
    double ready; /* when what was given to it is done, on the rank's clock or weft_now()'s */
    bool apart;   /* its user has a time of its own */
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

static weft_status_code open_stream(const weft_backend *backend, weft_device_stream **stream)
{
    weft_device_stream *s = weft_alloc(sizeof *s);
    if (!s)
        return weft_fail(WEFT_E_MEMORY, "no memory for a stream");
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

static bool clock_of(weft_device_stream *s, weft_device_clock *clock)
{
    *clock = (weft_device_clock){s->rates->clock, &s->ready};
    s->apart = s->rates->clock != NULL;
    return s->apart;
}

static void take(weft_device_stream *s, double seconds)
{
    const double now = now_of(s);
    s->ready = (s->ready > now ? s->ready : now) + seconds * s->rates->scale;
}

static void move(weft_device_stream *s, int64_t bytes)
{
    const double beside = s->rates->pack > 0 ? s->rates->pack : s->rates->launch;
    take(s, beside + 2 * (double)bytes / s->rates->bytes);
}

static const double usual_host = 25e9; /* bytes a second to the host, and back */

static void copy(weft_device_stream *s, void *to, const void *from, weft_rows rows)
{
    (void)to, (void)from;
    move(s, rows.rows * rows.row);
}

static void carry(weft_device_stream *s, void *to, const void *from, int64_t bytes)
{
    (void)to, (void)from;
    take(s, s->rates->launch + (double)bytes / (s->rates->host > 0 ? s->rates->host : usual_host));
}

static void fill(weft_device_stream *s, void *to, int byte, int64_t bytes)
{
    (void)to, (void)byte;
    move(s, bytes / 2);
}

static void convert(weft_device_stream *s, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count)
{
    (void)to, (void)from;
    move(s, count * (weft_dtype_bytes(to_dtype) + weft_dtype_bytes(from_dtype)) / 2);
}

static void add(weft_device_stream *s, weft_dtype dtype, void *out, const void *a, const void *b,
                int64_t count)
{
    (void)out, (void)a, (void)b;
    move(s, 3 * count * weft_dtype_bytes(dtype) / 2);
}

static void sum(weft_device_stream *s, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count)
{
    (void)term, (void)slot, (void)temp, (void)out;
    move(s, (k + 1) * count * weft_dtype_bytes(dtype) / 2);
}

/* clang-format off */
#define STREAMS                    \
    .open = open_stream,       \
    .close = close_stream,     \
    .wait = wait,              \
    .record = record,          \
    .await = await,            \
    .copy = copy,              \
    .fill = fill,              \
    .carry = carry,            \
    .convert = convert,        \
    .add = add,                \
    .sum = sum,                \
    .clock = clock_of,
/* clang-format on */

const weft_device weft_device_virtual = {
    .name = "virtual", .hollow = true, .alloc = alloc, .free = release, STREAMS};

const weft_device weft_device_empty = {
    .name = "empty", .hollow = true, .alloc = alloc_addresses, .free = release_addresses, STREAMS};

/* ---- kernels ------------------------------------------------------------------------------- */

double weft_virtual_seconds(const weft_virtual_rates *r, weft_op op, weft_cost cost)
{
    const bool own = op < WEFT_OP_COUNT;
    const double flops = own && r->op_flops[op] > 0 ? r->op_flops[op] : r->flops,
                 bytes = own && r->op_bytes[op] > 0 ? r->op_bytes[op] : r->bytes;
    const double arithmetic = (double)cost.flops / flops, memory = (double)cost.bytes / bytes;
    return r->launch + (arithmetic > memory ? arithmetic : memory);
}

static weft_status_code run(const weft_kernel_args *args)
{
    const weft_virtual_rates *rates = args->stream->rates;
    take(args->stream,
         weft_virtual_seconds(rates, args->op, args->cost) * (rates->factor ? *rates->factor : 1));
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
        return weft_fail(WEFT_E_ARG,
                         "rates of a virtual device: %g FLOP/s, %g B/s, %g s a kernel, scale %g",
                         rates->flops, rates->bytes, rates->launch, rates->scale);
    weft_backend *backend = weft_alloc(sizeof *backend);
    weft_virtual_rates *own = weft_alloc(sizeof *own);
    if (!backend || !own) {
        weft_free(backend);
        weft_free(own);
        return weft_fail(WEFT_E_MEMORY, "no memory for a backend");
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
