/* Decodes the items of a slot: caption, clip or part, and the extra part. */
#include "data/loader_decode.h"

#include "base/log.h"
#include "base/rng.h"
#include "data/loader_buckets.h"
#include "format/tensors/npy.h"
#include "video/clip.h"

#include <math.h>
#include <string.h>

void weft_loader_set_item(const weft_loader *l, weft_loader_slot *s, int64_t i,
                          const weft_item *item)
{
    s->id[i] = weft_dataset_at(l->dataset, item->sample)->id;
    s->epoch[i] = item->epoch;
    s->sequence_index[i] = item->sequence_index;
    s->sample[i] = item->sample;
    s->caption[i] = "";
    s->replaced[i] = false;
}

static bool caption_dropped(const weft_loader *l, uint64_t id, int64_t epoch)
{
    const uint64_t seed = weft_seed_mix((uint64_t)l->config.seed, (uint64_t)epoch);
    return l->config.caption_dropout > 0 &&
           (double)weft_random_uniform(seed, WEFT_RNG_DROP, id) < l->config.caption_dropout;
}

static weft_status read_bytes(const weft_loader *l, const weft_sample *s, const weft_part_data *p,
                              weft_load_state *r)
{
    r->fault = WEFT_SAMPLE_CORRUPT;
    WEFT_TRY(weft_dataset_read(l->dataset, s, p, l->config.verify, &r->bytes));
    r->read += p->bytes;
    r->fault = WEFT_SAMPLE_UNDECODABLE;
    return WEFT_OK;
}

static weft_status read_clip(const weft_loader *l, const weft_sample *s, const weft_item *item,
                             weft_load_state *r, float *out)
{
    const weft_bucket *size = &l->queue[item->bucket].size;
    const uint64_t seed = weft_seed_mix((uint64_t)l->config.seed, (uint64_t)item->epoch);
    weft_clip_request request = {.frames = size->frames,
                                 .height = size->height,
                                 .width = size->width,
                                 .fps = l->config.fps,
                                 .crop_x = 0.5,
                                 .crop_y = 0.5,
                                 .threads = 1};
    if (l->config.random_crop) {
        request.crop_x = (double)weft_random_uniform(weft_seed_mix(seed, 1), WEFT_RNG_CROP, s->id);
        request.crop_y = (double)weft_random_uniform(weft_seed_mix(seed, 2), WEFT_RNG_CROP, s->id);
    }
    const int64_t frames = weft_loader_frames(s, l->config.fps);
    const double fps = l->config.fps > 0 ? l->config.fps : s->fps;
    if (l->config.random_start && fps > 0 && frames > size->frames) {
        const double u = (double)weft_random_uniform(weft_seed_mix(seed, 3), WEFT_RNG_CROP, s->id);
        request.start_seconds = floor(u * (double)(frames - size->frames + 1)) / fps;
    }
    weft_storage_video video;
    double start;
    if (weft_dataset_video(l->dataset, s, &video, &start)) {
        request.start_seconds += start;
        r->fault = WEFT_SAMPLE_UNDECODABLE;
        const weft_status_code status = weft_storage_video_end(
            &video, weft_clip_read_source(&video.source, s->key, &request, out));
        r->read += video.read;
        return status;
    }
    WEFT_TRY(read_bytes(l, s, weft_sample_video(s), r));
    return weft_clip_read_memory(r->bytes.data, r->bytes.bytes, s->key, &request, out);
}

static weft_status read_array(const weft_loader *l, const weft_sample *s, const char *suffix,
                              int64_t floats, weft_load_state *r, float *out)
{
    const weft_part_data *p = weft_sample_part(s, suffix);
    const int64_t header = p->bytes - 4 * floats;
    const bool whole = !p->shape || p->shape->dtype != WEFT_F32 || header < 0 || header > 65536;
    weft_npy npy;
    r->fault = WEFT_SAMPLE_CORRUPT;
    /* f32 is read directly into the destination; the index has the length of the header */
    WEFT_TRY(weft_dataset_read_apart(l->dataset, s, p, l->config.verify, whole ? p->bytes : header,
                                     &r->bytes, out));
    r->read += p->bytes;
    r->fault = WEFT_SAMPLE_UNDECODABLE;
    WEFT_TRY(weft_npy_parse_head(r->bytes.data, r->bytes.bytes, p->bytes, s->key, &npy));
    if (npy.count != floats || (npy.dtype != WEFT_F32 && npy.dtype != WEFT_F16))
        return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = s->key, .key = suffix),
                          "the array has %" PRId64 " elements of %s; expected %" PRId64
                          " of f32 or f16",
                          npy.count, weft_dtype_name(npy.dtype), floats);
    if (npy.dtype == WEFT_F32) {
        if (whole)
            memcpy(out, npy.data, (size_t)npy.count * 4);
        return WEFT_OK;
    }
    const unsigned char *from = npy.data;
    for (int64_t i = 0; i < npy.count; i++)
        out[i] = weft_f16_to_f32((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
    return WEFT_OK;
}

static weft_status read_data(const weft_loader *l, const weft_item *item, weft_load_state *r,
                             float *out)
{
    const weft_sample *s = weft_dataset_at(l->dataset, item->sample);
    return l->part ? read_array(l, s, l->part, l->queue[item->bucket].item_floats, r, out)
                   : read_clip(l, s, item, r, out);
}

/* Puts the prompt prefix of the sample's source before a caption that is not empty. */
static weft_status put_prefix(const weft_loader *l, const weft_sample *sample,
                              weft_part_bytes *caption)
{
    const weft_data_source *source =
        (const weft_data_source *)l->config.sources.item + sample->source;
    const int64_t length = l->config.sources.count ? (int64_t)strlen(source->prompt_prefix) : 0;
    if (!length || !caption->bytes)
        return WEFT_OK;
    if (caption->bytes + length + 1 > caption->capacity) {
        weft_part_bytes longer = {.capacity = caption->bytes + length + 1};
        WEFT_TRY(WEFT_ALLOCATED(longer.data = weft_alloc_aligned(longer.capacity),
                                "the caption of %s", sample->key));
        memcpy(longer.data, caption->data, (size_t)caption->bytes + 1);
        longer.bytes = caption->bytes;
        weft_free(caption->data);
        *caption = longer;
    }
    memmove(caption->data + length, caption->data, (size_t)caption->bytes + 1);
    memcpy(caption->data, source->prompt_prefix, (size_t)length);
    caption->bytes += length;
    return WEFT_OK;
}

int weft_loader_item_bucket(const weft_loader_slot *s, int64_t i)
{
    return s->packed ? s->packed[i].bucket : s->bucket;
}

float *weft_loader_item_data(const weft_loader *l, const weft_loader_slot *s, int64_t i)
{
    return s->data + (s->packed ? s->packed[i].at : i * l->queue[s->bucket].item_floats);
}

static weft_status read_item(const weft_loader *l, weft_loader_slot *s, int64_t i,
                             weft_load_state *r)
{
    const weft_item item = {.sample = s->sample[i],
                            .epoch = s->epoch[i],
                            .sequence_index = s->sequence_index[i],
                            .bucket = weft_loader_item_bucket(s, i)};
    const weft_sample *sample = weft_dataset_at(l->dataset, item.sample);
    if (!caption_dropped(l, sample->id, item.epoch) && sample->captioned) {
        r->fault = WEFT_SAMPLE_CORRUPT;
        WEFT_TRY(weft_dataset_caption(l->dataset, sample, l->config.verify, &s->text[i]));
        r->read += s->text[i].bytes;
        WEFT_TRY(put_prefix(l, sample, &s->text[i]));
        s->caption[i] = s->text[i].data;
    }
    if (!s->data)
        return WEFT_OK;
    WEFT_TRY(read_data(l, &item, r, weft_loader_item_data(l, s, i)));
    return l->config.extra ? read_array(l, sample, l->config.extra, l->config.extra_floats, r,
                                        s->extra + i * l->config.extra_floats)
                           : WEFT_OK;
}

/* Whether the last error is of the run or of a server and not of a sample's bytes: another sample
 * in its place would differ from rank to rank. */
static bool ends_run(weft_status_code status)
{
    return status == WEFT_E_MEMORY || status == WEFT_E_CANCELLED ||
           !strncmp(weft_message_id(weft_error_class()), "storage-", 8);
}

/* Decodes item i of a slot. Replaces an unusable sample by the next one of its bucket, or with
 * no_stand_ins leaves zeros. This is deterministic because the same bytes fail on every rank. */
weft_status weft_loader_decode_item(weft_loader *l, weft_loader_slot *s, int64_t i,
                                    weft_load_state *r)
{
    enum { TRIES = 16 };
    const weft_loader_queue *a = &l->queue[weft_loader_item_bucket(s, i)];
    weft_status_code status = WEFT_OK;
    for (int t = 0; t < TRIES && t < a->count; t++) {
        status = read_item(l, s, i, r);
        if (status == WEFT_OK || ends_run(status))
            return status;
        pthread_mutex_lock(&l->threads.lock);
        if (l->record[s->sample[i]].what == WEFT_SAMPLE_USED) /* warn once, not in every epoch */
            weft_warn_error(WEFT_MSG_SAMPLE_SKIPPED, l->config.no_stand_ins
                                                         ? "the sample is skipped"
                                                         : "another sample replaces it");
        l->report.replaced++;
        l->record[s->sample[i]].what = (uint8_t)r->fault;
        pthread_mutex_unlock(&l->threads.lock);
        s->replaced[i] = true;
        if (l->config.no_stand_ins) {
            memset(weft_loader_item_data(l, s, i), 0, (size_t)a->item_floats * 4);
            return WEFT_OK;
        }
        int64_t k = 0;
        while (k < a->count && a->sample[k] != s->sample[i])
            k++;
        const weft_item other = {.sample = a->sample[weft_blend_next(&a->blend, a->count, k, t)],
                                 .epoch = s->epoch[i],
                                 .sequence_index = s->sequence_index[i],
                                 .bucket = weft_loader_item_bucket(s, i)};
        weft_loader_set_item(l, s, i, &other);
        s->replaced[i] = true;
    }
    return weft_error_add(status, "%d samples in a row cannot be used.", TRIES);
}
