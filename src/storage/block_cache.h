/* A cache of remote files on a disk of this machine: blocks of a file's version, shared by all
 * processes that name the same folder.
 *
 *     read ──> block on disk? ── yes ──> pread
 *                    │ no
 *                    ▼
 *              lock of the block ──> another process has written it meanwhile? ── yes ──> pread
 *                    │ no
 *                    ▼
 *              room for it (the blocks used longest ago are removed) ──> download ──> rename
 *
 * A block has checksums, and the first read of each part of the block in a process verifies them
 * (block_format.h). A crash at any moment therefore costs at most the block. The folder's blocks,
 * and those being written, are at most `limit` bytes. All functions are safe from any thread. */
#ifndef WEFT_STORAGE_BLOCK_CACHE_H
#define WEFT_STORAGE_BLOCK_CACHE_H

#include "storage/block_format.h"
#include "storage/storage.h"

enum {
    WEFT_BLOCK_OPEN_FILES = 128,
    WEFT_BLOCK_RUN = 8 /* blocks that one request downloads, at most */
};

typedef struct weft_block_cache weft_block_cache;

/* A version of a remote file. */
typedef struct weft_block_file {
    const char *origin, *name; /* of the store and of the file; borrowed for the call */
    weft_storage_facts facts;
    /* Reads from the server. */
    weft_status (*read)(void *self, const char *name, int64_t at, int64_t bytes, void *to);
    weft_status (*stream)(void *self, const char *name, int64_t at, int64_t bytes,
                          const weft_byte_sink *to);
    void *self;
} weft_block_file;

/* `folder` is made if it does not exist. */
weft_status weft_block_cache_open(const char *folder, int64_t limit, weft_block_cache **cache);
void weft_block_cache_close(weft_block_cache *cache); /* accepts NULL */
weft_status weft_block_cache_read(weft_block_cache *cache, const weft_block_file *file, int64_t at,
                                  int64_t bytes, void *to);
/* Writes `blocks` blocks, and the first contains byte `at`. Skips blocks that the folder has, and
 * blocks that another thread or process writes. */
weft_status weft_block_cache_fetch(weft_block_cache *cache, const weft_block_file *file, int64_t at,
                                   int64_t blocks);
/* Whether this process reads or writes the block that contains byte `at`, so that a fetch has
 * nothing to do. Waits for nothing. */
bool weft_block_cache_has(weft_block_cache *cache, const weft_block_file *file, int64_t at);

/* The folder and limit of this process: WEFT_CACHE (default: $XDG_CACHE_HOME/weft/blocks or
 * ~/.cache/weft/blocks) and WEFT_CACHE_BYTES (default 20 GiB). The caller owns *folder. NULL:
 * WEFT_CACHE_BYTES is 0, and nothing is cached. */
weft_status weft_block_cache_settings(char **folder, int64_t *limit);

#endif
