/* A dataset: WebDataset shards mapped into memory, grouped into samples.
 *
 * A member's key is its path up to the first dot of the file name, its suffix what follows, in
 * lower case; members of one key that stand together make a sample (webdataset's rule). Names
 * "__...__" are metadata and skipped. */
#ifndef WEFT_DATA_DATASET_H
#define WEFT_DATA_DATASET_H

#include "base/json.h"
#include "base/memory.h"

enum { WEFT_SAMPLE_MAX_PARTS = 12 };

typedef struct weft_part_data {
    const char *suffix;        /* "mp4", "json", "latent.npy" */
    const unsigned char *data; /* in the map */
    int64_t bytes;
} weft_part_data;

typedef struct weft_sample {
    const char *key;
    uint64_t id; /* XXH3-64 of the key: the sample's address for random numbers, on any machine */
    int shard;   /* index of its file */
    const char *file; /* path of the shard */
    int part_count;
    weft_part_data part[WEFT_SAMPLE_MAX_PARTS];
    /* From the .json part, or 0 / "" where it says nothing. */
    const char *caption;
    int64_t frames, width, height;
    double fps, seconds;
} weft_sample;

typedef struct weft_dataset weft_dataset;

/* `path`: a folder of shards, a shard, or a pattern with {000..012} braces. With `split` not NULL
 * only shards whose name begins with "<split>-". A damaged shard gives its whole members and a
 * warning; with `strict` it is an error. Two samples of one key, or a suffix twice in one, are
 * errors that name the shard. */
weft_status weft_dataset_open(const char *path, const char *split, bool strict,
                              weft_dataset **dataset);
void weft_dataset_close(weft_dataset *dataset); /* accepts NULL */
int64_t weft_dataset_count(const weft_dataset *dataset);
const weft_sample *weft_dataset_at(const weft_dataset *dataset,
                                   int64_t index); /* in order of shards and members */
/* NULL: the sample has no such part. */
const weft_part_data *weft_sample_part(const weft_sample *sample, const char *suffix);
/* The part that is a video or a picture; NULL: none. */
const weft_part_data *weft_sample_video(const weft_sample *sample);
/* Shards that were damaged. */
int64_t weft_dataset_damaged(const weft_dataset *dataset);
int64_t weft_dataset_bytes(const weft_dataset *dataset); /* of all shards */
/* How many frames a clip's .json says that it has; 0 where it says nothing, or what no video can
 * be. */
int64_t weft_meta_frames(const json_t *meta);
/* Mixes a file's size and time of change into *stamp. Its bytes; 0, and *stamp as it was, when it
 * is not there. */
int64_t weft_file_stamp(const char *path, uint64_t *stamp);
/* Of the shards' names, sizes and times of change: another one when a shard was written anew. */
uint64_t weft_dataset_fingerprint(const weft_dataset *dataset);

/* Splits a member's path at webdataset's point. False: no key (a folder entry, "__name__", no dot).
 * `key_len` is a length in `name`; *suffix points into it. */
bool weft_webdataset_split(const char *name, int64_t *key_len, const char **suffix);

#endif
