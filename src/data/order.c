#include "data/order.h"

#include "base/rng.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const weft_order_item *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void weft_order_shuffle(weft_order_item *items, int64_t count, uint64_t seed, uint64_t epoch)
{
    const uint64_t base = weft_seed_mix(weft_seed_mix(seed, WEFT_RNG_SHUFFLE), epoch);
    for (int64_t i = 0; i < count; i++)
        items[i].rank = weft_seed_mix(base, items[i].id);
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, compare);
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
