#include "storage/input_copy.h"

#include "base/config.h"
#include "base/hex.h"
#include "base/location.h"
#include "base/log.h"
#include "storage/bucket_owner.h"
#include "storage/remote_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct weft_input_copy {
    char *copies, *folder; /* owned; folder: of this copy */
    char *path;            /* owned; files/ of the folder, or the one file there */
    weft_storage *storage;
    weft_names names; /* of the objects */
    int64_t bytes;    /* of all */
    bool single;      /* the location is one object */
    bool borrowed;    /* the storage is the caller's */
    bool configs;     /* files of weights are not copied */
    int lock;         /* shared while the copy is in use; -1: none */
};

/* ---- what there is ------------------------------------------------------------------------- */

/* The location as an object of the storage above. */
static weft_status list_single(weft_input_copy *c, const char *location)
{
    const char *base = strrchr(location, '/') + 1;
    weft_buf above = {0};
    weft_storage_facts facts;
    weft_storage_close(c->storage);
    c->storage = NULL;
    c->single = true;
    weft_buf_append(&above, location, base - location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&above));
    WEFT_GO(weft_storage_open(above.data, &c->storage));
    WEFT_GO(weft_storage_facts_of(c->storage, base, &facts));
    WEFT_GO(WEFT_NEW(c->names.name, 1, "%s", location));
    WEFT_GO(WEFT_ALLOCATED(c->names.name[0] = weft_strdup(base), "%s", location));
    c->names.count = 1;
out:
    weft_buf_free(&above);
    return status;
}

static void drop_weights(weft_names *names)
{
    static const char *const weights[] = {"safetensors", "gguf", "bin", "pt", "pth", "ckpt"};
    int64_t kept = 0;
    for (int64_t i = 0; i < names->count; i++) {
        bool dropped = false;
        for (int k = 0; k < WEFT_COUNT(weights); k++)
            dropped |= !strcmp(weft_path_extension(names->name[i]), weights[k]);
        if (dropped)
            weft_free(names->name[i]);
        else
            names->name[kept++] = names->name[i];
    }
    names->count = kept;
}

/* Drops the claims of runs that write there now. */
static void drop_claims(weft_names *names)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < names->count; i++)
        if (weft_bucket_owner_is_claim(names->name[i]))
            weft_free(names->name[i]);
        else
            names->name[kept++] = names->name[i];
    names->count = kept;
}

static weft_status list(weft_input_copy *c, const char *location)
{
    const bool bucket = weft_location_is_bucket(location);
    const char *rest = strstr(location, "://");
    const char *slash = rest ? strrchr(rest + 3, '/') : NULL;
    if (bucket) {
        WEFT_TRY(weft_storage_open(location, &c->storage));
        WEFT_TRY(weft_storage_list_all(c->storage, &c->names));
    }
    drop_claims(&c->names);
    if (c->configs)
        drop_weights(&c->names);
    if (c->names.count == 0 && (!slash || !slash[1]))
        return weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = location),
                          bucket ? "the bucket has no object with this prefix"
                                 : "give the address of a file; folders are read from buckets");
    return c->names.count ? WEFT_OK : list_single(c, location);
}

/* Sets the folder of the listed versions. */
static weft_status find_folder(weft_input_copy *c)
{
    const char *origin = weft_storage_origin(c->storage);
    uint64_t hash = XXH3_64bits(origin, strlen(origin));
    char hex[WEFT_HEX_BYTES];
    weft_buf folder = {0};
    for (int64_t i = 0; i < c->names.count; i++) {
        weft_storage_facts facts;
        WEFT_TRY(weft_storage_facts_of(c->storage, c->names.name[i], &facts));
        hash = XXH3_64bits_withSeed(c->names.name[i], strlen(c->names.name[i]) + 1, hash);
        hash = XXH3_64bits_withSeed(&facts.stamp, sizeof facts.stamp, hash);
        hash = XXH3_64bits_withSeed(&facts.bytes, sizeof facts.bytes, hash);
        c->bytes += facts.bytes;
    }
    weft_buf_printf(&folder, "%s/in-%s", c->copies, weft_hex_print(hash, hex));
    c->folder = folder.data;
    WEFT_TRY(weft_buf_check(&folder));
    weft_buf path = {0};
    weft_buf_printf(&path, "%s/files%s%s", c->folder, c->single ? "/" : "",
                    c->single ? c->names.name[0] : "");
    c->path = path.data;
    return weft_buf_check(&path);
}

/* ---- room ---------------------------------------------------------------------------------- */

typedef struct other_copy {
    char *path; /* owned */
    int64_t bytes, used;
} other_copy;

static int by_use(const void *a, const void *b)
{
    const int64_t x = ((const other_copy *)a)->used, y = ((const other_copy *)b)->used;
    return (x > y) - (x < y);
}

/* Bytes of a copy, also while it is downloaded, and time of its last use. */
static void measure(other_copy *o)
{
    struct stat st;
    char *complete = weft_path_join(o->path, "complete"), *bytes = weft_path_join(o->path, "bytes"),
         *text = NULL;
    int64_t length;
    if (complete && stat(complete, &st) == 0)
        o->used = (int64_t)st.st_mtim.tv_sec;
    if (bytes && weft_file_read(bytes, 64, &text, &length) == WEFT_OK)
        o->bytes = strtoll(text, NULL, 10);
    else
        weft_error_clear();
    weft_free(text);
    weft_free(bytes);
    weft_free(complete);
}

static weft_status make_room(const weft_input_copy *c)
{
    const char *text = getenv("WEFT_COPIES_BYTES");
    int64_t limit = (int64_t)200 << 30, total = c->bytes, count = 0;
    weft_names names = {0};
    other_copy *other = NULL;
    if (text && *text && (!weft_parse_i64(text, &limit) || limit < 0))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS,
                          WEFT_AT(.key = "WEFT_COPIES_BYTES", .value = text),
                          "\"%s\" is not a number of bytes; write 200GiB", text);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_list_dir(c->copies, false, &names));
    WEFT_GO(WEFT_NEW(other, names.count + 1, "%s", c->copies));
    for (int64_t i = 0; i < names.count; i++) {
        if (strncmp(names.name[i], "in-", 3) != 0)
            continue;
        other_copy *o = &other[count++];
        WEFT_GO(WEFT_ALLOCATED(o->path = weft_path_join(c->copies, names.name[i]), "a copy"));
        if (!strcmp(o->path, c->folder)) {
            weft_free(o->path);
            *o = (other_copy){0};
            count--;
            continue;
        }
        measure(o);
        total += o->bytes;
    }
    qsort(other, (size_t)count, sizeof *other, by_use);
    for (int64_t i = 0; i < count && total > limit; i++)
        total -= weft_remote_copy_remove(other[i].path) ? other[i].bytes : 0;
out:
    for (int64_t i = 0; i < count; i++)
        weft_free(other[i].path);
    weft_free(other);
    weft_names_free(&names);
    return status;
}

/* ---- the copy ------------------------------------------------------------------------------ */

static bool is_complete(const weft_input_copy *c)
{
    char *path = weft_path_join(c->folder, "complete");
    const bool complete = path && utimensat(AT_FDCWD, path, NULL, 0) == 0; /* used now */
    weft_free(path);
    return complete;
}

static void release(weft_input_copy *c)
{
    if (c->lock >= 0)
        close(c->lock);
    c->lock = -1;
}

static weft_status take_lock(weft_input_copy *c, int kind)
{
    return weft_remote_copy_lock(c->folder, kind, &c->lock);
}

/* Writes a file of the copy's folder. */
static weft_status write_number(const weft_input_copy *c, const char *name)
{
    char text[32], *path = weft_path_join(c->folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", name));
    snprintf(text, sizeof text, "%" PRId64 "\n", c->bytes);
    const weft_status_code status = weft_file_write_atomic(path, text, (int64_t)strlen(text));
    weft_free(path);
    return status;
}

static weft_status download(weft_input_copy *c, const char *location)
{
    char *files = weft_path_join(c->folder, "files");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(files, "%s", location));
    WEFT_GO(write_number(c, "bytes")); /* first: other processes make room for all of the file */
    WEFT_GO(make_room(c));
    if (!c->borrowed)
        weft_notice(WEFT_MSG_STORAGE_COPY, WEFT_AT(.file = location, WEFT_NUMBER(c->bytes)),
                    "copying %" PRId64 " files, %.1f MB, to %s", c->names.count,
                    1e-6 * (double)c->bytes, c->folder);
    WEFT_GO(weft_remote_receive(c->storage, c->names.name, c->names.count, files));
    WEFT_GO(write_number(c, "complete"));
out:
    weft_free(files);
    return status;
}

static weft_status prepare(weft_input_copy *c, const char *location)
{
    WEFT_TRY(weft_remote_copies_folder(&c->copies));
    if (!c->borrowed)
        WEFT_TRY(list(c, location));
    WEFT_TRY(find_folder(c));
    WEFT_TRY(take_lock(c, LOCK_SH));
    while (!is_complete(c)) {
        release(c);
        WEFT_TRY(take_lock(c, LOCK_EX));
        if (!is_complete(c)) /* another process may have completed it meanwhile */
            WEFT_TRY(download(c, location));
        release(c); /* a shared lock in its place is not atomic, so look again */
        WEFT_TRY(take_lock(c, LOCK_SH));
    }
    return WEFT_OK;
}

/* Completes a new copy. Frees the copy after an error. */
static weft_status finish_open(weft_input_copy *c, const char *location, weft_input_copy **copy)
{
    const weft_status_code status = prepare(c, location);
    if (!c->borrowed)
        weft_storage_close(c->storage);
    c->storage = NULL;
    if (status != WEFT_OK) {
        weft_error_copy *error = weft_error_save();
        weft_input_copy_close(c);
        weft_error_restore(error);
        weft_free(error);
        return status;
    }
    *copy = c;
    return WEFT_OK;
}

static weft_status open_location(const char *location, bool configs, weft_input_copy **copy)
{
    weft_input_copy *c;
    WEFT_TRY(WEFT_NEW(c, 1, "%s", location));
    c->lock = -1;
    c->configs = configs;
    return finish_open(c, location, copy);
}

weft_status weft_input_copy_open(const char *location, weft_input_copy **copy)
{
    return open_location(location, false, copy);
}

weft_status weft_input_copy_open_configs(const char *location, weft_input_copy **copy)
{
    return open_location(location, true, copy);
}

static weft_status open_listed(weft_storage *storage, char *const *name, int64_t count, bool single,
                               weft_input_copy **copy)
{
    weft_input_copy *c;
    const char *location = weft_storage_root(storage);
    WEFT_TRY(WEFT_NEW(c, 1, "%s", location));
    c->lock = -1;
    c->storage = storage;
    c->borrowed = true;
    c->single = single;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(c->names.name, count + 1, "%s", location));
    for (int64_t i = 0; i < count; i++) {
        WEFT_GO(WEFT_ALLOCATED(c->names.name[i] = weft_strdup(name[i]), "%s", location));
        c->names.count++;
    }
    return finish_open(c, location, copy);
out:
    weft_input_copy_close(c);
    return status;
}

weft_status weft_input_copy_open_names(weft_storage *storage, char *const *name, int64_t count,
                                       weft_input_copy **copy)
{
    return open_listed(storage, name, count, false, copy);
}

weft_status weft_input_copy_open_object(weft_storage *storage, const char *name,
                                        weft_input_copy **copy)
{
    char *own = (char *)name; /* is not written */
    return open_listed(storage, &own, 1, true, copy);
}

const char *weft_input_copy_path(const weft_input_copy *copy)
{
    return copy->path;
}

const char *weft_input_copy_version(const char *path)
{
    enum { DIGITS = 16 };
    const char *last = NULL;
    for (const char *at = path; (at = strstr(at, "/in-")) != NULL; at++)
        if (strspn(at + 4, "0123456789abcdef") == DIGITS && !strncmp(at + 4 + DIGITS, "/files", 6))
            last = at + 1;
    return last;
}

void weft_input_copy_close(weft_input_copy *c)
{
    if (!c)
        return;
    release(c);
    weft_names_free(&c->names);
    weft_free(c->copies);
    weft_free(c->folder);
    weft_free(c->path);
    weft_free(c);
}
