#include "format/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* ---- reading ----------------------------------------------------------------------------------- */

/* The member's bytes in the map. libarchive hands out pointers into the memory it was given; a sparse or compressed
 * member would come in several pieces and is refused. */
static bool member_data(struct archive *a, const weft_map *map, int64_t bytes, const unsigned char **data)
{
    const void *block;
    size_t size;
    la_int64_t offset;
    if (bytes == 0) {
        *data = map->data;
        return true;
    }
    if (archive_read_data_block(a, &block, &size, &offset) != ARCHIVE_OK)
        return false;
    const unsigned char *p = block;
    *data = p;
    return offset == 0 && p >= map->data && bytes <= map->bytes - (p - map->data);
}

weft_status weft_tar_open(const weft_map *map, const char *path, weft_arena *arena, weft_tar_index *index)
{
    weft_tar_index found = {0};
    weft_status_code status = WEFT_OK;
    struct archive *a = archive_read_new();
    if (!a)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    archive_read_support_format_tar(a);
    if (map->bytes == 0 || archive_read_open_memory(a, map->data, (size_t)map->bytes) != ARCHIVE_OK) {
        status = weft_fail(WEFT_E_FORMAT, "%s: not a tar archive: %s", path,
                           map->bytes ? archive_error_string(a) : "the file is empty");
        goto out;
    }
    struct archive_entry *entry;
    int r;
    while ((r = archive_read_next_header(a, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        if (archive_entry_filetype(entry) != AE_IFREG)
            continue;
        const char *name = archive_entry_pathname(entry);
        weft_tar_member m = {.bytes = archive_entry_size(entry)};
        m.name = name ? weft_arena_strdup(arena, name) : NULL;
        if (!m.name) {
            status = weft_fail(WEFT_E_MEMORY, "%s: out of memory, or a member without a name", path);
            goto out;
        }
        if (!member_data(a, map, m.bytes, &m.data)) {
            r = ARCHIVE_FATAL;
            break;
        }
        WEFT_GO(weft_grow((void **)&found.member, found.count, &found.capacity, sizeof *found.member));
        found.member[found.count++] = m;
    }
    if (r != ARCHIVE_EOF) {
        const char *why = archive_error_string(a);
        if (found.count == 0) {
            status = weft_fail(WEFT_E_FORMAT, "%s: not a readable tar archive: %s", path, why ? why : "cut off");
            goto out;
        }
        found.damage = weft_arena_printf(arena, "%s: damaged after %lld members (%s): cut off while it was copied?", path,
                                         (long long)found.count, why ? why : "a member is cut off");
    }
    *index = found;
    found = (weft_tar_index){0};
out:
    weft_tar_close(&found);
    archive_read_free(a);
    return status;
}

void weft_tar_close(weft_tar_index *index)
{
    weft_free(index->member);
    *index = (weft_tar_index){0};
}

/* ---- writing ----------------------------------------------------------------------------------- */

struct weft_tar_writer {
    weft_file_writer file;
    struct archive *archive;
    XXH3_state_t *hash;
    int64_t bytes;
    weft_status_code status; /* of the write callback */
};

static la_ssize_t write_block(struct archive *a, void *user, const void *block, size_t size)
{
    weft_tar_writer *w = user;
    w->status = weft_file_write(&w->file, block, (int64_t)size);
    if (w->status != WEFT_OK) {
        archive_set_error(a, EIO, "write failed");
        return -1;
    }
    XXH3_64bits_update(w->hash, block, size);
    w->bytes += (int64_t)size;
    return (la_ssize_t)size;
}

static weft_status writer_error(weft_tar_writer *w)
{
    if (w->status != WEFT_OK)
        return w->status; /* the message is there already */
    return weft_fail(WEFT_E_IO, "cannot write %s: %s", w->file.path, archive_error_string(w->archive));
}

weft_status weft_tar_create(const char *path, weft_tar_writer **writer)
{
    weft_tar_writer *w = weft_alloc(sizeof *w);
    if (!w)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    w->file.fd = -1;
    weft_status_code status = weft_file_begin(&w->file, path);
    if (status != WEFT_OK) {
        weft_free(w);
        return status;
    }
    w->archive = archive_write_new();
    w->hash = XXH3_createState();
    if (!w->archive || !w->hash) {
        weft_tar_free(w);
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    }
    XXH3_64bits_reset(w->hash);
    archive_write_set_format_pax_restricted(w->archive);
    archive_write_set_bytes_per_block(w->archive, 1 << 20);
    archive_write_set_bytes_in_last_block(w->archive, 1);
    if (archive_write_open(w->archive, w, NULL, write_block, NULL) != ARCHIVE_OK) {
        status = writer_error(w);
        weft_tar_free(w);
        return status;
    }
    *writer = w;
    return WEFT_OK;
}

weft_status weft_tar_add(weft_tar_writer *w, const char *name, const void *data, int64_t bytes)
{
    struct archive_entry *entry = archive_entry_new();
    if (!entry)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", w->file.path);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, bytes);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_mtime(entry, 0, 0);
    const bool ok = archive_write_header(w->archive, entry) == ARCHIVE_OK &&
                    archive_write_data(w->archive, data, (size_t)bytes) == (la_ssize_t)bytes;
    archive_entry_free(entry);
    return ok ? WEFT_OK : writer_error(w);
}

weft_status weft_tar_finish(weft_tar_writer *w, uint64_t *hash, int64_t *bytes)
{
    if (archive_write_close(w->archive) != ARCHIVE_OK)
        return writer_error(w);
    WEFT_TRY(weft_file_commit(&w->file));
    if (hash)
        *hash = XXH3_64bits_digest(w->hash);
    if (bytes)
        *bytes = w->bytes;
    return WEFT_OK;
}

void weft_tar_free(weft_tar_writer *w)
{
    if (!w)
        return;
    if (w->archive) {
        archive_write_fail(w->archive); /* no end of archive into a file that goes away */
        archive_write_free(w->archive);
    }
    XXH3_freeState(w->hash);
    if (w->file.path)
        weft_file_abort(&w->file);
    weft_free(w);
}
