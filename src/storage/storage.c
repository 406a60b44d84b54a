#include "storage/storage.h"

#include "base/config.h"
#include "base/hash.h"
#include "base/location.h"
#include "base/log.h"
#include "storage/block_cache.h"
#include "storage/block_prefetch.h"
#include "storage/storage_folder.h"
#include "storage/storage_http.h"
#include "storage/storage_s3.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct weft_storage {
    const weft_storage_kind *kind;
    void *self;
    char *root;
    weft_block_cache *cache;       /* NULL: reads go to the kind */
    pthread_mutex_t lock;          /* of prefetch */
    weft_block_prefetch *prefetch; /* started by the first weft_storage_expect */
    atomic_llong reads, bytes_read, facts, puts;
};

struct weft_storage_file {
    const weft_storage_kind *kind;
    void *file;
};

static const weft_storage_kind *const kinds[] = {&weft_storage_folder, &weft_storage_s3,
                                                 &weft_storage_http, &weft_storage_https};

static const weft_storage_kind *find_kind(const char *root)
{
    for (int i = 0; i < WEFT_COUNT(kinds); i++)
        if (*kinds[i]->scheme && !strncmp(root, kinds[i]->scheme, strlen(kinds[i]->scheme)))
            return kinds[i];
    return weft_location_is_remote(root) ? NULL : &weft_storage_folder;
}

/* Files of servers are cached on a disk of this machine. Without a usable disk they are not. */
static weft_status open_cache(weft_storage *s)
{
    char *folder;
    int64_t limit;
    if (!s->kind->origin)
        return WEFT_OK;
    WEFT_TRY(weft_block_cache_settings(&folder, &limit));
    if (folder && weft_block_cache_open(folder, limit, &s->cache) != WEFT_OK)
        weft_warn_error(WEFT_MSG_STORAGE_CACHE, "%s is read without a cache", s->root);
    weft_free(folder);
    return WEFT_OK;
}

weft_status weft_storage_open(const char *root, weft_storage **storage)
{
    const weft_storage_kind *kind = find_kind(root);
    if (!kind)
        return weft_error(
            WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.file = root),
            "weft does not read this kind of location. Use a folder, s3://BUCKET/PREFIX or "
            "https://HOST/PATH.");
    weft_storage *s = weft_alloc(sizeof *s);
    if (s)
        s->root = weft_strdup(root);
    if (!s || !s->root) {
        weft_free(s);
        return weft_no_memory("%s", root);
    }
    s->kind = kind;
    const weft_status_code status = kind->open(root, &s->self);
    if (status != WEFT_OK) {
        weft_free(s->root);
        weft_free(s);
        return status;
    }
    pthread_mutex_init(&s->lock, NULL);
    const weft_status_code cached = open_cache(s);
    if (cached != WEFT_OK) {
        weft_storage_close(s);
        return cached;
    }
    *storage = s;
    return WEFT_OK;
}

void weft_storage_close(weft_storage *s)
{
    if (!s)
        return;
    weft_block_prefetch_stop(s->prefetch);
    weft_block_cache_close(s->cache);
    pthread_mutex_destroy(&s->lock);
    s->kind->close(s->self);
    weft_free(s->root);
    weft_free(s);
}

const char *weft_storage_root(const weft_storage *s)
{
    return s->root;
}

const char *weft_storage_origin(const weft_storage *s)
{
    return s->kind->origin ? s->kind->origin(s->self) : s->root;
}

weft_status weft_storage_check_writable(const weft_storage *s)
{
    if (!s->kind->read_only)
        return WEFT_OK;
    return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.file = s->root),
                      "weft only reads web servers. Write into a folder or to s3://BUCKET/PREFIX.");
}

weft_status weft_storage_facts_of(weft_storage *s, const char *name, weft_storage_facts *facts)
{
    atomic_fetch_add(&s->facts, 1);
    return s->kind->facts(s->self, name, facts);
}

static weft_status describe(weft_storage *s, const char *name, weft_block_file *file)
{
    *file = (weft_block_file){.origin = s->kind->origin(s->self),
                              .name = name,
                              .read = s->kind->read,
                              .stream = s->kind->stream,
                              .self = s->self};
    return s->kind->facts(s->self, name, &file->facts);
}

static weft_status read_cached(weft_storage *s, const char *name, int64_t at, int64_t bytes,
                               void *to)
{
    weft_block_file file;
    WEFT_TRY(describe(s, name, &file));
    return weft_block_cache_read(s->cache, &file, at, bytes, to);
}

static void fetch_blocks(void *user, const char *name, int64_t at, int64_t blocks)
{
    weft_storage *s = user;
    weft_block_file file;
    if (describe(s, name, &file) != WEFT_OK || at >= file.facts.bytes ||
        weft_block_cache_fetch(s->cache, &file, at, blocks) != WEFT_OK)
        weft_error_clear(); /* the read reports it */
}

/* Whether a fetch of the block has nothing to do, as far as this is known without waiting. */
static bool is_at_hand(weft_storage *s, const char *name, int64_t at)
{
    weft_block_file file = {.origin = s->kind->origin(s->self), .name = name};
    return s->kind->known(s->self, name, &file.facts) && at < file.facts.bytes &&
           weft_block_cache_has(s->cache, &file, at);
}

void weft_storage_expect(weft_storage *s, const char *name, int64_t at, int64_t bytes)
{
    if (!s->cache || bytes <= 0)
        return;
    const int64_t first = at / WEFT_BLOCK_BYTES, last = (at + bytes - 1) / WEFT_BLOCK_BYTES;
    int64_t missing = first; /* a thread that has nothing to fetch costs the others its time */
    while (missing <= last && is_at_hand(s, name, missing * WEFT_BLOCK_BYTES))
        missing++;
    if (missing > last)
        return;
    pthread_mutex_lock(&s->lock);
    const weft_status_code status =
        s->prefetch ? WEFT_OK : weft_block_prefetch_start(fetch_blocks, s, &s->prefetch);
    pthread_mutex_unlock(&s->lock);
    if (status != WEFT_OK) {
        weft_error_clear(); /* reads do without */
        return;
    }
    for (int64_t i = missing; i <= last; i++)
        weft_block_prefetch_add(s->prefetch, name, i * WEFT_BLOCK_BYTES);
}

weft_status weft_storage_read(weft_storage *s, const char *name, int64_t at, int64_t bytes,
                              void *to)
{
    atomic_fetch_add(&s->reads, 1);
    atomic_fetch_add(&s->bytes_read, bytes);
    if (bytes <= 0)
        return WEFT_OK;
    return s->cache ? read_cached(s, name, at, bytes, to)
                    : s->kind->read(s->self, name, at, bytes, to);
}

weft_status weft_storage_read_uncached(weft_storage *s, const char *name, int64_t at, int64_t bytes,
                                       void *to)
{
    atomic_fetch_add(&s->reads, 1);
    atomic_fetch_add(&s->bytes_read, bytes);
    return bytes > 0 ? s->kind->read(s->self, name, at, bytes, to) : WEFT_OK;
}

/* Reads a file of this machine into a sink. */
static weft_status stream_local(weft_storage *s, const char *name, int64_t at, int64_t bytes,
                                const weft_byte_sink *to)
{
    enum { PIECE = 1 << 20 };
    char *piece;
    WEFT_TRY(WEFT_NEW(piece, PIECE, "%s", name));
    weft_status_code status = WEFT_OK;
    for (int64_t done = 0; done < bytes; done += PIECE) {
        const int64_t n = bytes - done < PIECE ? bytes - done : PIECE;
        WEFT_GO(s->kind->read(s->self, name, at + done, n, piece));
        WEFT_GO(to->take(to->user, done, piece, n));
    }
out:
    weft_free(piece);
    return status;
}

weft_status weft_storage_stream(weft_storage *s, const char *name, int64_t at, int64_t bytes,
                                const weft_byte_sink *to)
{
    atomic_fetch_add(&s->reads, 1);
    atomic_fetch_add(&s->bytes_read, bytes);
    if (bytes <= 0)
        return WEFT_OK;
    return s->kind->stream ? s->kind->stream(s->self, name, at, bytes, to)
                           : stream_local(s, name, at, bytes, to);
}

weft_status weft_storage_sum(weft_storage *s, const char *name, uint64_t *sum)
{
    enum { PIECE = 1 << 20 };
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_facts_of(s, name, &facts));
    char *piece = weft_alloc(PIECE);
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(piece && state, "%s", name));
    XXH3_64bits_reset(state);
    for (int64_t at = 0; at < facts.bytes; at += PIECE) {
        const int64_t n = facts.bytes - at < PIECE ? facts.bytes - at : PIECE;
        WEFT_GO(weft_storage_read(s, name, at, n, piece));
        XXH3_64bits_update(state, piece, (size_t)n);
    }
    *sum = XXH3_64bits_digest(state);
out:
    XXH3_freeState(state);
    weft_free(piece);
    return status;
}

weft_status weft_storage_list(weft_storage *s, weft_names *names)
{
    return s->kind->list(s->self, names);
}

weft_status weft_storage_list_all(weft_storage *s, weft_names *names)
{
    return s->kind->list_all ? s->kind->list_all(s->self, names) : s->kind->list(s->self, names);
}

weft_status weft_storage_remove(weft_storage *s, const char *name)
{
    WEFT_TRY(weft_storage_check_writable(s));
    return s->kind->remove(s->self, name);
}

static weft_status begin(weft_storage *s, const char *name, bool hasty, weft_storage_file **file)
{
    weft_storage_file *f;
    WEFT_TRY(weft_storage_check_writable(s));
    WEFT_TRY(WEFT_NEW(f, 1, "%s", name));
    atomic_fetch_add(&s->puts, 1);
    f->kind = s->kind;
    const weft_status_code status = s->kind->begin(s->self, name, hasty, &f->file);
    if (status != WEFT_OK) {
        weft_free(f);
        return status;
    }
    *file = f;
    return WEFT_OK;
}

weft_status weft_storage_begin(weft_storage *s, const char *name, weft_storage_file **file)
{
    return begin(s, name, false, file);
}

weft_status weft_storage_write(weft_storage_file *f, const void *data, int64_t bytes)
{
    return f->kind->write(f->file, data, bytes);
}

weft_status weft_storage_commit(weft_storage_file *f)
{
    return f->kind->commit(f->file);
}

void weft_storage_file_free(weft_storage_file *f)
{
    if (f)
        f->kind->free(f->file);
    weft_free(f);
}

static weft_status put(weft_storage *s, const char *name, const void *data, int64_t bytes,
                       bool hasty)
{
    weft_storage_file *file;
    WEFT_TRY(begin(s, name, hasty, &file));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_write(file, data, bytes));
    WEFT_GO(weft_storage_commit(file));
out:
    weft_storage_file_free(file);
    return status;
}

weft_status weft_storage_put(weft_storage *s, const char *name, const void *data, int64_t bytes)
{
    return put(s, name, data, bytes, false);
}

weft_status weft_storage_put_hasty(weft_storage *s, const char *name, const void *data,
                                   int64_t bytes)
{
    return put(s, name, data, bytes, true);
}

weft_storage_counts weft_storage_get_counts(const weft_storage *s)
{
    weft_storage *counted = (weft_storage *)s; /* atomics are read through a plain pointer */
    return (weft_storage_counts){.reads = atomic_load(&counted->reads),
                                 .bytes_read = atomic_load(&counted->bytes_read),
                                 .facts = atomic_load(&counted->facts),
                                 .puts = atomic_load(&counted->puts)};
}
