#include "data/loader_blend.h"

#include "base/hash.h"
#include "base/rng.h"
#include "data/loader_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static weft_order_item *ranked(const weft_loader *l, const int64_t *sample, int64_t count)
{
    /* an epoch that never comes */
    const uint64_t base =
        weft_seed_mix(weft_seed_mix((uint64_t)l->config.seed, WEFT_RNG_SHUFFLE), UINT64_MAX);
    weft_order_item *item = weft_alloc(count * (int64_t)sizeof *item);
    for (int64_t i = 0; item && i < count; i++)
        item[i] = (weft_order_item){
            .rank = weft_seed_mix(base, weft_dataset_at(l->dataset, sample[i])->id),
            .sample = sample[i]};
    return item;
}

static weft_status order_by_hash(const weft_loader *l, const weft_blend_part *part, int64_t *sample)
{
    weft_order_item *item = ranked(l, sample + part->first, part->count);
    WEFT_TRY(WEFT_ALLOCATED(item, "%" PRId64 " samples", part->count));
    weft_order_sort(item, part->count);
    for (int64_t i = 0; i < part->count; i++)
        sample[part->first + i] = item[i].sample;
    weft_free(item);
    return WEFT_OK;
}

/* Groups the samples by source, in the order of the list of sources. */
static weft_status group(const weft_loader *l, int64_t *sample, int64_t count, weft_blend_queue *b)
{
    int64_t *copy = weft_alloc(count * 8), first = 0;
    WEFT_TRY(WEFT_ALLOCATED(copy, "%" PRId64 " samples", count));
    memcpy(copy, sample, (size_t)count * 8);
    for (int64_t i = 0; i < count; i++)
        b->part[weft_dataset_at(l->dataset, copy[i])->source].count++;
    for (int p = 0; p < b->parts; p++) {
        b->part[p].first = first;
        first += b->part[p].count;
        b->part[p].count = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        weft_blend_part *part = &b->part[weft_dataset_at(l->dataset, copy[i])->source];
        sample[part->first + part->count++] = copy[i];
    }
    weft_free(copy);
    return WEFT_OK;
}

static int64_t items_of(const weft_loader *l, const weft_data_source *source, int64_t count)
{
    return l->config.blend == WEFT_BLEND_ONCE ? count : llround(source->weight * (double)count);
}

weft_status weft_blend_plan(const weft_loader *l, int64_t *sample, int64_t count,
                            weft_blend_queue *b, int64_t *length)
{
    const weft_section_list *sources = &l->config.sources;
    b->parts = (int)sources->count;
    b->passes = 1;
    *length = 0;
    WEFT_TRY(WEFT_NEW(b->part, b->parts, "%d sources", b->parts));
    WEFT_TRY(WEFT_NEW(b->taken, b->parts, "%d sources", b->parts));
    WEFT_TRY(group(l, sample, count, b));
    for (int p = 0; p < b->parts; p++) {
        const weft_data_source *source = (const weft_data_source *)sources->item + p;
        weft_blend_part *part = &b->part[p];
        char name[WEFT_SOURCE_NAME_BYTES];
        weft_data_source_name(source, name);
        part->name = XXH3_64bits(name, strlen(name));
        part->items = items_of(l, source, part->count);
        *length += part->items;
        WEFT_TRY(order_by_hash(l, part, sample));
    }
    for (int p = 0; p < b->parts; p++) {
        const weft_blend_part *part = &b->part[p];
        const int64_t most = l->config.blend == WEFT_BLEND_SAMPLED ? *length : part->items;
        if (part->items && (most + part->count - 1) / part->count > b->passes)
            b->passes = (most + part->count - 1) / part->count;
    }
    return WEFT_OK;
}

void weft_blend_free(weft_blend_queue *b)
{
    weft_free(b->part);
    weft_free(b->taken);
}

/* Draws how many items each source has in an epoch. */
static void draw(const weft_loader *l, const weft_blend_queue *b, int64_t epoch)
{
    int64_t length = 0;
    for (int p = 0; p < b->parts; p++) {
        length += b->part[p].items;
        b->taken[p] = 0;
    }
    const uint64_t key = weft_seed_mix((uint64_t)l->config.seed, WEFT_RNG_SHUFFLE);
    for (int64_t i = 0; i < length; i++) {
        uint32_t bits[4];
        weft_philox(key, (uint64_t)epoch, (uint64_t)i, bits);
        const uint64_t random = (uint64_t)bits[0] << 32 | bits[1];
        int64_t at = (int64_t)((unsigned __int128)random * (uint64_t)length >> 64);
        int p = 0;
        while (at >= b->part[p].items)
            at -= b->part[p++].items;
        b->taken[p]++;
    }
}

void weft_blend_fill(const weft_loader *l, const weft_blend_queue *b, const int64_t *sample,
                     int64_t epoch, weft_order_item *item)
{
    const bool sampled = l->config.blend == WEFT_BLEND_SAMPLED;
    if (sampled)
        draw(l, b, epoch);
    for (int p = 0; p < b->parts; p++) {
        const weft_blend_part *part = &b->part[p];
        const int64_t taken = sampled ? b->taken[p] : part->items;
        if (!taken)
            continue;
        const int64_t start = (int64_t)((unsigned __int128)(uint64_t)epoch * (uint64_t)part->items %
                                        (uint64_t)part->count);
        for (int64_t i = 0; i < taken; i++)
            *item++ = weft_order_item_make(sample[part->first + (start + i) % part->count],
                                           i / part->count);
    }
}

int64_t weft_blend_next(const weft_blend_queue *b, int64_t count, int64_t at, int64_t tries)
{
    for (int p = 0; p < b->parts; p++) {
        const int64_t inside = at - b->part[p].first;
        if (inside >= 0 && inside < b->part[p].count && tries + 1 < b->part[p].count)
            return b->part[p].first + (inside + 1) % b->part[p].count;
    }
    return (at + 1) % count;
}
