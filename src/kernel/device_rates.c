#include "kernel/device_rates.h"

#include "base/memory.h"
#include "kernel/device.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 6 }; /* the first one is not measured */

/* A copy of `bytes`; host: NULL for a copy inside the device. */
typedef struct copying {
    const weft_device *device;
    weft_device_stream *stream;
    char *memory, *host;
    int64_t bytes;
} copying;

typedef void copy_once(const copying *c);

static void copy_inside(const copying *c)
{
    c->device->copy(c->stream, c->memory + c->bytes, c->memory,
                    (weft_rows){1, c->bytes, c->bytes, c->bytes});
}

static void copy_to_device(const copying *c)
{
    c->device->host_copy(c->stream, c->memory, c->host, c->bytes);
}

static void copy_to_host(const copying *c)
{
    c->device->host_copy(c->stream, c->host, c->memory, c->bytes);
}

static weft_status time_copy(const copying *c, copy_once *copy, double *seconds)
{
    weft_event begin = {0}, end = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(c->device->record(c->stream, &begin));
    copy(c);
    WEFT_GO(c->device->record(c->stream, &end));
    WEFT_GO(c->device->await(c->stream, &begin));
    WEFT_GO(c->device->await(c->stream, &end));
    *seconds = end.seconds - begin.seconds;
out:
    c->device->forget(c->device, &begin);
    c->device->forget(c->device, &end);
    return status;
}

static weft_status rate_of(const copying *c, copy_once *copy, double *rate)
{
    *rate = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds;
        WEFT_TRY(time_copy(c, copy, &seconds));
        if (i > 0 && seconds > 0)
            *rate = fmax(*rate, (double)c->bytes / seconds);
    }
    return WEFT_OK;
}

static weft_status measure(const copying *c, weft_device_rates *rates)
{
    c->device->fill(c->stream, c->memory, 0, 2 * c->bytes);
    WEFT_TRY(rate_of(c, copy_inside, &rates->copy));
    rates->copy *= 2;
    WEFT_TRY(rate_of(c, copy_to_device, &rates->to_device));
    return rate_of(c, copy_to_host, &rates->to_host);
}

weft_status weft_device_rates_measure(const weft_device *device, int64_t bytes,
                                      weft_device_rates *rates)
{
    const int64_t most = weft_device_available(device, 1) / 8 / 256 * 256;
    copying c = {.device = device, .bytes = bytes < most ? bytes : most};
    weft_status_code status = WEFT_OK;
    *rates = (weft_device_rates){0};
    c.memory = device->alloc(device, 2 * c.bytes + 1);
    c.host = weft_device_alloc_host(device, c.bytes + 1);
    WEFT_GO(WEFT_ALLOCATED(c.memory && c.host, "the measurement of copies"));
    memset(c.host, 0, (size_t)c.bytes);
    WEFT_GO(device->open(device, NULL, &c.stream));
    WEFT_GO(measure(&c, rates));
out:
    if (c.stream)
        device->close(c.stream);
    device->free(device, c.memory);
    weft_device_free_host(device, c.host);
    return status;
}
