/* The training loader: batches of clips, decoded ahead of time, in an order that nothing but (seed,
 * step) decides.
 *
 * Samples are dealt to buckets by their size. Each bucket walks through its samples in a
 * permutation per epoch, one epoch after the other, so that every sample comes exactly once per
 * epoch and no partial batch is dropped; a batch may hold the end of one epoch and the beginning of
 * the next. Buckets take turns in proportion to their sizes. Batch `step` is the same whatever the
 * number of ranks; rank r of k gets items weft_part(batch, k, r), or those of `own`. */
#ifndef WEFT_DATA_LOADER_H
#define WEFT_DATA_LOADER_H

#include "base/config.h"
#include "base/json.h"
#include "data/dataset.h"
#include "graph/mesh.h"

typedef struct weft_bucket {
    int64_t batch; /* global: over all ranks */
    int64_t frames, height, width;
} weft_bucket;
extern const weft_section weft_bucket_section;

typedef struct weft_loader_config {
    const char *shards, *split;      /* as for weft_dataset_open */
    weft_section_list buckets;       /* of weft_bucket */
    double fps;                      /* of the clips; 0: each video's own */
    const weft_item_range *own;      /* this rank's, by bucket; NULL: an even part (copied) */
    int64_t seed, threads, prefetch; /* prefetch: batches decoded ahead */
    int64_t shuffle;                 /* window of weft_order_shuffle, in samples */
    /* Share of the samples that come from buckets of `image` (by bucket, copied), however many
     * there are of them; NULL: buckets take turns by their samples. */
    const bool *image;
    double images;
    double caption_dropout; /* share of captions replaced by "" (for guidance) */
    bool strict;            /* damaged shards are errors */
    bool verify;            /* parts are held against their checksums */
    /* For passes over a set: what cannot be used leaves zeros (`replaced` is set) and no other
     * sample takes its place, and a batch of more than the samples is not told. */
    bool no_stand_ins;
    bool random_crop, random_start; /* else the centre and the beginning */
    /* Suffix of another .npy part of f32 or f16, read beside `part`; NULL: none. */
    const char *extra;
    int64_t extra_floats; /* its elements */
    /* Samples that count as used and never come, as somebody has done with them; NULL: none. */
    bool (*skip)(const void *user, const weft_sample *sample);
    const void *skip_user;
} weft_loader_config;

/* Everything is valid until the next call of weft_loader_next. */
typedef struct weft_batch {
    int64_t step;          /* from 0 */
    int bucket;            /* index */
    int64_t count;         /* items of this rank; may be 0 */
    int64_t first;         /* of the global batch */
    const uint64_t *id;    /* [count] sample ids */
    const int64_t *epoch;  /* [count] */
    const int64_t *place;  /* [count] places in the bucket's walk through all epochs: no two items
                               of a bucket ever have the same, also where a sample comes twice */
    const int64_t *sample; /* [count] index in the dataset */
    const bool *replaced;  /* [count] stands in for a sample that cannot be used */
    const char *const *caption; /* [count], "" when dropped or absent */
    /* (count, frames, height, width, 3) in [-1,1]; NULL when `part` is loaded instead. */
    const float *video;
    const float *part; /* (count, ...) of the part named at opening */
    /* (count, extra_floats), also of samples whose caption was dropped; NULL without one. */
    const float *extra;
} weft_batch;

/* What becomes of a sample; each has exactly one fate. */
typedef enum weft_sample_fate {
    WEFT_SAMPLE_USED,
    WEFT_SAMPLE_TOO_SHORT,  /* for every bucket */
    WEFT_SAMPLE_TOO_SMALL,  /* for every bucket that it is long enough for */
    WEFT_SAMPLE_OTHER_SIZE, /* its part has no bucket's size */
    WEFT_SAMPLE_NO_PART,
    WEFT_SAMPLE_DAMAGED,    /* its .json says so */
    WEFT_SAMPLE_UNREADABLE, /* at opening */
    /* found when its turn came: */
    WEFT_SAMPLE_UNDECODABLE,
    WEFT_SAMPLE_CORRUPT, /* not the bytes that were written, or a shard that was cut since */
    WEFT_SAMPLE_FATES
} weft_sample_fate;

typedef struct weft_loader_report {
    int64_t samples[WEFT_SAMPLE_FATES], all_samples; /* all = sum over fates */
    /* At the loader's rate; of an unreadable sample 0. */
    int64_t frames[WEFT_SAMPLE_FATES], all_frames;
    /* frames[USED] = those that an epoch shows + those outside of the windows. */
    int64_t window_frames, behind_frames;
    int64_t damaged_shards; /* samples that were lost in them are in no count */
    /* So far: clips that could not be used, replaced by their neighbour in the order. */
    int64_t replaced;
    int64_t waited_ms; /* so far: time that next() had to wait for the decoders */
    int64_t ahead;     /* now: batches decoded and not yet handed over */
    /* now: items that are wanted by themselves and not taken, and those of them that are decoded */
    int64_t wanted, early;
} weft_loader_report;

typedef struct weft_loader weft_loader;

/* `part`: NULL for video, else the suffix of an .npy part of f32 or f16 to load (latents); then
 * bucket sizes are those of the part (frames, height, width) and `channels` its last dim. */
weft_status weft_loader_open(const weft_loader_config *config, int rank, int ranks,
                             const char *part, int64_t channels, weft_loader **loader);
void weft_loader_close(weft_loader *loader); /* accepts NULL */
const weft_dataset *weft_loader_dataset(const weft_loader *loader);
/* Bytes that it holds of the samples, the dataset's included: all but the slots of batches. */
int64_t weft_loader_resident(const weft_loader *loader);
/* Samples of a bucket; their sum is what is left of the dataset. */
int64_t weft_loader_bucket_samples(const weft_loader *loader, int bucket);
weft_loader_report weft_loader_get_report(const weft_loader *loader);
/* A line on what is used and one for each reason for which samples or frames are not. */
void weft_loader_explain(const weft_loader *loader, weft_buf *out);
/* The same as JSON, with every sample that is not used: {"samples", "frames", "used": {"samples",
 * "frames_in_windows", "frames_outside"}, "dropped": {REASON: {"samples", "frames"}},
 * "damaged_shards", "list": [{"key", "shard", "reason", "frames"}]} (new reference; NULL: out of
 * memory). */
json_t *weft_loader_account(const weft_loader *loader);
weft_sample_fate weft_loader_fate(const weft_loader *loader, int64_t sample);
/* Another rank found out: UNDECODABLE or CORRUPT. */
void weft_loader_mark(weft_loader *loader, int64_t sample, weft_sample_fate what);

/* Blocks until the batch is decoded. */
weft_status weft_loader_next(weft_loader *loader, weft_batch *batch);

/* What comes, without decoding: an item of the global batch, all ranks' items in order. */
typedef struct weft_item {
    int64_t sample; /* index in the dataset */
    int64_t epoch, place;
    int bucket;
} weft_item;
/* The bucket of the batch that comes `ahead` batches after the next one and, where `out` is not
 * NULL, its items in out[*count]; out has room for the largest batch of the config. A sample that
 * turns out unusable is replaced later. */
weft_status weft_loader_peek(weft_loader *loader, int64_t ahead, int *bucket, weft_item *out,
                             int64_t *count);
/* One item, taken by itself. */
typedef struct weft_taken {
    int64_t sample; /* index in the dataset */
    uint64_t id;
    bool replaced;        /* that stands in for another one */
    const char *caption;  /* "" when dropped or absent; valid until the next take */
    weft_part_bytes text; /* behind it: begin with zeros, weft_free(text.data) at the end */
} weft_taken;
/* Items that will be taken by themselves soon, each once and with data (`to`): where there is no
 * batch to decode the decoders' threads decode them, into memory of their own until they are taken.
 */
weft_status weft_loader_want(weft_loader *loader, const weft_item *item, int64_t count);
/* Decodes one item, now and in the caller's thread where no decoder has come to it, into `to` (a
 * bucket's floats), and its extra part into `extra` (extra_floats): on the rank that needs it,
 * whichever that is. The same as weft_loader_next gives. `to` NULL: its caption only. */
weft_status weft_loader_take(weft_loader *loader, const weft_item *item, float *to, float *extra,
                             weft_taken *taken);

/* Where the next batch stands: a small JSON object (new reference). Restoring needs the same
 * shards, buckets and seed (checked by a fingerprint) but not the same ranks. */
json_t *weft_loader_state(const weft_loader *loader);
weft_status weft_loader_restore(weft_loader *loader, const json_t *state, const char *where);

#endif
