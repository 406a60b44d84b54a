/* Storage: named files that are read in pieces and written atomically.
 *
 *     dataset, loader, shard writer
 *                │  read(name, offset, bytes)   facts   list   put   begin/write/commit   remove
 *                ▼
 *           weft_storage ─┬─ folder: pread, at most 128 files open at once, nothing mapped
 *                         ├─ s3://BUCKET/PREFIX: ranged GET, multipart upload
 *                         └─ http(s)://HOST/PATH: ranged GET, read only
 *
 * Names are relative to the root ("train-000000.tar"). Reading is safe from any thread. */
#ifndef WEFT_STORAGE_STORAGE_H
#define WEFT_STORAGE_STORAGE_H

#include "base/fs.h"
#include "storage/byte_sink.h"

typedef struct weft_storage_facts {
    int64_t bytes;
    uint64_t stamp; /* changes when the file is rewritten; in a folder the time of change */
} weft_storage_facts;

typedef struct weft_storage weft_storage;
/* A file being written; it gets its name when it is committed. */
typedef struct weft_storage_file weft_storage_file;

/* The operations of a kind of storage. `origin`, `known`, `stream` and `list_all` may be NULL, and
 * in a read-only kind all after `list_all`. `self` is the object that `open` created. */
typedef struct weft_storage_kind {
    const char *scheme; /* "s3://"; "" is the kind for paths without one */
    bool read_only;     /* nothing can be written or removed */
    weft_status (*open)(const char *root, void **self);
    void (*close)(void *self);
    /* A name of the root that no other store has: its files are cached by this name. NULL: a
     * storage of this machine, which needs no cache. */
    const char *(*origin)(void *self);
    weft_status (*facts)(void *self, const char *name, weft_storage_facts *facts);
    /* Whether the facts are known without a request, and the facts. NULL: a storage of this
     * machine. */
    bool (*known)(void *self, const char *name, weft_storage_facts *facts);
    weft_status (*read)(void *self, const char *name, int64_t at, int64_t bytes, void *to);
    /* Reads into a sink. NULL: a storage of this machine. */
    weft_status (*stream)(void *self, const char *name, int64_t at, int64_t bytes,
                          const weft_byte_sink *to);
    weft_status (*list)(void *self, weft_names *names);
    /* Lists the files of all folders below the root, too. NULL: not possible. */
    weft_status (*list_all)(void *self, weft_names *names);
    weft_status (*remove)(void *self, const char *name);
    /* `hasty`: does not wait for the disk, for files with checksums that can be written again. */
    weft_status (*begin)(void *self, const char *name, bool hasty, void **file);
    weft_status (*write)(void *file, const void *data, int64_t bytes);
    weft_status (*commit)(void *file);
    void (*free)(void *file); /* without commit, also removes the file */
} weft_storage_kind;

/* `root`: a folder, s3://BUCKET/PREFIX or http(s)://HOST/PATH. A scheme that no kind has is
 * WEFT_E_UNSUPPORTED. */
weft_status weft_storage_open(const char *root, weft_storage **storage);
void weft_storage_close(weft_storage *storage); /* accepts NULL */
const char *weft_storage_root(const weft_storage *storage);
/* A name of the root that no other store has; a folder's is its path. */
const char *weft_storage_origin(const weft_storage *storage);
/* WEFT_E_UNSUPPORTED: the storage is only read. */
weft_status weft_storage_check_writable(const weft_storage *storage);
/* WEFT_E_NOT_FOUND: the file does not exist. */
weft_status weft_storage_facts_of(weft_storage *storage, const char *name,
                                  weft_storage_facts *facts);
/* All `bytes` or an error: a file that ends before is WEFT_E_IO with the place. */
weft_status weft_storage_read(weft_storage *storage, const char *name, int64_t at, int64_t bytes,
                              void *to);
/* Does the same without the cache, for files that are copied as a whole. */
weft_status weft_storage_read_uncached(weft_storage *storage, const char *name, int64_t at,
                                       int64_t bytes, void *to);
/* Reads into a sink, without the cache. */
weft_status weft_storage_stream(weft_storage *storage, const char *name, int64_t at, int64_t bytes,
                                const weft_byte_sink *to);
/* Announces a read: a remote file's blocks are fetched into the cache by other threads, in the
 * order of the calls. Does not wait, and changes nothing else. */
void weft_storage_expect(weft_storage *storage, const char *name, int64_t at, int64_t bytes);
/* XXH3-64 of the whole file. */
weft_status weft_storage_sum(weft_storage *storage, const char *name, uint64_t *sum);
weft_status weft_storage_list(weft_storage *storage, weft_names *names); /* sorted by bytes */
/* Lists the files of all folders below the root, as paths relative to the root. A storage that
 * cannot list its folders gives the files of the root. */
weft_status weft_storage_list_all(weft_storage *storage, weft_names *names);
weft_status weft_storage_remove(weft_storage *storage, const char *name);
/* Writes a file atomically: it exists with all its bytes, or not at all. A name may contain
 * folders.
 */
weft_status weft_storage_put(weft_storage *storage, const char *name, const void *data,
                             int64_t bytes);
/* Writes a file without waiting for the disk. After a crash of the machine it may have wrong bytes.
 * For files with checksums that can be written again. */
weft_status weft_storage_put_hasty(weft_storage *storage, const char *name, const void *data,
                                   int64_t bytes);
weft_status weft_storage_begin(weft_storage *storage, const char *name, weft_storage_file **file);
weft_status weft_storage_write(weft_storage_file *file, const void *data, int64_t bytes);
weft_status weft_storage_commit(weft_storage_file *file);
void weft_storage_file_free(weft_storage_file *file); /* accepts NULL */

/* Counts of the operations so far, for tests and reports. */
typedef struct weft_storage_counts {
    int64_t reads, bytes_read, facts, puts;
} weft_storage_counts;
weft_storage_counts weft_storage_get_counts(const weft_storage *storage);

enum { WEFT_STORAGE_OPEN_FILES = 128 }; /* maximum of open files of a folder */

#endif
