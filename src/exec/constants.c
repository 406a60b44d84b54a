#include "exec/constants.h"

#include "base/memory.h"
#include "kernel/device.h"

#include <pthread.h>

struct weft_constant_copy {
    const weft_device *device;
    const void *from;
    weft_dtype to;
    int64_t count;
    int users;
    void *data;
    weft_constant_copy *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the list and its users */
static weft_constant_copy *list;

static weft_constant_copy *find(const weft_device *device, const void *data, weft_dtype to,
                                int64_t count)
{
    weft_constant_copy *c = list;
    while (c && (c->device != device || c->from != data || c->to != to || c->count != count))
        c = c->next;
    return c;
}

/* Writes the values of a copy. */
static weft_status write_values(const weft_constant_copy *c, weft_dtype from)
{
    weft_staging *staging;
    if (!weft_device_is_apart(c->device)) {
        c->device->convert(NULL, c->data, c->to, c->from, from, c->count);
        return WEFT_OK;
    }
    WEFT_TRY(weft_staging_create(c->device, &staging));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_staging_write(staging, c->data, c->to, c->from, from, c->count));
    WEFT_GO(weft_staging_finish(staging));
out:
    weft_staging_free(staging);
    return status;
}

static weft_status make(const weft_device *device, const void *data, weft_dtype from, weft_dtype to,
                        int64_t count, weft_constant_copy **copy)
{
    weft_constant_copy *c = weft_alloc(sizeof *c);
    void *own = device->alloc(device, weft_aligned(count * weft_dtype_bytes(to)));
    if (!c || !own) {
        char text[32];
        device->free(device, own);
        weft_free(c);
        return weft_no_memory("a constant of %s",
                              weft_format_bytes(count * weft_dtype_bytes(to), text));
    }
    *c = (weft_constant_copy){
        .device = device, .from = data, .to = to, .count = count, .data = own, .next = list};
    const weft_status_code status = write_values(c, from);
    if (status != WEFT_OK) {
        device->free(device, own);
        weft_free(c);
        return status;
    }
    list = c;
    *copy = c;
    return WEFT_OK;
}

weft_status weft_constant_hold(const weft_device *device, const void *data, weft_dtype from,
                               weft_dtype to, int64_t count, weft_constant_copy **copy)
{
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&mutex);
    weft_constant_copy *c = find(device, data, to, count);
    if (!c)
        status = make(device, data, from, to, count, &c);
    if (c)
        c->users++;
    pthread_mutex_unlock(&mutex);
    *copy = c;
    return status;
}

void *weft_constant_data(const weft_constant_copy *copy)
{
    return copy->data;
}

void weft_constant_release(weft_constant_copy *copy)
{
    if (!copy)
        return;
    pthread_mutex_lock(&mutex);
    const bool last = --copy->users == 0;
    weft_constant_copy **at = &list;
    while (last && *at != copy)
        at = &(*at)->next;
    if (last)
        *at = copy->next;
    pthread_mutex_unlock(&mutex);
    if (!last)
        return;
    copy->device->free(copy->device, copy->data);
    weft_free(copy);
}
