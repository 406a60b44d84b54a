/* Items that are loaded without their batch, and the threads that decode items ahead of time. */
#include "data/loader_items.h"

#include "base/log.h"
#include "data/loader_decode.h"
#include "data/loader_internal.h"

#include <string.h>

/* ---- single items -------------------------------------------------------------------------- */

static weft_loader_slot slot_of_one(const weft_item *item, weft_loaded_item *taken, int64_t *epoch,
                                    int64_t *sequence_index, float *to, float *extra)
{
    return (weft_loader_slot){.bucket = item->bucket,
                              .count = 1,
                              .read_end = 1,
                              .id = &taken->id,
                              .epoch = epoch,
                              .sequence_index = sequence_index,
                              .sample = &taken->sample,
                              .caption = &taken->caption,
                              .text = &taken->text,
                              .replaced = &taken->replaced,
                              .data = to,
                              .extra = extra};
}

static void prefetched_free(weft_prefetched_item *e)
{
    weft_free(e->taken.text.data);
    weft_free(e->one.error);
    weft_free(e->one.data);
    weft_free(e->one.extra);
    weft_free(e);
}

static void drop_prefetched(weft_loader *l)
{
    while (l->prefetched) {
        weft_prefetched_item *e = l->prefetched;
        l->prefetched = e->next;
        prefetched_free(e);
    }
    l->prefetched_last = &l->prefetched;
}

static weft_prefetched_item *prefetched_of(const weft_loader *l, const weft_item *item)
{
    weft_prefetched_item *e = weft_alloc(sizeof *e);
    const int64_t floats = l->queue[item->bucket].item_floats;
    if (!e)
        return NULL;
    float *data = weft_alloc_aligned(floats * 4),
          *extra = l->config.extra ? weft_alloc_aligned(l->config.extra_floats * 4) : NULL;
    e->one = slot_of_one(item, &e->taken, &e->epoch, &e->sequence_index, data, extra);
    e->item = *item;
    if (data && (extra || !l->config.extra)) {
        weft_loader_set_item(l, &e->one, 0, item);
        return e;
    }
    prefetched_free(e);
    return NULL;
}

weft_status weft_loader_prefetch_items(weft_loader *l, const weft_item *item, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        weft_prefetched_item *e = prefetched_of(l, &item[i]);
        WEFT_TRY(WEFT_ALLOCATED(e, "an item that is decoded ahead"));
        pthread_mutex_lock(&l->threads.lock);
        *l->prefetched_last = e;
        l->prefetched_last = &e->next;
        pthread_cond_signal(&l->threads.work);
        pthread_mutex_unlock(&l->threads.lock);
    }
    return WEFT_OK;
}

/* Removes a prefetched item from the list and returns it; NULL: the item was not prefetched. Waits
 * for a worker that is decoding it. The caller has the lock. */
static weft_prefetched_item *take_prefetched(weft_loader *l, const weft_item *item)
{
    weft_prefetched_item **at = &l->prefetched;
    while (*at && ((*at)->item.sample != item->sample ||
                   (*at)->item.sequence_index != item->sequence_index ||
                   (*at)->item.bucket != item->bucket))
        at = &(*at)->next;
    weft_prefetched_item *e = *at;
    if (!e)
        return NULL;
    *at = e->next;
    if (!e->next)
        l->prefetched_last = at;
    const double began = weft_now();
    while (e->one.done < e->one.taken)
        pthread_cond_wait(&l->threads.ready, &l->threads.lock);
    l->report.waited_ms += (int64_t)(1e3 * (weft_now() - began));
    return e;
}

/* Copies an item that a worker has decoded. */
static weft_status get_decoded(const weft_loader *l, weft_prefetched_item *e, float *to,
                               float *extra, weft_loaded_item *taken)
{
    if (e->one.status != WEFT_OK)
        return weft_error_restore(e->one.error);
    memcpy(to, e->one.data, (size_t)l->queue[e->one.bucket].item_floats * 4);
    if (extra)
        memcpy(extra, e->one.extra, (size_t)l->config.extra_floats * 4);
    const weft_part_bytes text = taken->text;
    *taken = e->taken; /* moves the text with the caption, which points into it */
    e->taken.text = text;
    return WEFT_OK;
}

weft_status weft_loader_load_item(weft_loader *l, const weft_item *item, float *to, float *extra,
                                  weft_loaded_item *taken)
{
    weft_load_state r = {.bytes = {0}};
    int64_t epoch, sequence_index;
    pthread_mutex_lock(&l->threads.lock);
    weft_prefetched_item *e = to ? take_prefetched(l, item) : NULL;
    pthread_mutex_unlock(&l->threads.lock);
    weft_status_code status;
    if (e && e->one.done) {
        status = get_decoded(l, e, to, extra, taken);
    } else { /* not prefetched, or no worker has started it */
        weft_loader_slot one = slot_of_one(item, taken, &epoch, &sequence_index, to, extra);
        weft_loader_set_item(l, &one, 0, item);
        status = weft_loader_decode_item(l, &one, 0, &r);
    }
    weft_free(r.bytes.data);
    if (e)
        prefetched_free(e);
    return status;
}

/* ---- workers ------------------------------------------------------------------------------- */

/* Returns the earliest batch with an item to decode, else a prefetched item to decode. */
static weft_loader_slot *next_work(weft_loader *l)
{
    weft_loader_slot *best = NULL;
    for (int64_t i = 0; i < l->slot_count; i++) {
        weft_loader_slot *s = &l->slots[i];
        if (s->step >= 0 && s->taken < s->read_end && (!best || s->step < best->step))
            best = s;
    }
    for (weft_prefetched_item *e = l->prefetched; e && !best; e = e->next)
        if (!e->one.taken)
            best = &e->one;
    return best;
}

static void *work(void *user)
{
    weft_loader *l = user;
    weft_load_state r = {.bytes = {0}};
    weft_stop_bind(&l->threads.stop);
    pthread_mutex_lock(&l->threads.lock);
    while (!l->threads.quit) {
        weft_loader_slot *s = next_work(l);
        if (!s) {
            pthread_cond_wait(&l->threads.work, &l->threads.lock);
            continue;
        }
        const int64_t item = s->taken++;
        r.read = 0;
        l->threads.busy++;
        pthread_mutex_unlock(&l->threads.lock);
        const weft_status_code status = weft_loader_decode_item(l, s, item, &r);
        pthread_mutex_lock(&l->threads.lock);
        l->threads.busy--;
        s->done++;
        s->read_bytes += r.read;
        if (status != WEFT_OK && s->status == WEFT_OK) {
            s->status = status;
            weft_free(s->error);
            s->error = weft_error_save();
        }
        pthread_cond_broadcast(&l->threads.ready);
    }
    pthread_mutex_unlock(&l->threads.lock);
    weft_free(r.bytes.data);
    return NULL;
}

weft_status weft_loader_start_workers(weft_loader *l)
{
    WEFT_TRY(
        WEFT_NEW(l->threads.worker, l->config.threads, "%" PRId64 " threads", l->config.threads));
    for (; l->threads.count < l->config.threads; l->threads.count++)
        if (pthread_create(&l->threads.worker[l->threads.count], NULL, work, l) != 0)
            return weft_no_memory("decoder thread %" PRId64, l->threads.count);
    return WEFT_OK;
}

void weft_loader_stop_workers(weft_loader *l)
{
    pthread_mutex_lock(&l->threads.lock);
    l->threads.quit = true;
    pthread_cond_broadcast(&l->threads.work);
    pthread_mutex_unlock(&l->threads.lock);
    weft_stop_set(&l->threads.stop);
    for (int64_t i = 0; i < l->threads.count; i++)
        pthread_join(l->threads.worker[i], NULL);
    drop_prefetched(l);
}

void weft_loader_empty(weft_loader *l)
{
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i].taken = l->slots[i].count; /* no worker starts another item */
    for (weft_prefetched_item *e = l->prefetched; e; e = e->next)
        e->one.taken = e->one.count;
    while (l->threads.busy > 0)
        pthread_cond_wait(&l->threads.ready, &l->threads.lock);
    drop_prefetched(l);
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i].step = -1;
}
