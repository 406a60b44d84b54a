/* The training loader: batches of clips, decoded ahead of time. The order of the batches depends
 * only on the seed and the step.
 *
 * Samples are assigned to buckets by size. Each bucket has an endless sequence of samples, with a
 * new permutation per epoch. Every sample occurs once per epoch, and no partial batch is dropped.
 * A batch may contain the end of one epoch and the start of the next. Buckets take turns in
 * proportion to their numbers of samples. The number of ranks does not change the batch of a step.
 * With a list of sources, their weights determine the items of an epoch (loader_blend.h).
 * Rank r of k gets the items weft_part(batch, k, r), or the items of `own`. */
#ifndef WEFT_DATA_LOADER_H
#define WEFT_DATA_LOADER_H

#include "base/config.h"
#include "base/json.h"
#include "data/dataset.h"
#include "graph/mesh.h"

typedef struct weft_bucket {
    int64_t batch; /* global: over all ranks */
    int64_t frames, height, width;
    double share; /* of the samples of all buckets; 0: by its number of samples */
} weft_bucket;
extern const weft_section weft_bucket_section;

/* Samples of all buckets in rows of tokens (loader_packing.h). */
typedef struct weft_row_packing {
    int64_t tokens;  /* of a row; 0: a batch has samples of one bucket */
    int64_t rows;    /* of a batch, over all ranks */
    int64_t samples; /* maximum of a row */
    int64_t window;  /* samples from which rows are filled */
} weft_row_packing;

typedef struct weft_loader_config {
    /* arguments of weft_dataset_open. With `sources`: `shards` NULL or "" opens the sources, else
     * the shards have samples of the sources, which their keys name (cached latents) */
    const char *shards, *split;
    weft_section_list sources; /* list of weft_data_source (borrowed); empty: a single path */
    int blend;                 /* weft_blend of the sources */
    double clip_seconds;       /* of videos without shards, as of weft_dataset_options */
    weft_section_list buckets; /* list of weft_bucket */
    double fps;                /* frames per second of the clips; 0: rate of each video */
    /* [buckets] items of this rank in each batch (copied); NULL: an even part. With `packing` rows
     * of a batch, the same for all buckets */
    const weft_item_range *own;
    weft_row_packing packing;
    const int64_t *bucket_tokens; /* [buckets] tokens of a sample (copied), with `packing` */
    /* Several ranks have the same items: this rank reads part `member` of `members`, and
     * the caller exchanges the parts (loader_share.h). 0 (default): reads all. */
    int member, members;
    int64_t seed, threads, prefetch; /* prefetch: batches decoded ahead */
    int64_t shuffle;                 /* window of weft_order_shuffle, in samples */
    /* [buckets] true: the bucket counts as images (copied). NULL: all buckets take turns by their
     * numbers of samples, and `images` is not used. */
    const bool *image;
    double images; /* share of the samples that come from the buckets of images, 0 to 1 */
    /* share in batch image_batches - 1 and later, to which the share changes linearly; 0: `images`
     * is the share of all batches */
    double last_images;
    int64_t image_batches;
    double caption_dropout; /* share of captions replaced by "" (for guidance) */
    bool strict;            /* damaged shards are errors */
    bool verify;            /* parts are compared with their checksums */
    /* Mode for one pass over a data set. An unusable sample gives zeros (`replaced` is set), and
     * no other sample replaces it. A batch larger than the data set causes no warning. */
    bool no_stand_ins;
    bool random_crop, random_start; /* false: centre crop, first frames */
    /* suffix of an additional .npy part of f32 or f16, loaded with `part`; NULL: none */
    const char *extra;
    int64_t extra_floats; /* elements of the extra part of a sample */
    /* Returns true for samples to skip that still count as used, such as samples already encoded.
     * NULL: skip none. */
    bool (*skip)(const void *user, const weft_sample *sample);
    const void *skip_user;
} weft_loader_config;

/* The place of an item in a packed batch. */
typedef struct weft_packed_item {
    int bucket;
    int64_t row;     /* of this rank */
    int64_t token;   /* first token in the row */
    int64_t at;      /* first float in `video` or `part` */
    int64_t size[3]; /* frames, height, width */
} weft_packed_item;

/* Everything is valid until the next call of weft_loader_next. */
typedef struct weft_batch {
    int64_t step;       /* number of the batch, starting with 0 */
    int bucket;         /* index */
    int64_t count;      /* items of this rank; may be 0 */
    int64_t first;      /* index in the global batch of this rank's first item */
    const uint64_t *id; /* [count] sample ids */
    /* [count] number of the epoch. If an epoch has a sample several times (weights of sources), the
     * copies have different numbers, which no other item of the sample has. */
    const int64_t *epoch;
    /* [count] positions in the bucket's endless sequence of samples. No two items of a bucket have
     * the same position, even if a sample is repeated. */
    const int64_t *sequence_index;
    const int64_t *sample;      /* [count] index in the dataset */
    const bool *replaced;       /* [count] true: replaces an unusable sample */
    const char *const *caption; /* [count], "" when dropped or absent */
    const float *video; /* (count, frames, height, width, 3) in [-1,1]; NULL if `part` is set */
    const float *part;  /* (count, ...) part named in weft_loader_open; NULL if `video` is set */
    /* (count, extra_floats), also for samples whose caption was dropped; NULL without `extra` in
     * the config */
    const float *extra;
    /* [count] places of the items, by row; NULL: all items are of `bucket` and in sequence */
    const weft_packed_item *packed;
    int64_t all_samples, all_tokens; /* of a packed batch, over all ranks */
} weft_batch;

typedef struct weft_loader weft_loader;

/* Buffers of the batches that a loader decodes ahead, and of the batch that the caller uses. */
typedef struct weft_loader_plan {
    int64_t slots;         /* batches */
    int64_t items;         /* maximum number of items of this rank in a batch */
    int64_t floats, extra; /* maximum number of floats of a batch, and of its extra part */
    int64_t bytes;         /* bytes of all slots */
    int64_t clip_bytes; /* bytes of the frames that the threads decode, for data sets of videos */
} weft_loader_plan;
/* Plans the buffers that weft_loader_open reserves for the same config. Uses only its buckets, own,
 * prefetch, extra and extra_floats. `channels`: last dim of an item; 3 for video. */
weft_loader_plan weft_loader_plan_make(const weft_loader_config *config, int rank, int ranks,
                                       int64_t channels);

/* Opens the shards and starts the decoding threads. `part` is NULL for video, or the suffix of an
 * .npy part of f32 or f16 (latents). With a part, buckets have sizes of the part (frames, height,
 * width), and `channels` is its last dim. */
weft_status weft_loader_open(const weft_loader_config *config, int rank, int ranks,
                             const char *part, int64_t channels, weft_loader **loader);
void weft_loader_close(weft_loader *loader); /* accepts NULL */
const weft_dataset *weft_loader_dataset(const weft_loader *loader);
/* Returns the bytes of the index and the order of samples, with the dataset's but without the slots
 * of batches. */
int64_t weft_loader_resident(const weft_loader *loader);
/* Returns the items of an epoch of a bucket: its usable samples, with the weights of their
 * sources. */
int64_t weft_loader_bucket_samples(const weft_loader *loader, int bucket);
/* Returns the next batch. Blocks until the batch is decoded. */
weft_status weft_loader_next(weft_loader *loader, weft_batch *batch);

#endif
