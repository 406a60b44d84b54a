/* Internals of the loader, shared by its files. */
#ifndef WEFT_DATA_LOADER_INTERNAL_H
#define WEFT_DATA_LOADER_INTERNAL_H

#include "data/loader_blend.h"
#include "data/loader_items.h"
#include "data/loader_packing.h"
#include "data/loader_report.h"
#include "data/loader_share.h"
#include "data/row_fill.h"
#include "data/sample_order.h"
#include "storage/stoppable_wait.h"

#include <pthread.h>

/* Order of the samples of a bucket in an epoch. */
typedef struct weft_epoch_order {
    int64_t epoch; /* -1: none yet */
    weft_order_item *item;
} weft_epoch_order;

/* A bucket and its samples. */
typedef struct weft_loader_queue {
    weft_bucket size;
    weft_item_range own; /* items of this rank in a batch */
    double aspect;       /* logarithm of width / height */
    /* [count] indices in the dataset, ascending; of a list of sources in the order of `blend` */
    int64_t *sample;
    int64_t count;
    int64_t length; /* items of an epoch; `count` for a single path */
    weft_blend_queue blend;
    int64_t item_floats;
    int64_t tokens;            /* of a sample, if samples are packed */
    weft_epoch_order cache[2]; /* orders of the current and the next epoch */
} weft_loader_queue;

/* Bucket and outcome of a sample. Eight bytes, because every sample of the data set has one. */
typedef struct weft_sample_record {
    int32_t frames;
    int16_t bucket; /* bucket of a used sample; -1: none */
    uint8_t what;   /* weft_sample_outcome */
    bool skipped;   /* true: counts as used, but is in no batch */
} weft_sample_record;

/* Chooses the samples of packed rows, by bucket. */
typedef struct weft_row_chooser {
    int64_t *tokens, *available, *chosen; /* [queues] owned */
    weft_row_fill fill;
} weft_row_chooser;

/* A batch that is decoded ahead, or a single item. */
typedef struct weft_loader_slot weft_loader_slot;
struct weft_loader_slot {
    int64_t step; /* -1: empty */
    int bucket;
    int64_t items; /* capacity */
    int64_t count, first;
    /* items handed to workers, items finished; both count those before this rank's part, and `done`
     * those after it */
    int64_t taken, done;
    int64_t read_end;   /* first item after the items that this rank reads */
    int64_t read_bytes; /* bytes of samples that this rank read; with the lock */
    int64_t *by_source; /* [sources] items of the global batch; NULL: a single path */
    weft_status_code status;
    weft_error_copy *error; /* when status is set; NULL: no memory for it */
    uint64_t *id;
    int64_t *epoch, *sequence_index, *sample;
    const char **caption;
    weft_part_bytes *text; /* [items] memory of the captions */
    bool *replaced;
    float *data, *extra;
    /* packed rows; NULL: the items are of `bucket` and in sequence */
    weft_packed_item *packed;        /* [items] */
    int64_t all_samples, all_tokens; /* of the global batch */
    int64_t *taken_after;            /* [queues] position after this batch */
    weft_pack_window window_after;
};

/* A prefetched item of weft_loader_prefetch_items. */
typedef struct weft_prefetched_item {
    struct weft_prefetched_item *next;
    weft_item item; /* the requested item, which another may replace in `taken` */
    weft_loaded_item taken;
    int64_t epoch, sequence_index;
    weft_loader_slot one;
} weft_prefetched_item;

/* Inputs of weft_order_turn by queue, set when the loader is opened. */
typedef struct weft_loader_turns {
    int64_t *samples, *batch;
    int64_t *share; /* weight of the queue's turns */
    /* used when the share of images changes: share of the queue within its kind, whether the kind
     * is images, and the shares of the next batch (scratch) */
    double *part;
    bool *image;
    double *now;
} weft_loader_turns;

/* Position in the sequence of batches; written with the lock. */
typedef struct weft_loader_position {
    int64_t *planned, *returned; /* [queues] samples planned, and returned by next() */
    /* [queues] due[] of weft_order_scheduled_turn, if the share of images changes */
    double *planned_due, *returned_due;
    weft_pack_window planned_window, returned_window; /* if samples are packed */
    int64_t plan_step, next_step;
} weft_loader_position;

typedef struct weft_loader_threads {
    pthread_mutex_t lock;
    pthread_cond_t work, ready; /* an item to decode was added; an item was decoded */
    pthread_t *worker;
    int64_t count, busy; /* threads, and threads that decode */
    bool quit;
    weft_stop stop; /* ends the waits of the threads, e.g. before a repeated request */
} weft_loader_threads;

struct weft_loader {
    /* set when the loader is opened */
    weft_loader_config config;
    weft_dataset *dataset;
    int rank;
    const char *part;
    int64_t channels;
    weft_loader_queue *queue;
    int queues;
    weft_loader_turns turns;
    uint64_t fingerprint; /* hash of samples, batches and settings that affect the order */
    uint64_t listed;      /* fingerprint of earlier versions, which used the listing order */
    /* change with the batches */
    weft_loader_position position;
    weft_loader_report report;  /* replaced and waited_ms; the other sums come from `record` */
    int64_t read_bytes;         /* of samples in returned batches */
    int64_t *by_source;         /* [sources] items returned since the loader was opened */
    weft_sample_record *record; /* [samples]; written with the lock once workers run */
    weft_loader_slot *slots;
    int64_t slot_count;
    weft_row_chooser row_chooser; /* if samples are packed */
    weft_item *packed_row;        /* [packing.samples] scratch of the plan; NULL: not packed */
    /* prefetched items not yet loaded, oldest first */
    weft_prefetched_item *prefetched, **prefetched_last;
    weft_loader_threads threads;
};

#endif
