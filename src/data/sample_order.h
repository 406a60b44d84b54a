/* The order of samples: a pure function of (seed, sizes, step). */
#ifndef WEFT_DATA_SAMPLE_ORDER_H
#define WEFT_DATA_SAMPLE_ORDER_H

#include "base/memory.h"

/* One place of an epoch. Its sample is an index in the dataset. An epoch may have copies of a
 * sample, with numbers from 0. */
typedef struct weft_order_item {
    uint64_t rank;  /* scratch of the shuffle */
    int64_t sample; /* index, with the number of the copy above WEFT_ORDER_INDEX_BITS */
} weft_order_item;
enum { WEFT_ORDER_INDEX_BITS = 40 };
static inline weft_order_item weft_order_item_make(int64_t sample, int64_t copy)
{
    return (weft_order_item){.sample = copy << WEFT_ORDER_INDEX_BITS | sample};
}
static inline int64_t weft_order_item_sample(const weft_order_item *item)
{
    return item->sample & ((INT64_C(1) << WEFT_ORDER_INDEX_BITS) - 1);
}
static inline int64_t weft_order_item_copy(const weft_order_item *item)
{
    return item->sample >> WEFT_ORDER_INDEX_BITS;
}

/* The inputs of the order for a sample: ids that do not depend on the listing of the samples. */
typedef struct weft_order_facts {
    const void *user;
    uint64_t (*id)(const void *user, int64_t sample);
    uint64_t (*shard)(const void *user, int64_t sample);
} weft_order_facts;

/* Puts items[count], given in the dataset's order, into the order of `epoch`.
 *
 *   window 0, or not less than count   a permutation of all
 *   else                               shards in random order, their samples as they stand; then
 *                                      each is moved back by less than `window` places:
 *
 *       shards     |---C---|---A---|---B---|        reading goes through few shards at a time,
 *       place p       p ───────> p + u·window       and what is far apart stays far apart */
void weft_order_shuffle(weft_order_item *items, int64_t count, int64_t window, uint64_t seed,
                        uint64_t epoch, const weft_order_facts *facts);

/* Sorts items by their ranks. */
void weft_order_sort(weft_order_item *items, int64_t count);

/* Returns the bucket of the next batch: the one with the largest deficit from its share. taken[]
 * counts the samples of each bucket so far and is advanced by the chosen bucket's batch. Buckets
 * without samples are never chosen. */
int weft_order_turn(const int64_t *samples, const int64_t *batch, int buckets, int64_t *taken);

/* Returns the bucket of the next batch when shares change from batch to batch. due[] has the
 * samples that each bucket should have so far: the sum over the batches of share[] times the
 * samples of the batch. share[] has the shares in the next batch, with the sum 1. Advances taken[]
 * and due[]. */
int weft_order_scheduled_turn(const double *share, const int64_t *batch, int buckets,
                              int64_t *taken, double *due);

#endif
