/* Where shards lie: named files that are read in pieces. A folder is the one kind that is there;
 * an object store or a server of HTTP ranges is another filling of the same table.
 *
 *     dataset, loader, shard writer
 *                │  read(name, offset, bytes)   facts   list   put   begin/write/commit   remove
 *                ▼
 *           weft_storage ── folder: pread, at most 128 files open at once, nothing mapped
 *
 * Names are relative to the root ("train-000000.tar"). Reading is safe from any thread. */
#ifndef WEFT_DATA_STORAGE_H
#define WEFT_DATA_STORAGE_H

#include "base/fs.h"

typedef struct weft_storage_facts {
    int64_t bytes;
    uint64_t stamp; /* changes when the file is written anew; of a folder its time of change */
} weft_storage_facts;

typedef struct weft_storage weft_storage;
/* A file being written; it gets its name when it is committed. */
typedef struct weft_storage_file weft_storage_file;

/* What a kind of storage can do; every cell is filled. `self` is what `open` made. */
typedef struct weft_storage_kind {
    const char *scheme; /* "s3://"; "" is the kind for paths without one */
    weft_status (*open)(const char *root, void **self);
    void (*close)(void *self);
    weft_status (*facts)(void *self, const char *name, weft_storage_facts *facts);
    weft_status (*read)(void *self, const char *name, int64_t at, int64_t bytes, void *to);
    weft_status (*list)(void *self, weft_names *names);
    weft_status (*remove)(void *self, const char *name);
    /* `hasty`: of what is checked when it is read and can be made again; nothing waits for a disk.
     * */
    weft_status (*begin)(void *self, const char *name, bool hasty, void **file);
    weft_status (*write)(void *file, const void *data, int64_t bytes);
    weft_status (*commit)(void *file);
    void (*free)(void *file); /* also what was not committed: nothing stays of it */
} weft_storage_kind;

/* `root`: a folder. A scheme that no kind has is WEFT_E_UNSUPPORTED. */
weft_status weft_storage_open(const char *root, weft_storage **storage);
void weft_storage_close(weft_storage *storage); /* accepts NULL */
const char *weft_storage_root(const weft_storage *storage);
/* WEFT_E_NOT_FOUND: there is no such file. */
weft_status weft_storage_facts_of(weft_storage *storage, const char *name,
                                  weft_storage_facts *facts);
/* All `bytes` or an error: a file that ends before is WEFT_E_IO with the place. */
weft_status weft_storage_read(weft_storage *storage, const char *name, int64_t at, int64_t bytes,
                              void *to);
/* XXH3-64 of the whole file. */
weft_status weft_storage_sum(weft_storage *storage, const char *name, uint64_t *sum);
weft_status weft_storage_list(weft_storage *storage, weft_names *names); /* sorted by bytes */
weft_status weft_storage_remove(weft_storage *storage, const char *name);
/* The whole file at once: it is there with all its bytes, or not at all. A name may hold folders.
 * */
weft_status weft_storage_put(weft_storage *storage, const char *name, const void *data,
                             int64_t bytes);
/* The same for what is checked when it is read and can be made again: it does not wait for the
 * disk, and a machine that fails may leave it with other bytes. */
weft_status weft_storage_put_hasty(weft_storage *storage, const char *name, const void *data,
                                   int64_t bytes);
weft_status weft_storage_begin(weft_storage *storage, const char *name, weft_storage_file **file);
weft_status weft_storage_write(weft_storage_file *file, const void *data, int64_t bytes);
weft_status weft_storage_commit(weft_storage_file *file);
void weft_storage_file_free(weft_storage_file *file); /* accepts NULL */

/* What was asked of it so far, for tests and reports. */
typedef struct weft_storage_counts {
    int64_t reads, bytes_read, facts, puts;
} weft_storage_counts;
weft_storage_counts weft_storage_get_counts(const weft_storage *storage);

/* The folder, in storage_folder.c. */
extern const weft_storage_kind weft_storage_folder;
enum { WEFT_STORAGE_OPEN_FILES = 128 }; /* of a folder, at once */

#endif
