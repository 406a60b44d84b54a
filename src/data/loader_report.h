/* The use of the samples of a data set: how many are used, and why others are not. */
#ifndef WEFT_DATA_LOADER_REPORT_H
#define WEFT_DATA_LOADER_REPORT_H

#include "data/loader.h"

/* Use of a sample, or the reason why the sample is dropped. */
typedef enum weft_sample_outcome {
    WEFT_SAMPLE_USED,
    WEFT_SAMPLE_TOO_SHORT,  /* fewer frames than every bucket */
    WEFT_SAMPLE_TOO_SMALL,  /* smaller than every bucket for which the sample is long enough */
    WEFT_SAMPLE_OTHER_SIZE, /* the part does not have the size of a bucket */
    WEFT_SAMPLE_NO_PART,
    WEFT_SAMPLE_LIMITED,    /* beyond the limit of the sample's source */
    WEFT_SAMPLE_DAMAGED,    /* marked as damaged in the sample's .json */
    WEFT_SAMPLE_UNREADABLE, /* found when the data set was opened */
    /* found when the sample was decoded: */
    WEFT_SAMPLE_UNDECODABLE,
    WEFT_SAMPLE_CORRUPT, /* checksum differs, or the shard was truncated after it was opened */
    WEFT_SAMPLE_OUTCOMES /* number of outcomes */
} weft_sample_outcome;

typedef struct weft_loader_report {
    int64_t samples[WEFT_SAMPLE_OUTCOMES], all_samples; /* by outcome, and their sum */
    /* frames at the loader's rate, by outcome, and their sum; an unreadable sample counts as 0 */
    int64_t frames[WEFT_SAMPLE_OUTCOMES], all_frames;
    /* frames of used samples in the clips of an epoch, and the rest: together frames[USED] */
    int64_t window_frames, unused_frames;
    /* used videos whose aspect differs from their bucket's, and the share of the pixels of all used
     * videos that are outside of the crops, 0 to 1; 0 for parts */
    int64_t cropped;
    double cropped_share;
    int64_t damaged_shards;  /* lost samples of damaged shards are not counted anywhere */
    int64_t replaced;        /* so far: unusable clips, replaced by the next sample of the bucket */
    int64_t waited_ms;       /* so far: milliseconds that next() waited for the decoders */
    int64_t decoded_batches; /* now: batches decoded and not yet returned by next() */
    /* now: items of weft_loader_prefetch_items not yet loaded, and those already decoded */
    int64_t wanted, early;
} weft_loader_report;

weft_loader_report weft_loader_get_report(const weft_loader *loader);
/* The use of the samples of a source. */
typedef struct weft_data_source_report {
    int64_t all, used, limited;  /* samples; the other ones are dropped */
    int64_t frames, used_frames; /* of all samples, and of the used ones */
    int64_t items;               /* in an epoch; the expected number if the blend is sampled */
    int64_t repeated;            /* items of an epoch with a sample of an earlier item */
} weft_data_source_report;
/* Items of a source in the batches that the loader returned, over all ranks. `source` is an index
 * in the list of the config. */
int64_t weft_loader_source_items(const weft_loader *loader, int64_t source);
/* Sources of the config; NULL: a single path. */
const weft_section_list *weft_loader_sources(const weft_loader *loader);
/* `source` is an index in the list of the config. */
weft_data_source_report weft_loader_source_report(const weft_loader *loader, int64_t source);
/* Writes a line about the used samples and frames, and one for each reason for dropping others. */
void weft_loader_format_report(const weft_loader *loader, weft_buf *out);
/* Returns the report as JSON with a list of the dropped samples: {"samples", "frames", "used":
 * {"samples", "frames_in_windows", "frames_outside", "cropped", "cropped_share"}, "dropped":
 * {REASON: {"samples", "frames"}}, "damaged_shards", "list": [{"key", "shard", "reason",
 * "frames"}]} (new reference; NULL: out of memory). With a list of sources also "blend" and
 * "sources": [{"name", "path", "weight", "samples", "used", "limited", "dropped", "items",
 * "repeated"}]. */
json_t *weft_loader_report_json(const weft_loader *loader);
weft_sample_outcome weft_loader_outcome(const weft_loader *loader, int64_t sample);
/* Records the outcome that another rank found: UNDECODABLE or CORRUPT. */
void weft_loader_set_outcome(weft_loader *loader, int64_t sample, weft_sample_outcome what);

#endif
