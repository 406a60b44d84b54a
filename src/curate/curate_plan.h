/* State of a curation: records of all files, selected clips, and the lists of both. Private to
 * curate/. */
#ifndef WEFT_CURATE_PLAN_H
#define WEFT_CURATE_PLAN_H

#include "curate/curate_work.h"
#include "curate/duplicates/phash.h"
#include "curate/embeddings/embedding_file.h"
#include "curate/footage.h"
#include "curate/operators/operator_set.h"
#include "curate/source_kind.h"
#include "curate/stage_table.h"
#include "curate/worker_pool.h"
#include "storage/bucket_owner.h"
#include "storage/shared_copy.h"

typedef struct weft_curate_source {
    /* Owned. name is relative to the input folder, converted to UTF-8. parts_path has the
     * thumbnails and then the keypoints of the complete video; the record has their counts
     * (weft_curate_parts). */
    char *name, *path, *state_path, *parts_path;
    char *copy; /* owned; path of a caption file of a bucket on this machine; NULL: `path` */
    char id[64];
    weft_source_kind kind;
    uint64_t hash_of_name; /* determines the shard */
    bool own;              /* of the shard of this run */
    int64_t bytes, mtime_ns;
    const char *why_other; /* why a file is not a video; static; NULL: by its name */
    const char *same_as;   /* name of the selected file with the same bytes; borrowed */
    json_t *record;        /* owned; NULL: not analysed yet */
    json_t *scores;        /* owned; of the operators (shot_scorer.h); NULL: none are configured */
    bool unscored;         /* an accepted shot lacks a score */
    weft_embeddings embeddings; /* of its shots; empty without the config section */
    bool unembedded;            /* a shot needs an embedding and was not tried */
    weft_phash *hash;           /* owned; hashes of all shots */
    weft_curate_clip *clip;     /* owned, with strings and metadata; selected clips */
    int64_t clips;
} weft_curate_source;

typedef struct weft_curate_plan {
    const char *in, *location; /* --in and --out */
    const char *out;           /* folder of the results; `location`, or of `bucket` */
    const weft_curate_config *config;
    weft_shared_copy *bucket;   /* owned; NULL: `location` is a folder */
    weft_bucket_owner *owner;   /* owned; of the bucket; NULL: `location` is a folder */
    weft_names removed;         /* files to remove from the bucket */
    weft_footage *footage;      /* owned; NULL before the scan */
    weft_curate_source *source; /* sorted by name */
    int64_t sources, capacity;
    weft_operator_set *operators;   /* owned; NULL: none are configured */
    const json_t *caption_ids;      /* borrowed; the clips to caption; NULL: all of this run's */
    bool captioned;                 /* captions were requested: clips without one stay so */
    bool ordered;                   /* the order of the operators is final */
    json_t *clusters;               /* owned; content of clusters.json; NULL: no clusters */
    weft_stage_table *stages;       /* borrowed */
    weft_pool_residents *residents; /* owned; NULL: models are closed at the end of a phase */
    int64_t loaded;                 /* models and processes of operators and embeddings opened */
    json_t *prices; /* owned; prices that determined the order; NULL: not by price */
} weft_curate_plan;

weft_status weft_curate_plan_scan(weft_curate_plan *plan);
/* Path of a caption file on this machine; borrowed. */
const char *weft_curate_caption_path(const weft_curate_source *source);
/* Reads the existing records that match their files. `begin`: ignores records of files that could
 * not be read in the previous run, and reads no records of other shards. */
weft_status weft_curate_plan_load(weft_curate_plan *plan, bool begin);
/* Finds near-duplicates and captions. Fills the clips of every source and marks rejected shots. */
weft_status weft_curate_plan_choose(weft_curate_plan *plan);
/* Whether the source is a video whose analysis is missing. */
bool weft_curate_lacks_record(const weft_curate_source *source);
void weft_curate_plan_remaining(const weft_curate_plan *plan, weft_curate_remaining *remaining);
weft_status weft_curate_state_save(const weft_curate_plan *plan, const weft_curate_source *source,
                                   json_t *record);
weft_status weft_curate_parts_save(const weft_curate_source *source,
                                   const weft_curate_parts *parts);
void weft_curate_plan_free(weft_curate_plan *plan);

#endif
