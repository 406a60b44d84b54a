/* The order of samples: a pure function of (seed, sizes, step). */
#ifndef WEFT_DATA_ORDER_H
#define WEFT_DATA_ORDER_H

#include "base/memory.h"

/* Permutation of n items for one epoch: order[i] is the item at place i. Sorting by a random key
 * per item id, so that it does not depend on how the items are listed. */
typedef struct weft_order_item {
    uint64_t id, rank; /* rank: scratch of the shuffle */
    int64_t sample;    /* index in the dataset */
} weft_order_item;
/* Sorts items[count] into the order of `epoch`. */
void weft_order_shuffle(weft_order_item *items, int64_t count, uint64_t seed, uint64_t epoch);

/* Which bucket has its turn next: the one that is furthest behind its share. taken[] counts samples
 * taken so far and is advanced by the chosen bucket's batch. Buckets without samples never have a
 * turn. */
int weft_order_turn(const int64_t *samples, const int64_t *batch, int buckets, int64_t *taken);

#endif
