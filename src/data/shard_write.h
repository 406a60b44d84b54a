/* Writes curated clips to WebDataset shards.
 *
 *   in:  <in>/clips/<id>.mp4, <in>/metas/<id>.json (caption, frames, width, height, fps, ...)
 *   out: <out>/train-000000.tar ..., <out>/heldout-000000.tar ..., <out>/index.json
 *        for each shard: .index (data/index.h), .idx (data/energon_meta.h), a note .<shard>.json
 *
 * A sample is <id>.mp4, <id>.json and <id>.txt (the caption). The split of a clip depends on its
 * source video (data/heldout.h) and its place on its id. Running again over the same clips writes
 * the same bytes. Each shard is written under a temporary name and renamed; index.json, which lists
 * shards with counts, bytes and XXH3 checksums, comes last. */
#ifndef WEFT_DATA_SHARD_WRITE_H
#define WEFT_DATA_SHARD_WRITE_H

#include "base/config.h"

typedef struct weft_shard_config {
    double heldout;      /* share of clips kept from training */
    int64_t max_samples; /* per shard */
    int64_t max_bytes;   /* per shard */
    int64_t seed;        /* seed of the split and the order */
    bool need_caption;   /* clips without a caption are dropped (and counted) */
} weft_shard_config;
extern const weft_section weft_shard_section;

typedef enum weft_shard_reason {
    WEFT_SHARD_WITHOUT_META,
    WEFT_SHARD_DAMAGED_META,
    WEFT_SHARD_WITHOUT_CAPTION,
    WEFT_SHARD_EMPTY,
    WEFT_SHARD_DOT,
    WEFT_SHARD_NO_MP4,
    WEFT_SHARD_UNREADABLE,
    WEFT_SHARD_REASONS
} weft_shard_reason;

/* clips = written + all of dropped[]: every file of <in>/clips is counted once, also files in
 * shards that were kept. Frame counts are from the metas. */
typedef struct weft_shard_report {
    int64_t clips, written, train, heldout, shards, unchanged_shards, bytes, frames;
    int64_t without_caption; /* written clips without a caption */
    int64_t dropped[WEFT_SHARD_REASONS], dropped_frames[WEFT_SHARD_REASONS];
} weft_shard_report;

const char *weft_shard_reason_text(weft_shard_reason reason); /* text in index.json: "no caption" */

/* Shards that an earlier, interrupted run finished and that hold just what they should are kept
 * (kept_shards). */
weft_status weft_shard_run(const weft_shard_config *config, const char *in, const char *out,
                           weft_shard_report *report);

#endif
