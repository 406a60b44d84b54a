/* Writes a shard: the tar archive and, after its end, its index with the checksum of every part. An
 * abandoned shard or a killed writer leaves neither file. */
#ifndef WEFT_DATA_SHARD_FILE_H
#define WEFT_DATA_SHARD_FILE_H

#include "data/index.h"

typedef struct weft_shard_file weft_shard_file;
weft_status weft_shard_file_create(weft_storage *storage, const char *name, weft_shard_file **file);
/* Adds the part "<key>.<suffix>"; parts of a key must be adjacent. */
weft_status weft_shard_file_add(weft_shard_file *file, const char *key, const char *suffix,
                                const void *data, int64_t bytes);
/* Begins a part of `bytes` bytes that is added in pieces. */
weft_status weft_shard_file_begin(weft_shard_file *file, const char *key, const char *suffix,
                                  int64_t bytes);
weft_status weft_shard_file_append(weft_shard_file *file, const void *data, int64_t bytes);
weft_status weft_shard_file_end(weft_shard_file *file);
int64_t weft_shard_file_bytes(const weft_shard_file *file); /* bytes of data so far */
/* *hash (may be NULL) is XXH3-64 of the tar, *bytes (may be NULL) its size. */
weft_status weft_shard_file_finish(weft_shard_file *file, uint64_t *hash, int64_t *bytes);
void weft_shard_file_free(weft_shard_file *file); /* accepts NULL */

#endif
