/* A shard as it is written: the tar, and when that is whole the index beside it, with the checksum
 * of every part. A shard that was given up, or whose writer was killed, leaves neither. */
#ifndef WEFT_DATA_SHARD_FILE_H
#define WEFT_DATA_SHARD_FILE_H

#include "data/index.h"

typedef struct weft_shard_file weft_shard_file;
weft_status weft_shard_file_create(weft_storage *storage, const char *name, weft_shard_file **file);
/* The part "<key>.<suffix>"; parts of a key come one after the other. */
weft_status weft_shard_file_add(weft_shard_file *file, const char *key, const char *suffix,
                                const void *data, int64_t bytes);
/* The same in pieces, which together give `bytes`. */
weft_status weft_shard_file_begin(weft_shard_file *file, const char *key, const char *suffix,
                                  int64_t bytes);
weft_status weft_shard_file_append(weft_shard_file *file, const void *data, int64_t bytes);
weft_status weft_shard_file_end(weft_shard_file *file);
int64_t weft_shard_file_bytes(const weft_shard_file *file); /* of the data, so far */
/* *hash (may be NULL) is XXH3-64 of the tar, *bytes (may be NULL) its size. */
weft_status weft_shard_file_finish(weft_shard_file *file, uint64_t *hash, int64_t *bytes);
void weft_shard_file_free(weft_shard_file *file); /* accepts NULL */

#endif
