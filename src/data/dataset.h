/* A dataset: WebDataset shards of a storage, by their indexes.
 *
 * A member's key is its path up to the first dot of the file name. Its suffix is the rest, in lower
 * case. Adjacent members of one key form a sample (webdataset's rule). Names "__...__" are metadata
 * and skipped. Only the indexes are kept in memory: about 56 bytes per sample, 40 per part, and the
 * key. The content of a part is read on request. A video without a shard counts as a shard, which
 * has the name of its file. */
#ifndef WEFT_DATA_DATASET_H
#define WEFT_DATA_DATASET_H

#include "data/data_source.h"
#include "data/index.h"
#include "data/storage_video.h"

typedef struct weft_dataset weft_dataset;

typedef struct weft_dataset_options {
    const char *split; /* NULL: all shards */
    bool strict;       /* a damaged shard is an error */
    /* Videos without shards are divided into clips of this length, each a sample with the key
     * VIDEO@NUMBER; the last clip may be shorter. 0: a video is one sample. */
    double clip_seconds;
} weft_dataset_options;

/* `path`: a folder of shards, s3://BUCKET/PREFIX or https://HOST/PATH, a shard, or a pattern with
 * braces {000..012}. A folder or bucket without shards is read as videos (loose_videos.h). With
 * `split` not NULL only shards whose name begins with "<split>-". A damaged shard gives its whole
 * members and a warning; with `strict` it is an error. Two samples of one key, or a suffix twice in
 * one, are errors that name the shard. */
weft_status weft_dataset_open(const char *path, const char *split, bool strict,
                              weft_dataset **dataset);
weft_status weft_dataset_open_with(const char *path, const weft_dataset_options *options,
                                   weft_dataset **dataset);
/* Opens all sources of a list (weft_data_source). The keys of samples are NAME/KEY, which
 * determine their ids, and shards of one name in two sources differ. An error names the source.
 * The split of the options is used for sources without one. */
weft_status weft_dataset_open_sources(const weft_section_list *sources,
                                      const weft_dataset_options *options, weft_dataset **dataset);
/* Sets the sources of samples whose keys are NAME/KEY, in shards that were written from such a
 * list. A key of another form is an error. */
weft_status weft_dataset_assign_sources(weft_dataset *dataset, const weft_section_list *sources);
/* Whether a place names a shard, or a pattern of shards, and not a folder. A bucket is a folder,
 * whatever its name ends with. */
bool weft_dataset_names_shards(const char *location);
void weft_dataset_close(weft_dataset *dataset); /* accepts NULL */
int64_t weft_dataset_count(const weft_dataset *dataset);
/* Sample `index` in the order of shards and members. */
const weft_sample *weft_dataset_at(const weft_dataset *dataset, int64_t index);
/* Name of the file of a shard, with the path of the storage. */
const char *weft_dataset_shard(const weft_dataset *dataset, int64_t index);
/* XXH3-64 of that name without the path: the shard's address for random numbers. */
uint64_t weft_dataset_shard_id(const weft_dataset *dataset, int64_t index);
/* Shards that were damaged. */
int64_t weft_dataset_damaged(const weft_dataset *dataset);
int64_t weft_dataset_bytes(const weft_dataset *dataset);    /* bytes of all shards */
int64_t weft_dataset_resident(const weft_dataset *dataset); /* bytes of memory in use */
/* The storage of the shards; of several sources the first one's. */
const weft_storage *weft_dataset_storage(const weft_dataset *dataset);
/* A hash of the shards' names and contents, which changes when a shard is rewritten. Contents are
 * identified by the checksum that `weft shard` wrote, or else by size and time of change. */
uint64_t weft_dataset_fingerprint(const weft_dataset *dataset);

/* Bytes that are used again and again. */
typedef struct weft_part_bytes {
    char *data; /* weft_free */
    int64_t bytes, capacity;
} weft_part_bytes;
/* A sample that is a part of a video without a shard: the video, to be read with a video reader
 * until weft_storage_video_end, and the time at which the sample begins. False: the sample is in a
 * shard, and weft_dataset_read gives its video. */
bool weft_dataset_video(const weft_dataset *dataset, const weft_sample *sample,
                        weft_storage_video *video, double *start_seconds);
/* Announces that the parts of a sample will be read: see weft_storage_expect. */
void weft_dataset_expect(const weft_dataset *dataset, const weft_sample *sample);
/* Reads a part and appends a NUL. Thread-safe. WEFT_E_FORMAT: with `verify`, the part differs from
 * its known checksum. WEFT_E_IO: the shard was truncated after it was opened. */
weft_status weft_dataset_read(const weft_dataset *dataset, const weft_sample *sample,
                              const weft_part_data *part, bool verify, weft_part_bytes *to);
/* Reads a part into two buffers without a copy: the first `head` bytes to to->data, the other bytes
 * to `rest`. After an error the content of `rest` is undefined. */
weft_status weft_dataset_read_apart(const weft_dataset *dataset, const weft_sample *sample,
                                    const weft_part_data *part, bool verify, int64_t head,
                                    weft_part_bytes *to, void *rest);
/* The caption, from .txt, else from .json; "" where there is none. Ends with a NUL. */
weft_status weft_dataset_caption(const weft_dataset *dataset, const weft_sample *sample,
                                 bool verify, weft_part_bytes *to);

#endif
