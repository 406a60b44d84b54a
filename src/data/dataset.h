/* A dataset: WebDataset shards of a storage, by their indexes.
 *
 * A member's key is its path up to the first dot of the file name, its suffix what follows, in
 * lower case; members of one key that stand together make a sample (webdataset's rule). Names
 * "__...__" are metadata and skipped. Nothing but the indexes is kept: about 56 bytes a sample, 40
 * a part, and the key; what a part holds is read when it is wanted. */
#ifndef WEFT_DATA_DATASET_H
#define WEFT_DATA_DATASET_H

#include "data/index.h"

typedef struct weft_dataset weft_dataset;

/* `path`: a folder of shards, a shard, or a pattern with {000..012} braces. With `split` not NULL
 * only shards whose name begins with "<split>-". A damaged shard gives its whole members and a
 * warning; with `strict` it is an error. Two samples of one key, or a suffix twice in one, are
 * errors that name the shard. */
weft_status weft_dataset_open(const char *path, const char *split, bool strict,
                              weft_dataset **dataset);
void weft_dataset_close(weft_dataset *dataset); /* accepts NULL */
int64_t weft_dataset_count(const weft_dataset *dataset);
/* In order of shards and members. */
const weft_sample *weft_dataset_at(const weft_dataset *dataset, int64_t index);
/* Name of the file of a shard, with the path of the storage. */
const char *weft_dataset_shard(const weft_dataset *dataset, int64_t index);
/* XXH3-64 of that name without the path: the shard's address for random numbers. */
uint64_t weft_dataset_shard_id(const weft_dataset *dataset, int64_t index);
/* Shards that were damaged. */
int64_t weft_dataset_damaged(const weft_dataset *dataset);
int64_t weft_dataset_bytes(const weft_dataset *dataset);    /* of all shards */
int64_t weft_dataset_resident(const weft_dataset *dataset); /* of memory that it holds */
const weft_storage *weft_dataset_storage(const weft_dataset *dataset);
/* Of the shards' names and contents: another one when a shard was written anew. Contents are known
 * by the checksum that `weft shard` wrote; of other shards size and time of change stand for it. */
uint64_t weft_dataset_fingerprint(const weft_dataset *dataset);

/* Bytes that are used again and again. */
typedef struct weft_part_bytes {
    char *data; /* weft_free */
    int64_t bytes, room;
} weft_part_bytes;
/* Reads a part (a NUL stands behind it). With `verify` a part whose checksum is known and differs
 * is WEFT_E_FORMAT; a shard that was cut since it was opened is WEFT_E_IO. From any thread. */
weft_status weft_dataset_read(const weft_dataset *dataset, const weft_sample *sample,
                              const weft_part_data *part, bool verify, weft_part_bytes *to);
/* The same into two places: the first `head` bytes to to->data, what follows them to `rest`, which
 * nobody copies then. After an error `rest` holds anything. */
weft_status weft_dataset_read_apart(const weft_dataset *dataset, const weft_sample *sample,
                                    const weft_part_data *part, bool verify, int64_t head,
                                    weft_part_bytes *to, void *rest);
/* The caption, from .txt, else from .json; "" where there is none. Ends with a NUL. */
weft_status weft_dataset_caption(const weft_dataset *dataset, const weft_sample *sample,
                                 bool verify, weft_part_bytes *to);

#endif
