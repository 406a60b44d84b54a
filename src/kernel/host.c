/* The host as a device, for `cpu` and `ref`. All work is done when a call returns. */
#include "kernel/host.h"

#include "kernel/kernel.h"

#include "base/convert.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/sums.h"

#include <omp.h>

static void *alloc(const weft_device *device, int64_t bytes)
{
    (void)device;
    void *data = weft_alloc_aligned(bytes);
    weft_use_large_pages(data, bytes);
    return data;
}

static void release(const weft_device *device, void *data)
{
    (void)device;
    weft_free(data);
}

static weft_status_code open_stream(const weft_device *device, const weft_backend *backend,
                                    weft_device_stream **stream)
{
    (void)device, (void)backend;
    *stream = NULL;
    return WEFT_OK;
}

static void close_stream(weft_device_stream *stream)
{
    (void)stream;
}

static weft_status_code wait(weft_device_stream *stream)
{
    (void)stream;
    return WEFT_OK;
}

static weft_status_code record(weft_device_stream *stream, weft_event *event)
{
    (void)stream;
    event->seconds = weft_now();
    return WEFT_OK;
}

static weft_status_code await(weft_device_stream *stream, weft_event *event)
{
    (void)stream, (void)event;
    return WEFT_OK;
}

static void after(weft_device_stream *stream, const weft_event *event)
{
    (void)stream, (void)event;
}

static void forget(const weft_device *device, weft_event *event)
{
    (void)device, (void)event;
}

static void copy(weft_device_stream *stream, void *to, const void *from, weft_rows r)
{
    (void)stream;
    for (int64_t i = 0; i < r.rows && r.row > 0; i++)
        memmove((char *)to + i * r.to, (const char *)from + i * r.from, (size_t)r.row);
}

static void fill(weft_device_stream *stream, void *to, int byte, int64_t bytes)
{
    (void)stream;
    memset(to, byte, (size_t)bytes);
}

static void convert(weft_device_stream *stream, void *to, weft_dtype to_dtype, const void *from,
                    weft_dtype from_dtype, int64_t count)
{
    (void)stream;
    weft_convert(to, to_dtype, from, from_dtype, count);
}

static void add(weft_device_stream *stream, weft_dtype dtype, void *out, const void *a,
                const void *b, int64_t count)
{
    (void)stream;
    weft_sum_two(dtype, out, a, b, count);
}

static void sum(weft_device_stream *stream, weft_dtype dtype, int k, const void *const *term,
                void *const *slot, void *temp, void *out, int64_t count)
{
    (void)stream;
    weft_sum_terms(dtype, k, term, slot, temp, out, count);
}

const weft_device weft_device_host = {
    .name = "host",
    .alloc = alloc,
    .free = release,
    .open = open_stream,
    .close = close_stream,
    .wait = wait,
    .record = record,
    .await = await,
    .after = after,
    .forget = forget,
    .copy = copy,
    .fill = fill,
    .convert = convert,
    .add = add,
    .sum = sum,
};

/* A team has at most OMP_THREAD_LIMIT threads, whatever OMP_NUM_THREADS says. A loop that counts on
 * more can run in a team of one, where OpenBLAS divides a product among threads that do not
 * exist. */
int weft_host_threads(void)
{
    const int threads = omp_get_max_threads(), most = omp_get_thread_limit();
    return threads < most ? threads : most;
}

int weft_host_set_threads(int threads)
{
    const int before = omp_get_max_threads();
    if (threads > 0 && threads != before)
        omp_set_num_threads(threads);
    return before;
}
