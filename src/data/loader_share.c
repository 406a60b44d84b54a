#include "data/loader_share.h"

#include "data/loader_decode.h"

#include <string.h>

/* The part in bytes: part_head, then for each item item_head, caption, data and extra part. */
typedef struct part_head {
    int64_t step, first, count;
} part_head;
typedef struct item_head {
    uint64_t id;
    int64_t epoch, sequence_index, sample;
    int64_t replaced, caption_bytes;
} item_head;

static weft_item_range part_of(const weft_loader *l, const weft_loader_slot *s, int64_t step)
{
    weft_item_range part = {0, s->count};
    const int members = l->config.members;
    if (members > 1)
        weft_part(s->count, members, (int)((l->config.member + step) % members), &part.first,
                  &part.count);
    return part;
}

void weft_loader_set_part(const weft_loader *l, weft_loader_slot *s, int64_t step)
{
    const weft_item_range part = part_of(l, s, step);
    s->taken = part.first;
    s->read_end = part.first + part.count;
    s->done = s->count - part.count;
    s->read_bytes = 0;
    for (int64_t i = part.first; i < s->read_end; i++)
        weft_dataset_expect(l->dataset, weft_dataset_at(l->dataset, s->sample[i]));
}

/* The slot of the batch that next() returned last. */
static weft_loader_slot *returned(const weft_loader *l)
{
    return &l->slots[(l->position.next_step - 1) % l->slot_count];
}

static int64_t floats_of(const weft_loader *l, const weft_loader_slot *s, int64_t i)
{
    return l->queue[weft_loader_item_bucket(s, i)].item_floats;
}

void weft_loader_share_write(const weft_loader *l, weft_buf *to)
{
    const weft_loader_slot *s = returned(l);
    const weft_item_range part = part_of(l, s, s->step);
    const part_head head = {s->step, part.first, part.count};
    weft_buf_append(to, &head, sizeof head);
    for (int64_t i = part.first; i < part.first + part.count; i++) {
        const item_head item = {s->id[i],     s->epoch[i],    s->sequence_index[i],
                                s->sample[i], s->replaced[i], (int64_t)strlen(s->caption[i])};
        weft_buf_append(to, &item, sizeof item);
        weft_buf_append(to, s->caption[i], item.caption_bytes);
        weft_buf_append(to, weft_loader_item_data(l, s, i), floats_of(l, s, i) * 4);
        if (l->config.extra)
            weft_buf_append(to, s->extra + i * l->config.extra_floats, l->config.extra_floats * 4);
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

static weft_status take_item(const weft_loader *l, weft_loader_slot *s, int64_t i, rest *r,
                             bool *fits)
{
    item_head item;
    *fits = take(r, &item, sizeof item);
    if (*fits)
        WEFT_TRY(take_caption(s, i, item.caption_bytes, r, fits));
    *fits = *fits && take(r, weft_loader_item_data(l, s, i), floats_of(l, s, i) * 4);
    if (*fits && l->config.extra)
        *fits = take(r, s->extra + i * l->config.extra_floats, l->config.extra_floats * 4);
    if (!*fits)
        return WEFT_OK;
    s->id[i] = item.id;
    s->epoch[i] = item.epoch;
    s->sequence_index[i] = item.sequence_index;
    s->sample[i] = item.sample;
    s->replaced[i] = item.replaced != 0;
    return WEFT_OK;
}

weft_status weft_loader_share_read(weft_loader *l, const void *part, int64_t bytes)
{
    weft_loader_slot *s = returned(l);
    rest r = {part, bytes};
    part_head head = {0};
    bool fits = take(&r, &head, sizeof head) && head.step == s->step && head.first >= 0 &&
                head.count >= 0 && head.first + head.count <= s->count;
    for (int64_t i = 0; fits && i < head.count; i++)
        WEFT_TRY(take_item(l, s, head.first + i, &r, &fits));
    if (fits && !r.bytes)
        return WEFT_OK;
    return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(s->step)),
                      "the part of batch %" PRId64
                      " that another rank read does not fit this rank's batch",
                      s->step);
}

int64_t weft_loader_read_bytes(const weft_loader *l)
{
    return l->read_bytes;
}
