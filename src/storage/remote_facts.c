#include "storage/remote_facts.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

void weft_remote_table_init(weft_remote_table *t)
{
    *t = (weft_remote_table){0};
    pthread_mutex_init(&t->lock, NULL);
}

static void forget(weft_remote_object *object)
{
    weft_free(object->name);
    weft_free(object->etag);
}

void weft_remote_table_clear(weft_remote_table *t)
{
    pthread_mutex_lock(&t->lock);
    for (int64_t i = 0; i < t->count; i++)
        forget(&t->object[i]);
    t->count = 0;
    pthread_mutex_unlock(&t->lock);
}

void weft_remote_table_free(weft_remote_table *t)
{
    weft_remote_table_clear(t);
    weft_free(t->object);
    pthread_mutex_destroy(&t->lock);
}

/* Index of the first object whose name is not before `name`. */
static int64_t lower_bound(const weft_remote_table *t, const char *name)
{
    int64_t low = 0, high = t->count;
    if (high && strcmp(t->object[high - 1].name, name) < 0) /* lists come sorted */
        return high;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(t->object[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const weft_remote_table *t, int64_t i, const char *name)
{
    return i < t->count && !strcmp(t->object[i].name, name);
}

static weft_status put(weft_remote_table *t, weft_remote_object *object)
{
    const int64_t i = lower_bound(t, object->name);
    if (is_at(t, i, object->name)) {
        forget(&t->object[i]);
    } else {
        WEFT_TRY(weft_grow((void **)&t->object, t->count, &t->capacity, sizeof *t->object));
        memmove(&t->object[i + 1], &t->object[i], (size_t)(t->count - i) * sizeof *t->object);
        t->count++;
    }
    t->object[i] = *object;
    return WEFT_OK;
}

weft_status weft_remote_table_put(weft_remote_table *t, const char *name, const char *etag,
                                  int64_t bytes)
{
    weft_remote_object object = {weft_strdup(name), weft_strdup(etag), bytes};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(object.name && object.etag, "%s", name));
    pthread_mutex_lock(&t->lock);
    status = put(t, &object);
    pthread_mutex_unlock(&t->lock);
out:
    if (status != WEFT_OK)
        forget(&object);
    return status;
}

void weft_remote_table_drop(weft_remote_table *t, const char *name)
{
    pthread_mutex_lock(&t->lock);
    const int64_t i = lower_bound(t, name);
    if (is_at(t, i, name)) {
        forget(&t->object[i]);
        t->count--;
        memmove(&t->object[i], &t->object[i + 1], (size_t)(t->count - i) * sizeof *t->object);
    }
    pthread_mutex_unlock(&t->lock);
}

bool weft_remote_table_get(weft_remote_table *t, const char *name, char etag[WEFT_ETAG_BYTES],
                           weft_storage_facts *facts)
{
    pthread_mutex_lock(&t->lock);
    const int64_t i = lower_bound(t, name);
    const bool found = is_at(t, i, name);
    if (found) {
        const weft_remote_object *o = &t->object[i];
        facts->bytes = o->bytes;
        facts->stamp = XXH3_64bits_withSeed(o->etag, strlen(o->etag), (uint64_t)o->bytes);
        if (etag)
            snprintf(etag, WEFT_ETAG_BYTES, "%s", o->etag);
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* Compares "bytes 0-9/100" with the range. */
static bool is_range(const char *content_range, int64_t at, int64_t bytes)
{
    int64_t first, last;
    return sscanf(content_range, "bytes %" SCNd64 "-%" SCNd64 "/", &first, &last) == 2 &&
           first == at && last == at + bytes - 1;
}

static weft_status fail_range(const weft_remote_range *r, int64_t at, int64_t bytes,
                              const weft_http_reply *reply)
{
    return weft_error(WEFT_MSG_STORAGE_REQUEST,
                      WEFT_AT(.file = r->name, .value = reply->content_range),
                      "%s answered %" PRId64 " bytes at %" PRId64 " with %" PRId64
                      " bytes of the range \"%s\". Use a server with ranges, or copy the file.",
                      r->root, bytes, at, reply->received, reply->content_range);
}

/* Bytes of the whole file according to a reply; -1: not told. */
static int64_t size_told(const weft_http_reply *reply)
{
    int64_t size;
    if (sscanf(reply->content_range, "bytes %*d-%*d/%" SCNd64, &size) == 1)
        return size;
    return !*reply->content_range && reply->status == 200 ? reply->length : -1;
}

/* Compares the headers of a reply. */
static weft_status check_head(const void *user, int64_t at, int64_t bytes,
                              const weft_http_reply *reply)
{
    const weft_remote_range *r = user;
    const char *version = r->version_of(reply);
    const int64_t size = size_told(reply);
    if ((*r->version && *version && strcmp(r->version, version) != 0) ||
        (size >= 0 && size != r->size))
        return weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = r->name, .value = version),
                          "the file of %s was rewritten while it was in use; run the command again",
                          r->root);
    const bool whole = !*reply->content_range && reply->status == 200 && at == 0;
    return whole || is_range(reply->content_range, at, bytes) ? WEFT_OK
                                                              : fail_range(r, at, bytes, reply);
}

weft_http_range weft_remote_range_of(const weft_remote_range *of, int64_t at, int64_t bytes)
{
    return (weft_http_range){.at = at, .bytes = bytes, .check = check_head, .user = of};
}

weft_status weft_remote_range_check(const weft_http_range *r, const weft_http_reply *reply)
{
    if (r->kept < r->bytes) /* else the last reply was cut after its last byte, and was checked */
        WEFT_TRY(check_head(r->user, r->at + r->kept, r->bytes - r->kept, reply));
    return reply->received == r->bytes ? WEFT_OK : fail_range(r->user, r->at, r->bytes, reply);
}
