#include "data/sample_order.h"

#include "base/rng.h"

#include <stdlib.h>

/* Ties keep the dataset's order. Hashes of 64 bits have none, but rounded positions may. */
static int compare(const void *a, const void *b)
{
    const weft_order_item *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->sample < y->sample ? -1 : x->sample > y->sample;
}

void weft_order_sort(weft_order_item *items, int64_t count)
{
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, compare);
}

/* The random number of an item, from a number `id` of its sample. Copy 0 has the number of a sample
 * without copies. */
static uint64_t random_of(uint64_t base, uint64_t id, const weft_order_item *item)
{
    const int64_t copy = weft_order_item_copy(item);
    const uint64_t random = weft_seed_mix(base, id);
    return copy ? weft_seed_mix(random, (uint64_t)copy) : random;
}

void weft_order_shuffle(weft_order_item *items, int64_t count, int64_t window, uint64_t seed,
                        uint64_t epoch, const weft_order_facts *facts)
{
    enum { FRACTION = 20 }; /* fraction bits of a position */
    const uint64_t base = weft_seed_mix(weft_seed_mix(seed, WEFT_RNG_SHUFFLE), epoch);
    if (window <= 0 || window >= count) {
        for (int64_t i = 0; i < count; i++)
            items[i].rank = random_of(
                base, facts->id(facts->user, weft_order_item_sample(&items[i])), &items[i]);
        weft_order_sort(items, count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        items[i].rank = random_of(
            base, facts->shard(facts->user, weft_order_item_sample(&items[i])), &items[i]);
    weft_order_sort(items, count);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t random =
            random_of(base, facts->id(facts->user, weft_order_item_sample(&items[i])), &items[i]);
        const unsigned __int128 span = (unsigned __int128)random * ((uint64_t)window << FRACTION);
        items[i].rank = ((uint64_t)i << FRACTION) + (uint64_t)(span >> 64);
    }
    weft_order_sort(items, count);
}

int weft_order_turn(const int64_t *samples, const int64_t *batch, int buckets, int64_t *taken)
{
    int best = -1;
    double least = 0;
    for (int b = 0; b < buckets; b++) {
        if (samples[b] == 0)
            continue;
        /* epochs done after half of the next batch: ties go to the first */
        const double progress = ((double)taken[b] + 0.5 * (double)batch[b]) / (double)samples[b];
        if (best < 0 || progress < least) {
            best = b;
            least = progress;
        }
    }
    if (best >= 0)
        taken[best] += batch[best];
    return best;
}

int weft_order_scheduled_turn(const double *share, const int64_t *batch, int buckets,
                              int64_t *taken, double *due)
{
    int best = -1;
    double least = 0;
    for (int b = 0; b < buckets; b++) {
        if (share[b] <= 0)
            continue;
        const double progress = ((double)taken[b] + 0.5 * (double)batch[b] - due[b]) / share[b];
        if (best < 0 || progress < least) {
            best = b;
            least = progress;
        }
    }
    if (best < 0)
        return best;
    const int64_t samples = batch[best];
    taken[best] += samples;
    for (int b = 0; b < buckets; b++)
        due[b] += share[b] * (double)samples;
    return best;
}
