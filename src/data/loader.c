/* Opens a loader and returns its batches in order.
 *
 *   loader_buckets   assigns every sample to a bucket, once.
 *   loader_order     step -> (bucket, positions) -> samples. Sequential, in the caller's thread.
 *   slots            ring of batches. The batch of step s is in slot s mod slot_count.
 *   loader_items     threads. Each takes the next undecoded item of the earliest planned batch.
 *   loader_decode    decodes one item of a slot.
 *
 * Threads write the items of a slot without the lock, and count them in `done` with the lock. A
 * slot with done == count is safe to read. */
#include "data/loader.h"

#include "base/log.h"
#include "data/loader_buckets.h"
#include "data/loader_internal.h"
#include "data/loader_items.h"
#include "data/loader_order.h"

#include <math.h>

static const weft_key bucket_keys[] = {
    {"batch", WEFT_KEY_I64, offsetof(weft_bucket, batch), "0", "clips",
     "clips per step over all ranks. 0: as many as max_tokens and max_load allow", .min = 0,
     .max = 65536},
    {"frames", WEFT_KEY_I64, offsetof(weft_bucket, frames), NULL, "frames", "clip length", .min = 1,
     .max = 65536},
    {"height", WEFT_KEY_I64, offsetof(weft_bucket, height), NULL, "pixels", "clip height", .min = 1,
     .max = 16384},
    {"width", WEFT_KEY_I64, offsetof(weft_bucket, width), NULL, "pixels", "clip width", .min = 1,
     .max = 16384},
    {"share", WEFT_KEY_F64, offsetof(weft_bucket, share), "0", "",
     "share of the training stage's samples that come from this bucket; 0 (default): buckets "
     "divide what is left in proportion to their samples",
     .min = 0, .max = 1},
};
const weft_section weft_bucket_section = {
    "buckets",
    "clip sizes to train on; a sample goes to the bucket with the nearest aspect that it "
    "fills, then the longest",
    sizeof(weft_bucket), bucket_keys, WEFT_COUNT(bucket_keys)};

/* ---- opening and closing ------------------------------------------------------------------- */

/* Returns this rank's items in a batch of a bucket. */
static weft_item_range own_items(const weft_loader_config *config, int bucket, int rank, int ranks)
{
    const weft_bucket *size = (const weft_bucket *)config->buckets.item + bucket;
    const int64_t batch = config->packing.tokens ? config->packing.rows : size->batch;
    weft_item_range own;
    if (config->own)
        return config->own[bucket];
    weft_part(batch, ranks, rank, &own.first, &own.count);
    return own;
}

static int64_t floats_of_item(const weft_bucket *size, int64_t channels)
{
    return size->frames * size->height * size->width * channels;
}

/* Returns the bytes of a slot per item, without the item's floats. */
static int64_t item_bytes(const weft_loader_config *config)
{
    const weft_loader_slot *s = NULL;
    return (int64_t)(sizeof *s->id + sizeof *s->epoch + sizeof *s->sequence_index +
                     sizeof *s->text + sizeof *s->sample + sizeof *s->caption +
                     sizeof *s->replaced + (config->packing.tokens ? sizeof *s->packed : 0));
}

weft_loader_plan weft_loader_plan_make(const weft_loader_config *config, int rank, int ranks,
                                       int64_t channels)
{
    weft_loader_plan p = {.slots = config->prefetch + 1};
    for (int i = 0; i < (int)config->buckets.count; i++) {
        const weft_bucket *size = (const weft_bucket *)config->buckets.item + i;
        const int64_t each = floats_of_item(size, channels),
                      own = own_items(config, i, rank, ranks).count,
                      count = config->packing.tokens ? own * config->packing.samples : own,
                      floats = config->packing.tokens ? own * config->packing.tokens *
                                                            (each / config->bucket_tokens[i])
                                                      : count * each;
        p.items = count > p.items ? count : p.items;
        p.floats = floats > p.floats ? floats : p.floats;
        const int64_t frames = size->frames * size->height * size->width * 3;
        p.clip_bytes = frames > p.clip_bytes ? frames : p.clip_bytes;
    }
    p.clip_bytes *= config->threads;
    p.extra = config->extra ? p.items * config->extra_floats : 0;
    p.bytes = p.slots * ((p.floats + p.extra) * 4 + p.items * item_bytes(config));
    return p;
}

static bool allocate_slot(const weft_loader_plan *plan, weft_loader_slot *s)
{
    s->step = -1;
    s->items = plan->items;
    s->id = weft_calloc(plan->items, sizeof *s->id);
    s->epoch = weft_calloc(plan->items, sizeof *s->epoch);
    s->sequence_index = weft_calloc(plan->items, sizeof *s->sequence_index);
    s->text = weft_calloc(plan->items, sizeof *s->text);
    s->sample = weft_calloc(plan->items, sizeof *s->sample);
    s->caption = weft_calloc(plan->items, sizeof *s->caption);
    s->replaced = weft_calloc(plan->items, sizeof *s->replaced);
    s->data = weft_alloc_aligned(plan->floats * 4);
    s->extra = weft_alloc_aligned(plan->extra * 4);
    return s->id && s->epoch && s->sequence_index && s->text && s->sample && s->caption &&
           s->replaced && s->data && s->extra;
}

/* Reserves the memory of packed rows. */
static weft_status allocate_rows(weft_loader *l)
{
    const weft_row_packing *packing = &l->config.packing;
    if (!packing->tokens)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(l->packed_row, packing->samples, "a row of samples"));
    WEFT_TRY(weft_pack_rows_create(l));
    WEFT_TRY(weft_pack_window_create(packing, &l->position.planned_window));
    WEFT_TRY(weft_pack_window_create(packing, &l->position.returned_window));
    for (int64_t i = 0; i < l->slot_count; i++) {
        weft_loader_slot *s = &l->slots[i];
        WEFT_TRY(WEFT_NEW(s->packed, s->items + 1, "%" PRId64 " packed samples", s->items));
        WEFT_TRY(WEFT_NEW(s->taken_after, l->queues, "%d buckets", l->queues));
        WEFT_TRY(weft_pack_window_create(packing, &s->window_after));
    }
    return WEFT_OK;
}

static weft_status allocate(weft_loader *l, const weft_loader_plan *plan)
{
    for (int i = 0; i < l->queues; i++) {
        weft_loader_queue *a = &l->queue[i];
        for (int e = 0; e < 2; e++) {
            a->cache[e].epoch = -1;
            WEFT_TRY(WEFT_NEW(a->cache[e].item, a->length + 1, "%" PRId64 " samples", a->length));
        }
    }
    WEFT_TRY(WEFT_NEW(l->slots, plan->slots, "%" PRId64 " batches", plan->slots));
    l->slot_count = plan->slots;
    const int64_t sources = l->config.sources.count;
    if (sources)
        WEFT_TRY(WEFT_NEW(l->by_source, sources, "%" PRId64 " sources", sources));
    for (int64_t i = 0; i < plan->slots && sources; i++)
        WEFT_TRY(WEFT_NEW(l->slots[i].by_source, sources, "%" PRId64 " sources", sources));
    for (int64_t i = 0; i < plan->slots; i++)
        WEFT_TRY(WEFT_ALLOCATED(allocate_slot(plan, &l->slots[i]), "batches of %" PRId64 " floats",
                                plan->floats));
    return allocate_rows(l);
}

static weft_status open_dataset(const weft_loader_config *c, weft_dataset **dataset)
{
    const weft_dataset_options options = {.split = c->split && *c->split ? c->split : NULL,
                                          .strict = c->strict,
                                          .clip_seconds = c->clip_seconds};
    if (c->sources.count && (!c->shards || !*c->shards))
        return weft_dataset_open_sources(&c->sources, &options, dataset);
    WEFT_TRY(weft_dataset_open_with(c->shards, &options, dataset));
    return c->sources.count ? weft_dataset_assign_sources(*dataset, &c->sources) : WEFT_OK;
}

weft_status weft_loader_open(const weft_loader_config *config, int rank, int ranks,
                             const char *part, int64_t channels, weft_loader **loader)
{
    if (config->buckets.count < 1 || config->buckets.count > INT16_MAX)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = "data.buckets", WEFT_NUMBER(config->buckets.count)),
                          "%" PRId64
                          " buckets {batch, frames, height, width} are not possible; use 1 to %d",
                          config->buckets.count, INT16_MAX);
    weft_loader *l;
    WEFT_TRY(WEFT_NEW(l, 1, "a loader"));
    pthread_mutex_init(&l->threads.lock, NULL);
    pthread_cond_init(&l->threads.work, NULL);
    pthread_cond_init(&l->threads.ready, NULL);
    weft_stop_init(&l->threads.stop);
    l->config = *config;
    l->prefetched_last = &l->prefetched;
    l->config.own = NULL; /* copied to the queues; the caller owns the array */
    l->config.image = NULL;
    l->rank = rank;
    l->part = part;
    l->channels = part ? channels : 3;
    l->queues = (int)config->buckets.count;
    l->queue = weft_calloc(l->queues, sizeof *l->queue);
    l->turns.samples = weft_alloc(l->queues * 8);
    l->turns.batch = weft_alloc(l->queues * 8);
    l->turns.share = weft_alloc(l->queues * 8);
    l->turns.part = weft_calloc(l->queues, sizeof *l->turns.part);
    l->turns.now = weft_calloc(l->queues, sizeof *l->turns.now);
    l->turns.image = weft_calloc(l->queues, sizeof *l->turns.image);
    l->position.planned = weft_alloc(l->queues * 8);
    l->position.returned = weft_alloc(l->queues * 8);
    l->position.planned_due = weft_calloc(l->queues, sizeof *l->position.planned_due);
    l->position.returned_due = weft_calloc(l->queues, sizeof *l->position.returned_due);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(l->queue && l->turns.samples && l->turns.batch && l->turns.share &&
                               l->turns.part && l->turns.now && l->turns.image &&
                               l->position.planned && l->position.returned &&
                               l->position.planned_due && l->position.returned_due,
                           "a loader"));
    for (int i = 0; i < l->queues; i++) {
        const weft_bucket *size = &((const weft_bucket *)config->buckets.item)[i];
        l->queue[i].size = *size;
        l->queue[i].aspect = log((double)size->width / (double)size->height);
        l->queue[i].item_floats = floats_of_item(size, l->channels);
        l->queue[i].own = own_items(config, i, rank, ranks);
        l->queue[i].tokens = config->bucket_tokens ? config->bucket_tokens[i] : 0;
    }
    l->config.bucket_tokens = NULL; /* copied to the queues */
    WEFT_GO(open_dataset(config, &l->dataset));
    WEFT_GO(weft_loader_deal(l));
    WEFT_GO(weft_loader_compute_shares(l, config->image));
    const weft_loader_plan plan = weft_loader_plan_make(config, rank, ranks, l->channels);
    WEFT_GO(allocate(l, &plan));
    WEFT_GO(weft_loader_start_workers(l));
    *loader = l;
    return WEFT_OK;
out:
    weft_loader_close(l);
    return status;
}

void weft_loader_close(weft_loader *l)
{
    if (!l)
        return;
    weft_loader_stop_workers(l);
    for (int64_t i = 0; l->slots && i < l->slot_count; i++) {
        weft_loader_slot *s = &l->slots[i];
        weft_free(s->id);
        weft_free(s->epoch);
        weft_free(s->sequence_index);
        weft_free(s->sample);
        for (int64_t k = 0; s->text && k < s->items; k++)
            weft_free(s->text[k].data);
        weft_free(s->text);
        weft_free(s->caption);
        weft_free(s->replaced);
        weft_free(s->data);
        weft_free(s->extra);
        weft_free(s->by_source);
        weft_free(s->packed);
        weft_free(s->taken_after);
        weft_pack_window_free(&s->window_after);
        weft_free(s->error);
    }
    for (int i = 0; l->queue && i < l->queues; i++) {
        weft_free(l->queue[i].sample);
        weft_blend_free(&l->queue[i].blend);
        weft_free(l->queue[i].cache[0].item);
        weft_free(l->queue[i].cache[1].item);
    }
    weft_free(l->slots);
    weft_free(l->packed_row);
    weft_pack_rows_free(l);
    weft_pack_window_free(&l->position.planned_window);
    weft_pack_window_free(&l->position.returned_window);
    weft_free(l->queue);
    weft_free(l->turns.samples);
    weft_free(l->turns.batch);
    weft_free(l->turns.share);
    weft_free(l->turns.part);
    weft_free(l->turns.now);
    weft_free(l->turns.image);
    weft_free(l->position.planned);
    weft_free(l->position.returned);
    weft_free(l->position.planned_due);
    weft_free(l->position.returned_due);
    weft_free(l->threads.worker);
    weft_free(l->by_source);
    weft_free(l->record);
    weft_dataset_close(l->dataset);
    pthread_cond_destroy(&l->threads.work);
    pthread_cond_destroy(&l->threads.ready);
    weft_stop_free(&l->threads.stop);
    pthread_mutex_destroy(&l->threads.lock);
    weft_free(l);
}

/* ---- batches ------------------------------------------------------------------------------- */

const weft_dataset *weft_loader_dataset(const weft_loader *l)
{
    return l->dataset;
}

int64_t weft_loader_resident(const weft_loader *l)
{
    int64_t bytes = weft_dataset_resident(l->dataset) +
                    weft_dataset_count(l->dataset) * (int64_t)sizeof *l->record;
    for (int i = 0; i < l->queues; i++)
        bytes += l->queue[i].count * (int64_t)sizeof *l->queue[i].sample +
                 l->queue[i].length * 2 * (int64_t)sizeof(weft_order_item);
    return bytes;
}

int64_t weft_loader_bucket_samples(const weft_loader *l, int bucket)
{
    return l->turns.samples[bucket];
}

/* Plans the requested batch and the `prefetch` batches after it. Reuses the slot of the previous
 * batch, which the caller returned with this request. */
static void plan_batches(weft_loader *l)
{
    while (l->position.plan_step < l->position.next_step + l->slot_count)
        weft_loader_plan_next(l);
    pthread_cond_broadcast(&l->threads.work);
}

weft_status weft_loader_next(weft_loader *l, weft_batch *batch)
{
    pthread_mutex_lock(&l->threads.lock);
    weft_status_code status = WEFT_OK;
    plan_batches(l);
    weft_loader_slot *s = &l->slots[l->position.next_step % l->slot_count];
    const double began = weft_now();
    while (s->done < s->count)
        pthread_cond_wait(&l->threads.ready, &l->threads.lock);
    l->report.waited_ms += (int64_t)(1e3 * (weft_now() - began));
    if (s->status != WEFT_OK)
        WEFT_GO(weft_error_restore(s->error));
    *batch = (weft_batch){.step = s->step,
                          .bucket = s->bucket,
                          .count = s->count,
                          .first = s->first,
                          .id = s->id,
                          .epoch = s->epoch,
                          .sequence_index = s->sequence_index,
                          .sample = s->sample,
                          .caption = s->caption,
                          .replaced = s->replaced,
                          .packed = s->packed,
                          .all_samples = s->all_samples,
                          .all_tokens = s->all_tokens};
    if (l->part)
        batch->part = s->data;
    else
        batch->video = s->data;
    batch->extra = l->config.extra ? s->extra : NULL;
    l->read_bytes += s->read_bytes;
    weft_loader_return(l, s);
out:
    pthread_mutex_unlock(&l->threads.lock);
    return status;
}
