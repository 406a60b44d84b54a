#include "data/shard_file.h"

#include "format/tar/tar.h"
#include "format/tar/tar_write.h"

struct weft_shard_file {
    weft_storage *storage; /* borrowed */
    char *name;
    weft_tar_writer *tar;
    uint64_t *sum; /* checksums of the parts, in order */
    int64_t parts, capacity, bytes;
};

static weft_status out_write(void *file, const void *data, int64_t bytes)
{
    return weft_storage_write(file, data, bytes);
}

static weft_status out_commit(void *file)
{
    return weft_storage_commit(file);
}

static void out_free(void *file)
{
    weft_storage_file_free(file);
}

weft_status weft_shard_file_create(weft_storage *storage, const char *name, weft_shard_file **file)
{
    weft_shard_file *f = weft_alloc(sizeof *f);
    weft_storage_file *out;
    if (f)
        f->name = weft_strdup(name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(f && f->name ? weft_storage_begin(storage, name, &out) : weft_no_memory("%s", name));
    const weft_tar_output output = {
        .self = out, .write = out_write, .commit = out_commit, .free = out_free};
    f->storage = storage;
    WEFT_GO(weft_tar_create_on(&output, &f->tar));
    *file = f;
out:
    if (status != WEFT_OK)
        weft_shard_file_free(f);
    return status;
}

weft_status weft_shard_file_begin(weft_shard_file *f, const char *key, const char *suffix,
                                  int64_t bytes)
{
    weft_buf name = {0};
    weft_buf_printf(&name, "%s.%s", key, suffix);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&name));
    WEFT_GO(weft_tar_begin(f->tar, name.data, bytes));
out:
    weft_buf_free(&name);
    return status;
}

weft_status weft_shard_file_append(weft_shard_file *f, const void *data, int64_t bytes)
{
    f->bytes += bytes;
    return bytes > 0 ? weft_tar_append(f->tar, data, bytes) : WEFT_OK;
}

weft_status weft_shard_file_end(weft_shard_file *f)
{
    WEFT_TRY(weft_tar_end(f->tar));
    WEFT_TRY(weft_grow((void **)&f->sum, f->parts, &f->capacity, sizeof *f->sum));
    (void)weft_tar_last(f->tar, &f->sum[f->parts++]);
    return WEFT_OK;
}

weft_status weft_shard_file_add(weft_shard_file *f, const char *key, const char *suffix,
                                const void *data, int64_t bytes)
{
    WEFT_TRY(weft_shard_file_begin(f, key, suffix, bytes));
    WEFT_TRY(weft_shard_file_append(f, data, bytes));
    return weft_shard_file_end(f);
}

int64_t weft_shard_file_bytes(const weft_shard_file *f)
{
    return f->bytes;
}

/* Writes the index from the headers of the archive and the checksums computed while writing. */
static weft_status write_index(weft_shard_file *f, uint64_t hash)
{
    weft_index index;
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "%s", f->name));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_index_make(f->storage, f->name, arena, &index));
    if (index.parts != f->parts)
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = f->name),
                           "%" PRId64 " of %" PRId64 " written parts were found again", index.parts,
                           f->parts));
    weft_index_set_sums(&index, f->sum, hash);
    WEFT_GO(weft_index_save(f->storage, f->name, &index));
out:
    weft_arena_free(arena);
    return status;
}

weft_status weft_shard_file_finish(weft_shard_file *f, uint64_t *hash, int64_t *bytes)
{
    uint64_t own;
    WEFT_TRY(weft_tar_finish(f->tar, &own, bytes));
    if (hash)
        *hash = own;
    return write_index(f, own);
}

void weft_shard_file_free(weft_shard_file *f)
{
    if (!f)
        return;
    weft_tar_free(f->tar);
    weft_free(f->name);
    weft_free(f->sum);
    weft_free(f);
}
