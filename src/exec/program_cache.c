#include "exec/program_cache.h"

#include "base/memory.h"

#include <string.h>

typedef struct entry {
    weft_program_key key;
    void *value;
    int64_t bytes, used; /* used: clock at the last take */
    int holds;
} entry;

struct weft_program_cache {
    entry *entry;
    int64_t count, capacity, max_bytes, clock;
    void (*release)(void *value);
    weft_program_cache_counts counts;
};

weft_program_cache *weft_program_cache_create(int64_t max_bytes, void (*release)(void *value))
{
    weft_program_cache *c = weft_alloc(sizeof *c);
    if (c) {
        c->max_bytes = max_bytes;
        c->release = release;
    }
    return c;
}

void weft_program_cache_free(weft_program_cache *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->count; i++)
        c->release(c->entry[i].value);
    weft_free(c->entry);
    weft_free(c);
}

static bool equal_meshes(const weft_mesh *a, const weft_mesh *b)
{
    bool equal = a->axis_count == b->axis_count;
    for (int i = 0; equal && i < a->axis_count; i++)
        equal = a->axis[i].size == b->axis[i].size && !strcmp(a->axis[i].name, b->axis[i].name);
    return equal;
}

static bool equal_keys(const weft_program_key *a, const weft_program_key *b)
{
    return a->graph == b->graph && a->options == b->options && a->index == b->index &&
           equal_meshes(&a->mesh, &b->mesh);
}

void *weft_program_cache_take(weft_program_cache *c, const weft_program_key *key)
{
    for (int64_t i = 0; i < c->count; i++)
        if (equal_keys(&c->entry[i].key, key)) {
            c->entry[i].holds++;
            c->entry[i].used = ++c->clock;
            c->counts.found++;
            return c->entry[i].value;
        }
    return NULL;
}

static void evict(weft_program_cache *c)
{
    while (c->counts.bytes > c->max_bytes) {
        int64_t oldest = -1;
        for (int64_t i = 0; i < c->count; i++)
            if (c->entry[i].holds == 0 && (oldest < 0 || c->entry[i].used < c->entry[oldest].used))
                oldest = i;
        if (oldest < 0)
            return; /* all are in use */
        c->counts.bytes -= c->entry[oldest].bytes;
        c->counts.evicted++;
        c->release(c->entry[oldest].value);
        c->entry[oldest] = c->entry[--c->count];
    }
}

weft_status weft_program_cache_put(weft_program_cache *c, const weft_program_key *key, void *value,
                                   int64_t bytes)
{
    const weft_status_code status =
        weft_grow((void **)&c->entry, c->count, &c->capacity, sizeof *c->entry);
    if (status != WEFT_OK) {
        c->release(value);
        return status;
    }
    c->entry[c->count++] =
        (entry){.key = *key, .value = value, .bytes = bytes, .used = ++c->clock, .holds = 1};
    c->counts.added++;
    c->counts.bytes += bytes;
    evict(c);
    return WEFT_OK;
}

void weft_program_cache_drop(weft_program_cache *c, const void *value)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->entry[i].value == value) {
            c->entry[i].holds--;
            break;
        }
    evict(c);
}

weft_program_cache_counts weft_program_cache_count(const weft_program_cache *c)
{
    weft_program_cache_counts counts = c->counts;
    counts.values = c->count;
    return counts;
}
