/* The samples of each step. A step has a bucket and positions in the endless sequence of that
 * bucket. The state of a loader is the number of samples taken from each bucket. */
#include "data/loader_order.h"

#include "base/hex.h"
#include "base/rng.h"
#include "data/loader_decode.h"
#include "data/loader_internal.h"
#include "data/loader_items.h"
#include "data/sample_order.h"

#include <string.h>

static uint64_t id_of(const void *dataset, int64_t sample)
{
    return weft_dataset_at(dataset, sample)->id;
}

static uint64_t shard_of(const void *dataset, int64_t sample)
{
    return weft_dataset_shard_id(dataset, weft_dataset_at(dataset, sample)->shard);
}

/* Returns the order of `epoch` in a queue. Caches two epochs, because a batch may span two. */
static const weft_order_item *order_of(const weft_loader *l, weft_loader_queue *a, int64_t epoch)
{
    weft_epoch_order *p = &a->cache[epoch % 2];
    if (p->epoch != epoch) {
        const weft_order_facts facts = {.user = l->dataset, .id = id_of, .shard = shard_of};
        if (a->blend.part)
            weft_blend_fill(l, &a->blend, a->sample, epoch, p->item);
        for (int64_t i = 0; i < a->count && !a->blend.part; i++)
            p->item[i].sample = a->sample[i];
        weft_order_shuffle(p->item, a->length, l->config.shuffle, (uint64_t)l->config.seed,
                           (uint64_t)epoch, &facts);
        p->epoch = epoch;
    }
    return p->item;
}

weft_item weft_loader_item_at(const weft_loader *l, int bucket, int64_t sequence_index)
{
    weft_loader_queue *a = &l->queue[bucket];
    const int64_t epoch = sequence_index / a->length, passes = a->blend.part ? a->blend.passes : 1;
    const weft_order_item *item = &order_of(l, a, epoch)[sequence_index % a->length];
    return (weft_item){.sample = weft_order_item_sample(item),
                       .epoch = epoch * passes + weft_order_item_copy(item),
                       .sequence_index = sequence_index,
                       .bucket = bucket};
}

/* Sets the shares of batch `step`; NULL: they do not change. */
static const double *shares_at(weft_loader *l, int64_t step)
{
    const int64_t batches = l->config.image_batches;
    if (!batches)
        return NULL;
    const double done = step >= batches - 1 ? 1 : (double)step / (double)(batches - 1),
                 images = l->config.images + done * (l->config.last_images - l->config.images);
    for (int i = 0; i < l->queues; i++)
        l->turns.now[i] = l->turns.part[i] * (l->turns.image[i] ? images : 1 - images);
    return l->turns.now;
}

static int next_turn(weft_loader *l, int64_t step, int64_t *taken, double *due)
{
    const double *share = shares_at(l, step);
    return share ? weft_order_scheduled_turn(share, l->turns.batch, l->queues, taken, due)
                 : weft_order_turn(l->turns.share, l->turns.batch, l->queues, taken);
}

void weft_loader_return(weft_loader *l, const weft_loader_slot *slot)
{
    const int bucket = slot->bucket;
    for (int64_t i = 0; i < l->config.sources.count; i++)
        l->by_source[i] += slot->by_source[i];
    if (l->config.packing.tokens) {
        memcpy(l->position.returned, slot->taken_after,
               (size_t)l->queues * sizeof *slot->taken_after);
        weft_pack_window_copy(&l->position.returned_window, &slot->window_after);
        l->position.next_step++;
        return;
    }
    const double *share = shares_at(l, l->position.next_step);
    const int64_t batch = l->turns.batch[bucket];
    for (int i = 0; share && i < l->queues; i++)
        l->position.returned_due[i] += share[i] * (double)batch;
    l->position.returned[bucket] += batch;
    l->position.next_step++;
}

/* Counts the items of a global batch by source. */
static void count_sources(const weft_loader *l, weft_loader_slot *s, int bucket, int64_t first)
{
    memset(s->by_source, 0, (size_t)l->config.sources.count * sizeof *s->by_source);
    for (int64_t i = 0; i < l->queue[bucket].size.batch; i++) {
        const weft_item item = weft_loader_item_at(l, bucket, first + i);
        s->by_source[weft_dataset_at(l->dataset, item.sample)->source]++;
    }
}

/* Fills the slot of plan_step with the items of this rank. */
void weft_loader_plan_next(weft_loader *l)
{
    weft_loader_slot *s = &l->slots[l->position.plan_step % l->slot_count];
    if (l->config.packing.tokens) {
        weft_loader_plan_rows(l, s);
        s->step = l->position.plan_step++;
        return;
    }
    const int b = next_turn(l, l->position.plan_step, l->position.planned, l->position.planned_due);
    const int64_t batch = l->queue[b].size.batch, at = l->position.planned[b] - batch;
    const int64_t start = l->queue[b].own.first, count = l->queue[b].own.count;
    s->bucket = b;
    s->count = count;
    s->first = start;
    s->status = WEFT_OK;
    for (int64_t i = 0; i < count; i++) {
        const weft_item item = weft_loader_item_at(l, b, at + start + i);
        weft_loader_set_item(l, s, i, &item);
    }
    weft_loader_set_part(l, s, l->position.plan_step);
    if (l->config.sources.count)
        count_sources(l, s, b, at);
    s->step = l->position.plan_step++;
}

weft_status weft_loader_peek(weft_loader *l, int64_t batches_ahead, int *bucket, weft_item *out,
                             int64_t *count)
{
    int64_t *taken;
    WEFT_TRY(WEFT_NEW(taken, 2 * l->queues, "a look ahead"));
    double *due = (double *)(taken + l->queues);
    pthread_mutex_lock(&l->threads.lock);
    memcpy(taken, l->position.returned, (size_t)l->queues * sizeof *taken);
    memcpy(due, l->position.returned_due, (size_t)l->queues * sizeof *due);
    for (int64_t i = 0; i <= batches_ahead; i++)
        *bucket = next_turn(l, l->position.next_step + i, taken, due);
    if (out) {
        *count = l->queue[*bucket].size.batch;
        for (int64_t i = 0; i < *count; i++)
            out[i] = weft_loader_item_at(l, *bucket, taken[*bucket] - *count + i);
    }
    pthread_mutex_unlock(&l->threads.lock);
    weft_free(taken);
    return WEFT_OK;
}

/* ---- state --------------------------------------------------------------------------------- */

json_t *weft_loader_state(const weft_loader *l)
{
    json_t *taken = json_array(), *due = json_array();
    char fingerprint[WEFT_HEX_BYTES];
    weft_hex_print(l->fingerprint, fingerprint);
    for (int i = 0; i < l->queues; i++)
        json_array_append_new(taken, json_integer(l->position.returned[i]));
    json_t *state =
        json_pack("{s:I, s:I, s:s, s:o}", "step", (json_int_t)l->position.next_step, "seed",
                  (json_int_t)l->config.seed, "samples", fingerprint, "taken", taken);
    for (int i = 0; l->config.image_batches && i < l->queues; i++)
        json_array_append_new(due, json_real(l->position.returned_due[i]));
    if (l->config.image_batches)
        json_object_set(state, "due", due);
    json_decref(due);
    if (l->config.packing.tokens)
        json_object_set_new(state, "waiting", weft_pack_window_write(&l->position.returned_window));
    return state;
}

/* Sets the samples that each queue should have had. A state of a run whose share of images did not
 * change has none: it had what it should. */
static void restore_due(weft_loader *l, const json_t *due)
{
    for (int i = 0; i < l->queues; i++) {
        const json_t *own = json_array_get(due, (size_t)i);
        l->position.planned_due[i] = l->position.returned_due[i] =
            own ? json_number_value(own) : (double)l->position.returned[i];
    }
}

weft_status weft_loader_restore(weft_loader *l, const json_t *state, const char *where)
{
    int64_t step, seed;
    const char *fingerprint;
    char own[WEFT_HEX_BYTES], old[WEFT_HEX_BYTES];
    const json_t *taken = json_object_get(state, "taken");
    WEFT_TRY(weft_json_get_i64(state, "step", where, &step));
    WEFT_TRY(weft_json_get_i64(state, "seed", where, &seed));
    WEFT_TRY(weft_json_get_string(state, "samples", where, &fingerprint));
    weft_hex_print(l->fingerprint, own);
    weft_hex_print(l->listed, old);
    if (seed != l->config.seed || (strcmp(fingerprint, own) && strcmp(fingerprint, old)) ||
        (int)json_array_size(taken) != l->queues || step < 0)
        return weft_error(WEFT_MSG_CHECKPOINT_MISMATCH, WEFT_AT(.file = where),
                          "the checkpoint is of other data (shards, clip sizes, batch or seed "
                          "changed). Restore them, or use a new output folder.");
    for (int i = 0; i < l->queues; i++) {
        const json_t *count = json_array_get(taken, (size_t)i);
        if (!json_is_integer(count) || json_integer_value(count) < 0)
            return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "taken"),
                              "the number of samples of bucket %d is missing or negative", i);
    }
    int64_t batches = 0; /* sum over the buckets */
    for (int i = 0; i < l->queues && !l->config.packing.tokens; i++) {
        const int64_t count = json_integer_value(json_array_get(taken, (size_t)i));
        batches += count % l->turns.batch[i] ? -step - 1 : count / l->turns.batch[i];
        if (batches < 0 || batches > step)
            break;
    }
    if (batches != step && !l->config.packing.tokens)
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "taken"),
                          "the samples of the queues do not add up to %" PRId64 " batches", step);
    pthread_mutex_lock(&l->threads.lock);
    weft_loader_empty(l);
    for (int i = 0; i < l->queues; i++)
        l->position.planned[i] = l->position.returned[i] =
            json_integer_value(json_array_get(taken, (size_t)i));
    restore_due(l, json_object_get(state, "due"));
    l->position.plan_step = l->position.next_step = step;
    weft_status_code status = WEFT_OK;
    if (l->config.packing.tokens) {
        weft_pack_window *window = &l->position.planned_window;
        status = weft_pack_window_read(l, json_object_get(state, "waiting"), l->position.returned,
                                       where, window);
        weft_pack_window_copy(&l->position.returned_window, window);
    }
    pthread_mutex_unlock(&l->threads.lock);
    return status;
}
