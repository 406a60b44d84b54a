#include "kernel/cuda/cuda_device.h"

#include "base/log.h"
#include "base/memory.h"
#include "kernel/cuda/cuda_exchange.h"
#include "kernel/cuda/cuda_graph.h"
#include "kernel/cuda/cuda_ids.h"
#include "kernel/cuda/cuda_module.h"
#include "kernel/cuda/cuda_nccl.h"
#include "kernel/cuda/cuda_wait.h"
#include "kernel/cuda/kernels/device_args.h"
#include "kernel/cuda/launch_window.h"
#include "kernel/sums.h"
#include "kernel/view.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft_device_stream {
    weft_cuda_queue queue; /* first: queues are streams */
    const weft_cuda_gpu *gpu;
    cuda_stream handle;
    weft_cuda_window *window; /* launches that were not issued yet; NULL: no kernel was launched */
    weft_cuda_exchange *exchange; /* NULL: the stream had none */
    weft_error_copy *error;       /* first error since the last wait */
    bool failed;
    weft_cuda_node first, last; /* nodes since the last wait */
};

/* A moment of the GPU and its time on the host. Renewed every 10 s, because the driver gives
 * milliseconds since the moment as f32. */
static const double clock_seconds = 10;
static struct {
    pthread_mutex_t mutex;
    cuda_event moment; /* NULL: no stream was opened */
    double seconds;
} gpu_clock = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors --------------------------------------------------------------------------------- */

static const char *node_text(const weft_cuda_node *n, char *text, size_t bytes)
{
    snprintf(text, bytes, "node %d, %s%s%.100s", (int)n->number, n->op,
             n->scope && n->scope[0] ? " of " : "", n->scope ? n->scope : "");
    return text;
}

/* Completes an error by the nodes whose work may have failed. */
static weft_status_code name_nodes(const weft_device_stream *s, weft_status_code status)
{
    char first[192], last[192], both[400];
    if (s->first.number < 0)
        return status;
    node_text(&s->first, first, sizeof first);
    node_text(&s->last, last, sizeof last);
    snprintf(both, sizeof both, "%s%s%s", first, strcmp(first, last) ? " to " : "",
             strcmp(first, last) ? last : "");
    return weft_error_at(status, WEFT_AT(.key = both));
}

/* Keeps the first error for the next wait. */
static void keep_error(weft_device_stream *s, weft_status_code status)
{
    if (status == WEFT_OK || s->failed)
        return;
    (void)name_nodes(s, status);
    s->failed = true;
    s->error = weft_error_save();
}

static weft_status take_error(weft_device_stream *s)
{
    weft_status_code status = WEFT_OK;
    if (s->failed) {
        s->failed = false;
        status = weft_error_restore(s->error);
        weft_free(s->error);
        s->error = NULL;
    }
    return status;
}

/* Makes the context current in this thread, and returns true if the stream accepts work. */
static bool accepts_work(weft_device_stream *s)
{
    const weft_cuda_gpu *gpu;
    if (!s->failed)
        keep_error(s, weft_cuda_gpu_get(&gpu));
    return !s->failed;
}

/* Like accepts_work(), after the launches before were issued. */
static bool is_ready(weft_device_stream *s)
{
    if (accepts_work(s) && s->window)
        keep_error(s, weft_cuda_window_flush(s->window));
    return !s->failed;
}

static void keep_result(weft_device_stream *s, cuda_result result, const char *what)
{
    if (result != CUDA_OK)
        keep_error(s, weft_cuda_gpu_error(s->gpu, result, what));
}

/* ---- memory ---------------------------------------------------------------------------------- */

static cuda_address address_of(const void *data)
{
    return (cuda_address)(uintptr_t)data;
}

static void *alloc(const weft_device *device, int64_t bytes)
{
    const weft_cuda_gpu *gpu;
    cuda_address address;
    (void)device;
    if (weft_cuda_gpu_get(&gpu) != WEFT_OK)
        return NULL;
    const cuda_result result = gpu->driver->alloc(&address, (size_t)(bytes > 0 ? bytes : 1));
    if (result != CUDA_OK && result != CUDA_OUT_OF_MEMORY)
        (void)weft_cuda_gpu_error(gpu, result, "memory of the GPU");
    return result == CUDA_OK ? (void *)(uintptr_t)address : NULL;
}

static void release(const weft_device *device, void *data)
{
    const weft_cuda_gpu *gpu;
    (void)device;
    if (data && !weft_cuda_is_stuck() && weft_cuda_gpu_get(&gpu) == WEFT_OK)
        gpu->driver->free(address_of(data)); /* fails only after an error that was reported */
}

static int64_t available(const weft_device *device)
{
    const weft_cuda_gpu *gpu;
    size_t left, all;
    (void)device;
    if (weft_cuda_gpu_get(&gpu) != WEFT_OK || gpu->driver->memory_info(&left, &all) != CUDA_OK)
        return 0;
    return (int64_t)left;
}

static int64_t total(const weft_device *device)
{
    const weft_cuda_gpu *gpu;
    (void)device;
    return weft_cuda_gpu_get(&gpu) == WEFT_OK ? gpu->memory : 0;
}

static void *alloc_host(const weft_device *device, int64_t bytes)
{
    const weft_cuda_gpu *gpu;
    void *data;
    (void)device;
    if (weft_cuda_gpu_get(&gpu) != WEFT_OK ||
        gpu->driver->host_alloc(&data, (size_t)(bytes > 0 ? bytes : 1), CUDA_HOST_PORTABLE) !=
            CUDA_OK)
        return NULL;
    return data;
}

static void free_host(const weft_device *device, void *data)
{
    const weft_cuda_gpu *gpu;
    (void)device;
    if (data && !weft_cuda_is_stuck() && weft_cuda_gpu_get(&gpu) == WEFT_OK)
        gpu->driver->host_free(data);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* `waits_for_rank`: the work waits for a message of a rank that has not reported a failure. */
static weft_status hang_error(const weft_device_stream *s, bool waits_for_rank)
{
    const weft_status_code status =
        weft_error(WEFT_MSG_GPU_HANG,
                   WEFT_AT(.value = s->gpu->name, WEFT_NUMBER(weft_cuda_patience(waits_for_rank))),
                   "the work of GPU %d (%s) %s within %g s. WEFT_CUDA_SYNC=1 names the node, "
                   "WEFT_CUDA_DEADLINE sets the seconds.",
                   s->gpu->ordinal, s->gpu->name,
                   waits_for_rank ? "got no message of another rank" : "did not end",
                   weft_cuda_patience(waits_for_rank));
    return name_nodes(s, status);
}

static weft_status finish_work(weft_device_stream *s, cuda_event event)
{
    const cuda_result result = weft_cuda_wait(s->gpu, s->handle, event);
    if (result == CUDA_OK) {
        const weft_status_code ids = weft_cuda_ids_check(&s->queue);
        return ids == WEFT_OK ? WEFT_OK : name_nodes(s, ids);
    }
    if (result != CUDA_NOT_READY)
        return name_nodes(s, weft_cuda_gpu_error(s->gpu, result, "work"));
    return hang_error(s, weft_cuda_exchange_waits());
}

/* Sets the clock at the end of the work of a stream. Requires the lock. */
static weft_status set_clock(weft_device_stream *s)
{
    const weft_cuda_driver *driver = s->gpu->driver;
    cuda_event moment;
    float milliseconds;
    cuda_result result = driver->event_create(&moment, 0);
    if (result == CUDA_OK)
        result = driver->event_record(moment, s->handle);
    if (result != CUDA_OK)
        return weft_cuda_gpu_error(s->gpu, result, "the clock of the GPU");
    WEFT_TRY(finish_work(s, moment));
    if (gpu_clock.moment &&
        driver->event_elapsed(&milliseconds, gpu_clock.moment, moment) == CUDA_OK)
        gpu_clock.seconds += 1e-3 * (double)milliseconds;
    else
        gpu_clock.seconds = weft_now();
    if (gpu_clock.moment)
        driver->event_destroy(gpu_clock.moment);
    gpu_clock.moment = moment;
    return WEFT_OK;
}

/* Sets the clock if it is old. The stream is idle. */
static weft_status renew_clock(weft_device_stream *s)
{
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&gpu_clock.mutex);
    if (!gpu_clock.moment || weft_now() - gpu_clock.seconds > clock_seconds)
        status = set_clock(s);
    pthread_mutex_unlock(&gpu_clock.mutex);
    return status;
}

/* The time of an event that was reached. */
static double event_seconds(const weft_device_stream *s, cuda_event event)
{
    float milliseconds;
    pthread_mutex_lock(&gpu_clock.mutex);
    const cuda_result result =
        s->gpu->driver->event_elapsed(&milliseconds, gpu_clock.moment, event);
    const double seconds = gpu_clock.seconds + 1e-3 * (double)milliseconds;
    pthread_mutex_unlock(&gpu_clock.mutex);
    return result == CUDA_OK ? seconds : weft_now();
}

static weft_status_code wait(weft_device_stream *s)
{
    const bool ready = is_ready(s);
    const weft_status_code kept = take_error(s);
    WEFT_TRY(kept);
    weft_status_code status = ready ? finish_work(s, NULL) : WEFT_OK;
    if (ready && status == WEFT_OK)
        status = renew_clock(s);
    if (status == WEFT_OK)
        s->first.number = s->last.number = -1;
    return status;
}

/* ---- streams --------------------------------------------------------------------------------- */

static weft_status_code add_launch(weft_cuda_queue *queue, const weft_cuda_launch *launch)
{
    weft_device_stream *s = (weft_device_stream *)queue;
    return s->window ? weft_cuda_window_add(s->window, launch)
                     : weft_cuda_module_launch(s->gpu, s->handle, launch);
}

static void split_workspace(weft_cuda_queue *queue, const void *part, int64_t bytes)
{
    weft_device_stream *s = (weft_device_stream *)queue;
    if (s->window)
        weft_cuda_window_split(s->window, part, bytes);
}

/* Names node and accesses for the emulated driver, and launches. */
static weft_status_code issue(void *user, const weft_cuda_issue *one)
{
    weft_device_stream *s = user;
    char text[192];
    if (s->gpu->driver->emulated_node) {
        s->gpu->driver->emulated_node(s->handle, node_text(&one->node, text, sizeof text));
        for (int i = 0; i < one->spans && one->span[i].begin; i++)
            weft_cuda_stream_access(s, one->span[i].begin, one->span[i].end - one->span[i].begin,
                                    one->span[i].writes);
    }
    return weft_cuda_module_launch(s->gpu, s->handle, &one->launch);
}

static void close_stream(weft_device_stream *s)
{
    if (!s)
        return;
    if (s->handle && is_ready(s))
        (void)weft_cuda_wait(s->gpu, s->handle, NULL);
    if (s->handle && !weft_cuda_is_stuck())
        s->gpu->driver->stream_destroy(s->handle);
    if (!weft_cuda_is_stuck())
        weft_cuda_ids_close(s->gpu, &s->queue);
    weft_cuda_window_close(s->window);
    weft_cuda_exchange_close(s->exchange);
    weft_free(s->error);
    weft_free(s);
}

static weft_status_code open_stream(const weft_device *device, const weft_backend *backend,
                                    weft_device_stream **stream)
{
    const weft_cuda_gpu *gpu;
    weft_device_stream *s;
    (void)device, (void)backend;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    WEFT_TRY(WEFT_NEW(s, 1, "a stream"));
    s->queue.add = add_launch;
    s->queue.split = split_workspace;
    s->gpu = gpu;
    s->first.number = s->last.number = -1;
    const cuda_result result = gpu->driver->stream_create(&s->handle, CUDA_STREAM_NON_BLOCKING);
    weft_status_code status =
        result == CUDA_OK ? renew_clock(s) : weft_cuda_gpu_error(gpu, result, "a stream");
    if (status == WEFT_OK)
        status = weft_cuda_ids_open(gpu, &s->queue);
    if (status != WEFT_OK) {
        close_stream(s);
        return status;
    }
    *stream = s;
    return WEFT_OK;
}

static void mark(weft_device_stream *s, int32_t node, const char *op, const char *scope)
{
    s->last = (weft_cuda_node){node, op, scope};
    if (s->first.number < 0)
        s->first = s->last;
}

weft_status weft_cuda_stream_node(weft_device_stream *s, const weft_kernel_args *args,
                                  int64_t workspace, bool *begun)
{
    const weft_cuda_node none = {-1, weft_op_get(args->op)->name, NULL};
    *begun = accepts_work(s);
    if (!*begun)
        return WEFT_OK;
    if (!s->window)
        WEFT_TRY(weft_cuda_window_open(issue, s, &s->window));
    weft_cuda_window_begin(s->window, s->last.number >= 0 ? &s->last : &none);
    for (int i = 0; i < args->in_count + args->out_count; i++) {
        const weft_view *v = i < args->in_count ? &args->in[i] : &args->out[i - args->in_count];
        if (view_present(v))
            weft_cuda_window_access(s->window, v->data, view_count(v) * weft_dtype_bytes(v->dtype),
                                    i >= args->in_count);
    }
    weft_cuda_window_access(s->window, args->workspace, workspace, true);
    return WEFT_OK;
}

bool weft_cuda_stream_begin(weft_device_stream *s, const char *what)
{
    char text[192];
    if (!is_ready(s))
        return false;
    if (!s->gpu->driver->emulated_node)
        return true;
    if (s->last.number >= 0)
        node_text(&s->last, text, sizeof text);
    else
        snprintf(text, sizeof text, "%s", what);
    s->gpu->driver->emulated_node(s->handle, text);
    return true;
}

weft_cuda_queue *weft_cuda_stream_queue(weft_device_stream *s)
{
    return &s->queue;
}

struct cuda_stream_handle *weft_cuda_stream_handle(weft_device_stream *s)
{
    return s->handle;
}

void weft_cuda_stream_exchange_begin(weft_device_stream *s)
{
    if (!s->exchange)
        s->exchange = weft_cuda_exchange_open();
    keep_result(s, weft_cuda_exchange_begin(s->exchange, s->gpu, s->handle), "a message");
}

void weft_cuda_stream_exchange_end(weft_device_stream *s)
{
    keep_result(s, weft_cuda_exchange_end(s->exchange, s->gpu, s->handle), "a message");
}

void weft_cuda_stream_fail(weft_device_stream *s, weft_status_code status)
{
    keep_error(s, status);
}

void weft_cuda_stream_access(weft_device_stream *s, const void *data, int64_t bytes, bool writes)
{
    if (s->gpu->driver->emulated_access && bytes > 0)
        s->gpu->driver->emulated_access(s->handle, address_of(data), (size_t)bytes, writes);
}

weft_status weft_cuda_stream_check(weft_device_stream *s)
{
    const char *text = getenv("WEFT_CUDA_SYNC");
    if (!text || strcmp(text, "1") || !is_ready(s))
        return WEFT_OK;
    s->first = s->last;
    return finish_work(s, NULL);
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status_code record(weft_device_stream *s, weft_event *event)
{
    if (!is_ready(s))
        return WEFT_OK; /* the error appears when the host waits */
    cuda_event handle = event->handle;
    cuda_result result = CUDA_OK;
    if (!handle)
        result = s->gpu->driver->event_create(&handle, 0);
    if (result == CUDA_OK) {
        event->handle = handle;
        result = s->gpu->driver->event_record(handle, s->handle);
    }
    keep_result(s, result, "an event");
    return WEFT_OK;
}

static weft_status_code await(weft_device_stream *s, weft_event *event)
{
    const bool ready = is_ready(s);
    WEFT_TRY(take_error(s));
    event->seconds = weft_now();
    if (!ready || !event->handle)
        return WEFT_OK;
    WEFT_TRY(finish_work(s, event->handle));
    event->seconds = event_seconds(s, event->handle);
    return WEFT_OK;
}

static void after(weft_device_stream *s, const weft_event *event)
{
    if (event->handle && is_ready(s))
        keep_result(s, s->gpu->driver->stream_wait(s->handle, event->handle, 0), "an event");
}

static void forget(const weft_device *device, weft_event *event)
{
    const weft_cuda_gpu *gpu;
    (void)device;
    if (event->handle && weft_cuda_gpu_get(&gpu) == WEFT_OK)
        gpu->driver->event_destroy(event->handle);
    event->handle = NULL;
}

static bool reached(const weft_device *device, const weft_event *event)
{
    const weft_cuda_gpu *gpu;
    (void)device;
    return !event->handle || weft_cuda_gpu_get(&gpu) != WEFT_OK ||
           gpu->driver->event_query(event->handle) != CUDA_NOT_READY;
}

/* ---- gates ----------------------------------------------------------------------------------- */

static bool is_shut(const uint32_t *gate, uint32_t turn)
{
    return (int32_t)(__atomic_load_n(gate, __ATOMIC_ACQUIRE) - turn) < 0;
}

/* The caller waits, and the stream is only ordered after the gate. On an H100, streams that waited
 * for a word stopped the program. To load a kernel or to make a graph, a driver waits for all work.
 * It also stops all threads that add work while one has added too much, and the thread that
 * receives messages adds work. */
static void hold(weft_device_stream *s, uint32_t *gate, uint32_t turn)
{
    if (!is_ready(s))
        return;
    const double begin = weft_now(), seconds = weft_cuda_deadline();
    for (int64_t polls = 0; is_shut(gate, turn) && !weft_cuda_is_stuck(); polls++) {
        if (weft_now() - begin > seconds) {
            /* work before the message may hang as well */
            const bool waits = s->gpu->driver->stream_query(s->handle) == CUDA_OK;
            if (weft_now() - begin > weft_cuda_patience(waits)) {
                weft_cuda_give_up();
                keep_error(s, hang_error(s, waits));
            }
        }
        weft_cuda_pause(polls);
    }
    if (!weft_cuda_is_stuck())
        keep_result(s,
                    s->gpu->driver->word_wait(s->handle, address_of(gate), turn, CUDA_WAIT_REACHED),
                    "a wait for a message");
}

static void force(const weft_device *device, uint32_t *gate, uint32_t turn)
{
    (void)device;
    if (is_shut(gate, turn))
        __atomic_store_n(gate, turn, __ATOMIC_RELEASE);
}

static void lift(weft_device_stream *s, uint32_t *gate, uint32_t turn)
{
    if (!is_ready(s)) { /* its work will not run */
        force(&weft_device_cuda, gate, turn);
        return;
    }
    keep_result(s, s->gpu->driver->word_write(s->handle, address_of(gate), turn, 0),
                "the end of a wait");
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void copy_bytes(weft_device_stream *s, void *to, const void *from, int64_t bytes)
{
    keep_result(s, s->gpu->driver->copy(address_of(to), address_of(from), (size_t)bytes, s->handle),
                "a copy");
}

static void copy(weft_device_stream *s, void *to, const void *from, weft_rows r)
{
    const int64_t pitch = s->gpu->pitch;
    if (r.rows <= 0 || r.row <= 0 || !weft_cuda_stream_begin(s, "a copy"))
        return;
    if (r.rows == 1 || (r.to == r.row && r.from == r.row)) {
        copy_bytes(s, to, from, r.rows * r.row);
        return;
    }
    if (r.to >= r.row && r.from >= r.row && r.to <= pitch && r.from <= pitch) {
        const cuda_copy_2d c = {.from_type = CUDA_MEMORY_DEVICE,
                                .from = address_of(from),
                                .from_pitch = (size_t)r.from,
                                .to_type = CUDA_MEMORY_DEVICE,
                                .to = address_of(to),
                                .to_pitch = (size_t)r.to,
                                .width = (size_t)r.row,
                                .height = (size_t)r.rows};
        keep_result(s, s->gpu->driver->copy_2d(&c, s->handle), "a strided copy");
        return;
    }
    for (int64_t i = 0; i < r.rows && !s->failed; i++)
        copy_bytes(s, (char *)to + i * r.to, (const char *)from + i * r.from, r.row);
}

static void fill(weft_device_stream *s, void *to, int byte, int64_t bytes)
{
    if (bytes > 0 && weft_cuda_stream_begin(s, "a fill"))
        keep_result(
            s, s->gpu->driver->fill(address_of(to), (unsigned char)byte, (size_t)bytes, s->handle),
            "a fill");
}

static void host_copy(weft_device_stream *s, void *to, const void *from, int64_t bytes)
{
    if (bytes > 0 && weft_cuda_stream_begin(s, "a copy"))
        copy_bytes(s, to, from, bytes);
}

/* ---- conversions and sums -------------------------------------------------------------------- */

/* Launches a kernel of the device with a thread per element. */
static void launch_each(weft_device_stream *s, const char *kernel, int64_t count, const void *args,
                        size_t bytes)
{
    const weft_cuda_launch launch = {
        .kernel = kernel,
        .grid = {(uint32_t)((count + DEVICE_THREADS - 1) / DEVICE_THREADS), 1, 1},
        .block = {DEVICE_THREADS, 1, 1},
        .args = args,
        .args_bytes = bytes};
    keep_error(s, weft_cuda_module_launch(s->gpu, s->handle, &launch));
}

static void convert(weft_device_stream *s, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count)
{
    const int64_t to_bytes = count * weft_dtype_bytes(to_dtype),
                  from_bytes = count * weft_dtype_bytes(from_dtype);
    if (count <= 0 || !weft_cuda_stream_begin(s, "a conversion"))
        return;
    if (to_dtype == from_dtype) {
        copy_bytes(s, to, from, to_bytes);
        return;
    }
    weft_cuda_stream_access(s, from, from_bytes, false);
    weft_cuda_stream_access(s, to, to_bytes, true);
    const convert_args args = {to, from, count, (int32_t)to_dtype, (int32_t)from_dtype};
    launch_each(s, "weft_convert", count, &args, sizeof args);
}

static void sum(weft_device_stream *s, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count)
{
    const int64_t bytes = count * weft_dtype_bytes(dtype);
    (void)slot, (void)temp; /* partial sums are in registers */
    if (count <= 0 || !weft_cuda_stream_begin(s, "a sum"))
        return;
    if (k > SUM_TERMS) {
        keep_error(s, weft_error(WEFT_MSG_KERNEL_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(k)),
                                 "a GPU adds up to %d terms, and an axis has %d ranks. Use an axis "
                                 "of fewer ranks.",
                                 (int)SUM_TERMS, k));
        return;
    }
    sum_args args = {
        .out = out, .count = count, .type = (int32_t)dtype, .terms = k, .power = weft_sum_power(k)};
    for (int i = 0; i < k; i++) {
        args.term[i] = term[i];
        weft_cuda_stream_access(s, term[i], bytes, false);
    }
    weft_cuda_stream_access(s, out, bytes, true);
    launch_each(s, "weft_sum", count, &args, sizeof args);
}

static void add(weft_device_stream *s, weft_dtype dtype, void *out, const void *a, const void *b,
                int64_t count)
{
    const void *const terms[] = {a, b};
    sum(s, dtype, 2, terms, NULL, NULL, out, count);
}

const weft_device weft_device_cuda = {
    .name = "cuda",
    .alloc = alloc,
    .free = release,
    .available = available,
    .total = total,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .open = open_stream,
    .close = close_stream,
    .wait = wait,
    .record = record,
    .await = await,
    .after = after,
    .forget = forget,
    .reached = reached,
    .hold = hold,
    .lift = lift,
    .force = force,
    .mark = mark,
    .copy = copy,
    .fill = fill,
    .host_copy = host_copy,
    .convert = convert,
    .add = add,
    .sum = sum,
    .links = &weft_cuda_nccl,
    .graphs = &weft_cuda_graphs,
};
