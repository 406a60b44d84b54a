#include "data/loader_share.h"

#include "data/loader_decode.h"

#include <string.h>

/* The heads in bytes: part_head, then for each item item_head and caption. */
typedef struct part_head {
    int64_t step, first, count;
} part_head;
typedef struct item_head {
    uint64_t id;
    int64_t epoch, sequence_index, sample;
    int64_t replaced, caption_bytes;
} item_head;

/* The items of a batch that a member reads. */
static weft_item_range part_of(const weft_loader *l, const weft_loader_slot *s, int64_t step,
                               int member)
{
    weft_item_range part = {0, s->count};
    const int members = l->config.members;
    if (members > 1)
        weft_part(s->count, members, (int)((member + step) % members), &part.first, &part.count);
    return part;
}

void weft_loader_set_part(const weft_loader *l, weft_loader_slot *s, int64_t step)
{
    const weft_item_range part = part_of(l, s, step, l->config.member);
    s->taken = part.first;
    s->read_end = part.first + part.count;
    s->done = s->count - part.count;
    s->read_bytes = 0;
    for (int64_t i = part.first; i < s->read_end; i++)
        weft_dataset_expect(l->dataset, weft_dataset_at(l->dataset, s->sample[i]));
}

static weft_loader_slot *slot_of(const weft_loader *l, int64_t step)
{
    return &l->slots[step % l->slot_count];
}

static int64_t floats_of(const weft_loader *l, const weft_loader_slot *s, int64_t i)
{
    return l->queue[weft_loader_item_bucket(s, i)].item_floats;
}

weft_status weft_loader_share_wait(weft_loader *l, int64_t step)
{
    weft_loader_slot *s = slot_of(l, step);
    pthread_mutex_lock(&l->threads.lock);
    while (s->done < s->count && s->step == step)
        pthread_cond_wait(&l->threads.ready, &l->threads.lock);
    const weft_status_code status = s->status == WEFT_OK ? WEFT_OK : weft_error_restore(s->error);
    pthread_mutex_unlock(&l->threads.lock);
    return status;
}

weft_share_data weft_loader_share_data(const weft_loader *l, int64_t step, int member)
{
    const weft_loader_slot *s = slot_of(l, step);
    const weft_item_range part = part_of(l, s, step, member);
    weft_share_data d = {0};
    if (!part.count)
        return d;
    const int64_t last = part.first + part.count - 1;
    d.data = weft_loader_item_data(l, s, part.first);
    d.bytes = (weft_loader_item_data(l, s, last) - d.data + floats_of(l, s, last)) * 4;
    if (l->config.extra) {
        d.extra = s->extra + part.first * l->config.extra_floats;
        d.extra_bytes = part.count * l->config.extra_floats * 4;
    }
    return d;
}

void weft_loader_share_heads(const weft_loader *l, int64_t step, weft_buf *to)
{
    const weft_loader_slot *s = slot_of(l, step);
    const weft_item_range part = part_of(l, s, step, l->config.member);
    const part_head head = {s->step, part.first, part.count};
    weft_buf_append(to, &head, sizeof head);
    for (int64_t i = part.first; i < part.first + part.count; i++) {
        const item_head item = {s->id[i],     s->epoch[i],    s->sequence_index[i],
                                s->sample[i], s->replaced[i], (int64_t)strlen(s->caption[i])};
        weft_buf_append(to, &item, sizeof item);
        weft_buf_append(to, s->caption[i], item.caption_bytes);
    }
}

/* Bytes of a part that are not read yet. */
typedef struct rest {
    const char *at;
    int64_t bytes;
} rest;

static bool take(rest *r, void *to, int64_t bytes)
{
    if (bytes < 0 || bytes > r->bytes)
        return false;
    memcpy(to, r->at, (size_t)bytes);
    r->at += bytes;
    r->bytes -= bytes;
    return true;
}

/* Sets the caption of item i from the next bytes. */
static weft_status take_caption(weft_loader_slot *s, int64_t i, int64_t bytes, rest *r, bool *fits)
{
    weft_part_bytes *text = &s->text[i];
    *fits = bytes >= 0 && bytes <= r->bytes;
    if (!*fits)
        return WEFT_OK;
    if (bytes >= text->capacity) {
        weft_free(text->data);
        *text = (weft_part_bytes){.capacity = bytes + 1};
        WEFT_TRY(WEFT_ALLOCATED(text->data = weft_alloc_aligned(text->capacity), "a caption"));
    }
    take(r, text->data, bytes);
    text->data[bytes] = '\0';
    text->bytes = bytes;
    s->caption[i] = (const char *)text->data;
    return WEFT_OK;
}

static weft_status take_item(weft_loader_slot *s, int64_t i, rest *r, bool *fits)
{
    item_head item;
    *fits = take(r, &item, sizeof item);
    if (*fits)
        WEFT_TRY(take_caption(s, i, item.caption_bytes, r, fits));
    if (!*fits)
        return WEFT_OK;
    s->id[i] = item.id;
    s->epoch[i] = item.epoch;
    s->sequence_index[i] = item.sequence_index;
    s->sample[i] = item.sample;
    s->replaced[i] = item.replaced != 0;
    return WEFT_OK;
}

weft_status weft_loader_share_take(weft_loader *l, int64_t step, const void *heads, int64_t bytes)
{
    weft_loader_slot *s = slot_of(l, step);
    rest r = {heads, bytes};
    part_head head = {0};
    bool fits = take(&r, &head, sizeof head) && head.step == step && head.first >= 0 &&
                head.count >= 0 && head.first + head.count <= s->count;
    for (int64_t i = 0; fits && i < head.count; i++)
        WEFT_TRY(take_item(s, head.first + i, &r, &fits));
    if (fits && !r.bytes)
        return WEFT_OK;
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(step)),
                      "the part of batch %" PRId64
                      " that another rank read does not fit this rank's batch",
                      step);
}

int64_t weft_loader_read_bytes(const weft_loader *l)
{
    return l->read_bytes;
}
