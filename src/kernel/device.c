#include "kernel/device.h"

#include "base/convert.h"
#include "base/memory.h"

#include <pthread.h>

enum { CHUNKS = 4, CHUNK = 1 << 20 /* bytes */ };

/* ---- memory -------------------------------------------------------------------------------- */

void *weft_device_alloc_host(const weft_device *device, int64_t bytes)
{
    return device->alloc_host ? device->alloc_host(device, bytes) : weft_alloc_aligned(bytes);
}

void weft_device_free_host(const weft_device *device, void *data)
{
    if (device->free_host)
        device->free_host(device, data);
    else
        weft_free(data);
}

int64_t weft_device_available(const weft_device *device, int ranks)
{
    return device && device->available ? device->available(device)
                                       : weft_memory_available() / ranks;
}

int64_t weft_device_usable(const weft_device *device)
{
    const int64_t spare = device->total ? device->total(device) / 32 : 0;
    return weft_device_available(device, 1) - spare;
}

weft_status weft_device_check_memory(const weft_device *device, int64_t bytes, const char *what)
{
    if (device->meta)
        return WEFT_OK;
    if (!device->available)
        return weft_memory_check(bytes, what);
    return bytes <= device->available(device) ? WEFT_OK
                                              : weft_device_no_memory(device, bytes, what);
}

weft_status_code weft_device_no_memory(const weft_device *device, int64_t bytes, const char *what)
{
    char need[32], left[32], full[32];
    weft_format_bytes(bytes, need);
    if (!device->available || !device->total)
        return weft_error(WEFT_MSG_MEMORY_NEEDED, WEFT_AT(WEFT_NUMBER(bytes)),
                          "%s need %s, which the device does not have. Use a smaller batch or more "
                          "ranks.",
                          what, need);
    const int64_t all = device->total(device), available = device->available(device);
    const int64_t used = all - available;
    if (all == 0) { /* the device cannot be used at all: `open` has the cause */
        weft_device_stream *stream;
        WEFT_TRY(device->open(device, NULL, &stream));
        device->close(stream);
    }
    return weft_error(
        WEFT_MSG_MEMORY_NEEDED,
        WEFT_AT(.value = device->name, WEFT_NUMBER(bytes),
                WEFT_DETAILS(WEFT_DETAIL("predicted_bytes", bytes),
                             WEFT_DETAIL("free_bytes", available),
                             WEFT_DETAIL("used_bytes", used))),
        "%s need %s (predicted), and device \"%s\" has %s free and %s used. Use a smaller batch, "
        "offload (memory.offload) or more ranks, or end other processes on the device.",
        what, need, device->name, weft_format_bytes(available, left),
        weft_format_bytes(used, full));
}

/* ---- staging ------------------------------------------------------------------------------- */

struct weft_staging {
    const weft_device *device;
    weft_device_stream *stream;
    pthread_mutex_t mutex;
    char *ring; /* CHUNKS chunks of pinned memory */
    int64_t next;
    weft_event copied[CHUNKS]; /* the last copy from each chunk */
    bool used[CHUNKS];
};

weft_status weft_staging_create(const weft_device *device, weft_staging **out)
{
    weft_staging *s;
    WEFT_TRY(WEFT_NEW(s, 1, "copies to a device"));
    s->device = device;
    pthread_mutex_init(&s->mutex, NULL);
    weft_status_code status = WEFT_OK;
    s->ring = weft_device_alloc_host(device, CHUNKS * CHUNK);
    WEFT_GO(WEFT_ALLOCATED(s->ring, "copies to a device"));
    WEFT_GO(device->open(device, NULL, &s->stream));
    *out = s;
    return WEFT_OK;
out:
    weft_staging_free(s);
    return status;
}

void weft_staging_free(weft_staging *s)
{
    if (!s)
        return;
    s->device->close(s->stream);
    for (int i = 0; i < CHUNKS; i++)
        s->device->forget(s->device, &s->copied[i]);
    weft_device_free_host(s->device, s->ring);
    pthread_mutex_destroy(&s->mutex);
    weft_free(s);
}

/* Elements of a chunk. */
static int64_t chunk_elements(weft_dtype dtype)
{
    return CHUNK / weft_dtype_bytes(dtype);
}

static weft_status write_chunk(weft_staging *s, char *to, weft_dtype to_dtype, const char *from,
                               weft_dtype from_dtype, int64_t count)
{
    const int64_t chunk = s->next++ % CHUNKS;
    char *ring = s->ring + chunk * CHUNK;
    if (s->used[chunk])
        WEFT_TRY(s->device->await(s->stream, &s->copied[chunk]));
    weft_convert(ring, to_dtype, from, from_dtype, count);
    s->device->host_copy(s->stream, to, ring, count * weft_dtype_bytes(to_dtype));
    s->used[chunk] = true;
    return s->device->record(s->stream, &s->copied[chunk]);
}

weft_status weft_staging_write(weft_staging *s, void *to, weft_dtype to_dtype, const void *from,
                               weft_dtype from_dtype, int64_t count)
{
    const int64_t most = chunk_elements(to_dtype);
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&s->mutex);
    for (int64_t at = 0; at < count && status == WEFT_OK; at += most)
        status = write_chunk(s, (char *)to + at * weft_dtype_bytes(to_dtype), to_dtype,
                             (const char *)from + at * weft_dtype_bytes(from_dtype), from_dtype,
                             count - at < most ? count - at : most);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

weft_status weft_staging_zero(weft_staging *s, void *to, int64_t bytes)
{
    pthread_mutex_lock(&s->mutex);
    s->device->fill(s->stream, to, 0, bytes);
    const weft_status_code status = s->device->wait(s->stream);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

weft_status weft_staging_finish(weft_staging *s)
{
    pthread_mutex_lock(&s->mutex);
    const weft_status_code status = s->device->wait(s->stream);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* Reads the elements from `at` on that fit into slices, all copies first. */
static weft_status read_chunks(weft_staging *s, char *to, weft_dtype to_dtype, const char *from,
                               weft_dtype from_dtype, int64_t count)
{
    const int64_t most = chunk_elements(from_dtype), to_bytes = weft_dtype_bytes(to_dtype),
                  from_bytes = weft_dtype_bytes(from_dtype);
    WEFT_TRY(s->device->wait(s->stream)); /* the slices are free */
    for (int64_t i = 0, at = 0; at < count; i++, at += most) {
        const int64_t n = count - at < most ? count - at : most;
        s->device->host_copy(s->stream, s->ring + i * CHUNK, from + at * from_bytes,
                             n * from_bytes);
        WEFT_TRY(s->device->record(s->stream, &s->copied[i]));
    }
    for (int64_t i = 0, at = 0; at < count; i++, at += most) {
        WEFT_TRY(s->device->await(s->stream, &s->copied[i]));
        weft_convert(to + at * to_bytes, to_dtype, s->ring + i * CHUNK, from_dtype,
                     count - at < most ? count - at : most);
        s->used[i] = false;
    }
    return WEFT_OK;
}

weft_status weft_staging_read(weft_staging *s, void *to, weft_dtype to_dtype, const void *from,
                              weft_dtype from_dtype, int64_t count)
{
    const int64_t most = CHUNKS * chunk_elements(from_dtype);
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&s->mutex);
    for (int64_t at = 0; at < count && status == WEFT_OK; at += most)
        status = read_chunks(s, (char *)to + at * weft_dtype_bytes(to_dtype), to_dtype,
                             (const char *)from + at * weft_dtype_bytes(from_dtype), from_dtype,
                             count - at < most ? count - at : most);
    pthread_mutex_unlock(&s->mutex);
    return status;
}
