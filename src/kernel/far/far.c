#include "kernel/far/far.h"

#include "base/convert.h"
#include "base/memory.h"
#include "kernel/cpu/table.h"
#include "kernel/far/far_memory.h"
#include "kernel/far/far_stream.h"
#include "kernel/host.h"
#include "kernel/sums.h"
#include "kernel/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------- */

static void *alloc(const weft_device *device, int64_t bytes)
{
    (void)device;
    return far_alloc(bytes);
}

static void release(const weft_device *device, void *data)
{
    (void)device;
    if (!data)
        return;
    far_races_release(data, far_size(data));
    far_free(data);
}

static int64_t available(const weft_device *device)
{
    (void)device;
    return weft_memory_available();
}

static void *alloc_host(const weft_device *device, int64_t bytes)
{
    (void)device;
    return weft_alloc_aligned(bytes + 1);
}

static void free_host(const weft_device *device, void *data)
{
    (void)device;
    weft_free(data);
}

/* An access of work that must be in memory of the device. */
static far_access device_access(const weft_device_stream *s, const void *data, int64_t bytes,
                                bool writes)
{
    if (bytes > 0 && !far_holds(data, bytes)) {
        fprintf(stderr,
                "far: %s uses %" PRId64 " bytes at %p, which are not in memory of the device\n",
                far_stream_named(s), bytes, data);
        abort();
    }
    return (far_access){data, (const char *)data + bytes, writes};
}

/* ---- streams ------------------------------------------------------------------------------- */

static weft_status_code open_stream(const weft_device *device, const weft_backend *backend,
                                    weft_device_stream **stream)
{
    (void)device;
    const uint64_t *seed = backend ? backend->self : NULL;
    return far_stream_open(seed ? *seed : 1, stream);
}

static weft_status_code wait(weft_device_stream *s)
{
    return far_stream_wait(s);
}

static weft_status_code record(weft_device_stream *s, weft_event *event)
{
    return far_stream_record(s, event);
}

static weft_status_code await(weft_device_stream *s, weft_event *event)
{
    return far_stream_await(s, event);
}

static void forget(const weft_device *device, weft_event *event)
{
    (void)device;
    far_event_forget(event);
}

static bool reached(const weft_device *device, const weft_event *event)
{
    (void)device;
    return far_event_reached(event);
}

static void force(const weft_device *device, uint32_t *gate, uint32_t turn)
{
    (void)device;
    far_gate_force(gate, turn);
}

static void mark(weft_device_stream *s, int32_t node, const char *op, const char *scope)
{
    far_stream_mark(s, &(far_node){node, op, scope});
}

/* ---- copies and sums ----------------------------------------------------------------------- */

/* A call of the device for the host, with addresses of values. */
typedef struct call {
    far_work work;
    void *to, *temp;
    const void *from, *other;
    weft_rows rows;
    int64_t count;
    int byte, terms;
    weft_dtype to_dtype, from_dtype;
    const void **term; /* sum: in memory after the call */
    void **slot;
} call;

static int64_t spread(int64_t rows, int64_t row, int64_t distance)
{
    return rows > 0 ? (rows - 1) * distance + row : 0;
}

static weft_status_code run_copy(far_work *work)
{
    const call *c = (const call *)work;
    weft_device_host.copy(NULL, c->to, c->from, c->rows);
    return WEFT_OK;
}

static void copy(weft_device_stream *s, void *to, const void *from, weft_rows rows)
{
    const far_access access[] = {
        device_access(s, from, spread(rows.rows, rows.row, rows.from), false),
        device_access(s, to, spread(rows.rows, rows.row, rows.to), true)};
    call *c = far_work_create(sizeof *c, run_copy);
    c->to = far_near(to);
    c->from = far_near(from);
    c->rows = rows;
    far_stream_submit(s, &c->work, access, 2);
}

static void host_copy(weft_device_stream *s, void *to, const void *from, int64_t bytes)
{
    const bool inward = far_holds(to, bytes);
    const far_access access[] = {inward ? (far_access){from, (const char *)from + bytes, false}
                                        : device_access(s, from, bytes, false),
                                 inward ? device_access(s, to, bytes, true)
                                        : (far_access){to, (char *)to + bytes, true}};
    if (bytes <= 0)
        return;
    call *c = far_work_create(sizeof *c, run_copy);
    c->to = inward ? far_near(to) : to;
    c->from = inward ? from : far_near(from);
    c->rows = (weft_rows){1, bytes, bytes, bytes};
    far_stream_submit(s, &c->work, access, 2);
}

static weft_status_code run_fill(far_work *work)
{
    const call *c = (const call *)work;
    memset(c->to, c->byte, (size_t)c->count);
    return WEFT_OK;
}

static void fill(weft_device_stream *s, void *to, int byte, int64_t bytes)
{
    const far_access access = device_access(s, to, bytes, true);
    call *c = far_work_create(sizeof *c, run_fill);
    c->to = far_near(to);
    c->byte = byte;
    c->count = bytes;
    far_stream_submit(s, &c->work, &access, 1);
}

static weft_status_code run_convert(far_work *work)
{
    const call *c = (const call *)work;
    weft_convert(c->to, c->to_dtype, c->from, c->from_dtype, c->count);
    return WEFT_OK;
}

static void convert(weft_device_stream *s, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count)
{
    const far_access access[] = {
        device_access(s, from, count * weft_dtype_bytes(from_dtype), false),
        device_access(s, to, count * weft_dtype_bytes(to_dtype), true)};
    call *c = far_work_create(sizeof *c, run_convert);
    c->to = far_near(to);
    c->from = far_near(from);
    c->to_dtype = to_dtype;
    c->from_dtype = from_dtype;
    c->count = count;
    far_stream_submit(s, &c->work, access, 2);
}

static weft_status_code run_add(far_work *work)
{
    const call *c = (const call *)work;
    weft_sum_two(c->to_dtype, c->to, c->from, c->other, c->count);
    return WEFT_OK;
}

static void add(weft_device_stream *s, weft_dtype dtype, void *out, const void *a, const void *b,
                int64_t count)
{
    const int64_t bytes = count * weft_dtype_bytes(dtype);
    const far_access access[] = {device_access(s, a, bytes, false),
                                 device_access(s, b, bytes, false),
                                 device_access(s, out, bytes, true)};
    call *c = far_work_create(sizeof *c, run_add);
    c->to = far_near(out);
    c->from = far_near(a);
    c->other = far_near(b);
    c->to_dtype = dtype;
    c->count = count;
    far_stream_submit(s, &c->work, access, 3);
}

static weft_status_code run_sum(far_work *work)
{
    const call *c = (const call *)work;
    weft_sum_terms(c->to_dtype, c->terms, c->term, c->slot, c->temp, c->to, c->count);
    return WEFT_OK;
}

static void sum(weft_device_stream *s, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count)
{
    const int64_t bytes = count * weft_dtype_bytes(dtype);
    call *c = far_work_create((int64_t)sizeof *c + 2 * k * (int64_t)sizeof(void *), run_sum);
    far_access *access = far_work_create((2 * k + 2) * (int64_t)sizeof *access, NULL);
    c->term = (const void **)(void *)(c + 1);
    c->slot = (void **)(c->term + k);
    for (int i = 0; i < k; i++) {
        access[2 * i] = device_access(s, term[i], bytes, false);
        access[2 * i + 1] = device_access(s, slot[i], bytes, true);
        c->term[i] = far_near(term[i]);
        c->slot[i] = far_near(slot[i]);
    }
    access[2 * k] = device_access(s, temp, weft_sum_temp_bytes(dtype, k), true);
    access[2 * k + 1] = device_access(s, out, bytes, true);
    c->temp = far_near(temp);
    c->to = far_near(out);
    c->to_dtype = dtype;
    c->terms = k;
    c->count = count;
    far_stream_submit(s, &c->work, access, 2 * k + 2);
    weft_free(access);
}

static const weft_device device_far = {
    .name = "far",
    .alloc = alloc,
    .free = release,
    .available = available,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .open = open_stream,
    .close = far_stream_close,
    .wait = wait,
    .record = record,
    .await = await,
    .after = far_stream_after,
    .forget = forget,
    .reached = reached,
    .hold = far_stream_hold,
    .lift = far_stream_lift,
    .force = force,
    .mark = mark,
    .copy = copy,
    .fill = fill,
    .host_copy = host_copy,
    .convert = convert,
    .add = add,
    .sum = sum,
};

/* ---- kernels ------------------------------------------------------------------------------- */

/* What prepare() of a kernel returned; release() does not know the op. */
typedef struct prepared_kernel {
    const weft_kernel *kernel;
    void *cache;
} prepared_kernel;

/* A kernel with its arguments; the views follow. */
typedef struct launch {
    far_work work;
    weft_kernel_args args;
} launch;

static const weft_kernel *kernel_of(const weft_kernel_args *args)
{
    return weft_backend_cpu.kernel[args->op];
}

static int64_t view_bytes(const weft_view *v)
{
    return view_present(v) ? view_count(v) * weft_dtype_bytes(v->dtype) : 0;
}

static weft_status_code run_kernel(far_work *work)
{
    const launch *l = (const launch *)work;
    weft_host_set_threads(l->args.threads);
    return kernel_of(&l->args)->run(&l->args);
}

/* Moves views to the addresses of values, and lists their accesses. */
static void place_views(weft_device_stream *s, weft_view *to, const weft_view *from, int count,
                        bool writes, far_access *access)
{
    for (int i = 0; i < count; i++) {
        const int64_t bytes = view_bytes(&from[i]);
        to[i] = from[i];
        access[i] = device_access(s, from[i].data, bytes, writes);
        to[i].data = from[i].data && bytes ? far_near(from[i].data) : NULL;
    }
}

static int64_t workspace(const weft_kernel_args *args)
{
    const weft_kernel *k = kernel_of(args);
    return k->workspace ? k->workspace(args) : 0;
}

static weft_status_code run(const weft_kernel_args *args)
{
    weft_device_stream *s = args->stream;
    const int views = args->in_count + args->out_count;
    launch *l =
        far_work_create((int64_t)sizeof *l + views * (int64_t)sizeof(weft_view), run_kernel);
    far_access *access = far_work_create((views + 1) * (int64_t)sizeof *access, NULL);
    weft_view *view = (weft_view *)(void *)(l + 1);
    place_views(s, view, args->in, args->in_count, false, access);
    place_views(s, view + args->in_count, args->out, args->out_count, true,
                access + args->in_count);
    access[views] = device_access(s, args->workspace, workspace(args), true);
    l->args = *args;
    l->args.in = view;
    l->args.out = view + args->in_count;
    l->args.workspace = args->workspace ? far_near(args->workspace) : NULL;
    l->args.cache = args->cache ? ((const prepared_kernel *)args->cache)->cache : NULL;
    l->args.stream = NULL;
    far_stream_submit(s, &l->work, access, views + 1);
    weft_free(access);
    return WEFT_OK;
}

static weft_status_code prepare(const weft_kernel_args *args, void **cache)
{
    const weft_kernel *k = kernel_of(args);
    void *made = NULL;
    *cache = NULL;
    if (k->prepare)
        WEFT_TRY(k->prepare(args, &made));
    if (!made)
        return WEFT_OK;
    prepared_kernel *p = weft_alloc(sizeof *p);
    if (!p) {
        k->release(made);
        return weft_no_memory("a kernel");
    }
    *p = (prepared_kernel){k, made};
    *cache = p;
    return WEFT_OK;
}

static int64_t prepared(const weft_kernel_args *args)
{
    const weft_kernel *k = kernel_of(args);
    return k->prepared ? k->prepared(args) : 0;
}

static void release_prepared(void *cache)
{
    prepared_kernel *p = cache;
    p->kernel->release(p->cache);
    weft_free(p);
}

static const weft_kernel any = {.run = run,
                                .workspace = workspace,
                                .prepare = prepare,
                                .prepared = prepared,
                                .release = release_prepared};

/* clang-format off */
const weft_backend weft_backend_far = {
    .name = "far",
    .device = &device_far,
    .kernel = {
#define WEFT_OWN(...)
#define WEFT_OP(ENUM, ...) [WEFT_OP_##ENUM] = &any,
#include "graph/op.def"
    },
};
/* clang-format on */

weft_status weft_backend_far_create(uint64_t seed, weft_backend **out)
{
    weft_backend *backend = weft_alloc(sizeof *backend);
    uint64_t *own = weft_alloc(sizeof *own);
    if (!backend || !own) {
        weft_free(backend);
        weft_free(own);
        return weft_no_memory("a backend");
    }
    *own = seed;
    *backend = weft_backend_far;
    backend->self = own;
    *out = backend;
    return WEFT_OK;
}

void weft_backend_far_free(weft_backend *backend)
{
    if (backend)
        weft_free((void *)(uintptr_t)backend->self);
    weft_free(backend);
}
