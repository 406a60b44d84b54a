/* The blend of several sources in the queue of a bucket.
 *
 * A source with n samples of the bucket and the weight w has T = round(w n) items in every epoch.
 * Epoch e takes the places [e T, (e + 1) T) of the endless list that repeats the samples in the
 * order of their hashes:
 *
 *     n = 5, T = 3     a b c d e a b c d e a b ...
 *                      |-e 0-|-e 1-|-e 2-|
 *
 * The items of all sources are then shuffled together. Two samples of a source thus differ by at
 * most one in the number of their items, over any number of epochs. With WEFT_BLEND_SAMPLED the
 * numbers of items of an epoch are drawn: as often as the epoch has items, a source is drawn with a
 * probability in proportion to T. Everything is a pure function of seed and epoch. */
#ifndef WEFT_DATA_LOADER_BLEND_H
#define WEFT_DATA_LOADER_BLEND_H

#include "data/loader.h"
#include "data/sample_order.h"

/* The samples of a source in a bucket. */
typedef struct weft_blend_part {
    int64_t first, count; /* range in the samples of the queue, which are in the order of hashes */
    int64_t items;        /* T */
    uint64_t name;        /* hash of the source's name */
} weft_blend_part;

typedef struct weft_blend_queue {
    weft_blend_part *part; /* [parts], one for each source; NULL: no list of sources */
    int parts;
    int64_t *taken; /* [parts] items of an epoch; scratch of weft_blend_fill */
    int64_t passes; /* more than the number of times that an epoch can have a sample */
} weft_blend_queue;

/* Orders the samples of a queue and plans the parts. *length receives the items of an epoch. */
weft_status weft_blend_plan(const weft_loader *loader, int64_t *sample, int64_t count,
                            weft_blend_queue *blend, int64_t *length);
void weft_blend_free(weft_blend_queue *blend);
/* Writes the items of an epoch, before they are shuffled. */
void weft_blend_fill(const weft_loader *loader, const weft_blend_queue *blend,
                     const int64_t *sample, int64_t epoch, weft_order_item *item);
/* The place in the queue's samples of the one that replaces place `at`, after `tries` others: the
 * next one of the source, or of the queue when the source has no other. */
int64_t weft_blend_next(const weft_blend_queue *blend, int64_t count, int64_t at, int64_t tries);

#endif
