/* Assigns the samples of a data set to buckets when a loader is opened. Computes the weights of the
 * buckets' turns and the fingerprint of the order. */
#include "data/loader_buckets.h"

#include "base/log.h"
#include "base/rng.h"
#include "data/loader_internal.h"

#include <math.h>

/* Returns the frames of a clip at the loader's rate. */
int64_t weft_loader_frames(const weft_sample *s, double fps)
{
    if (fps > 0 && s->fps > 0)
        return (int64_t)floor((double)(s->frames - 1) / s->fps * fps + 1e-6) + 1;
    return s->frames;
}

/* Returns the bucket of a clip, or -1. Considers the buckets that the clip fills, with an aspect at
 * most 5 % farther than the nearest (sizes are rounded). Prefers the longest bucket, then the
 * nearest aspect, then the largest size. */
static int choose_bucket(const weft_loader *l, int64_t frames, int64_t w, int64_t h,
                         bool *long_enough)
{
    int best = -1;
    double best_aspect = 0, nearest = INFINITY;
    const double own = log((double)w / (double)h);
    bool fits_clips = false; /* a clip uses a bucket of images only if it fills no other */
    *long_enough = false;
    for (int i = 0; i < l->queues; i++) {
        const weft_bucket *b = &l->queue[i].size;
        fits_clips |= b->frames > 1 && frames >= b->frames && w >= b->width && h >= b->height;
    }
    for (int i = 0; i < l->queues; i++) {
        const weft_bucket *b = &l->queue[i].size;
        if (frames >= b->frames && w >= b->width && h >= b->height &&
            (!fits_clips || b->frames > 1))
            nearest = fmin(nearest, fabs(own - l->queue[i].aspect));
    }
    for (int i = 0; i < l->queues; i++) {
        const weft_bucket *b = &l->queue[i].size;
        if (frames < b->frames)
            continue;
        *long_enough = true;
        if (w < b->width || h < b->height)
            continue;
        const double aspect = fabs(own - l->queue[i].aspect);
        if (aspect > nearest + 0.05 || (fits_clips && b->frames == 1))
            continue;
        const weft_bucket *c = best >= 0 ? &l->queue[best].size : NULL;
        if (!c || b->frames > c->frames ||
            (b->frames == c->frames &&
             (aspect < best_aspect - 1e-9 ||
              (aspect < best_aspect + 1e-9 && b->width * b->height > c->width * c->height)))) {
            best = i;
            best_aspect = aspect;
        }
    }
    return best;
}

static weft_sample_outcome deal_part(const weft_loader *l, const weft_sample *s,
                                     weft_sample_record *f)
{
    const weft_part_data *p = weft_sample_part(s, l->part);
    if (!p || (l->config.extra && !weft_sample_part(s, l->config.extra)))
        return WEFT_SAMPLE_NO_PART;
    const weft_part_shape *shape = p->shape;
    if (!shape || (shape->dtype != WEFT_F32 && shape->dtype != WEFT_F16))
        return WEFT_SAMPLE_UNREADABLE;
    f->frames = shape->rank ? shape->dim[0] : 0;
    for (int i = 0; i < l->queues && shape->rank == 4; i++) {
        const weft_bucket *b = &l->queue[i].size;
        if (shape->dim[0] == b->frames && shape->dim[1] == b->height && shape->dim[2] == b->width &&
            shape->dim[3] == l->channels)
            f->bucket = (int16_t)i;
    }
    return f->bucket < 0 ? WEFT_SAMPLE_OTHER_SIZE : WEFT_SAMPLE_USED;
}

static weft_sample_outcome deal_video(const weft_loader *l, const weft_sample *s,
                                      weft_sample_record *f)
{
    bool long_enough;
    if (!weft_sample_video(s))
        return WEFT_SAMPLE_NO_PART;
    if (s->unreadable)
        return WEFT_SAMPLE_UNREADABLE;
    const int64_t frames = weft_loader_frames(s, l->config.fps);
    f->frames = (int32_t)(frames < INT32_MAX ? frames : INT32_MAX);
    if (s->damaged)
        return WEFT_SAMPLE_DAMAGED;
    f->bucket = (int16_t)choose_bucket(l, frames, s->width, s->height, &long_enough);
    return f->bucket >= 0 ? WEFT_SAMPLE_USED
           : long_enough  ? WEFT_SAMPLE_TOO_SMALL
                          : WEFT_SAMPLE_TOO_SHORT;
}

static bool is_windowed(const weft_loader *l, const weft_loader_queue *a)
{
    return l->config.shuffle > 0 && l->config.shuffle < a->length;
}

static void warn_of_repetition(const weft_loader_queue *a)
{
    if (a->count > 0 && a->size.batch > a->count)
        weft_warning(WEFT_MSG_SAMPLE_REPEATED, WEFT_AT(WEFT_NUMBER(a->count)),
                     "the bucket of %" PRId64 "x%" PRId64 "x%" PRId64 " has %" PRId64
                     " samples and a batch of %" PRId64 ": samples "
                     "occur more than once in a step",
                     a->size.frames, a->size.height, a->size.width, a->count, a->size.batch);
}

/* Sets the outcome of every sample and the number of samples of every queue. */
static void deal_all(weft_loader *l, int64_t count, int64_t *usable)
{
    for (int64_t i = 0; i < count; i++) {
        const weft_sample *s = weft_dataset_at(l->dataset, i);
        weft_sample_record *f = &l->record[i];
        f->bucket = -1;
        f->what = (uint8_t)(l->part ? deal_part(l, s, f) : deal_video(l, s, f));
        if (s->limited) {
            f->bucket = -1;
            f->what = WEFT_SAMPLE_LIMITED;
        }
        *usable += f->bucket >= 0;
        f->skipped = f->bucket >= 0 && l->config.skip && l->config.skip(l->config.skip_user, s);
        if (f->bucket >= 0)
            l->queue[f->bucket].count += !f->skipped;
    }
}

static weft_status fill_queues(weft_loader *l, int64_t count)
{
    for (int i = 0; i < l->queues; i++) {
        weft_loader_queue *a = &l->queue[i];
        WEFT_TRY(WEFT_NEW(a->sample, a->count, "%" PRId64 " samples", a->count));
        a->count = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        const weft_sample_record *f = &l->record[i];
        if (f->bucket >= 0 && !f->skipped)
            l->queue[f->bucket].sample[l->queue[f->bucket].count++] = i;
    }
    for (int i = 0; i < l->queues; i++) {
        weft_loader_queue *a = &l->queue[i];
        a->length = a->count;
        if (l->config.sources.count)
            WEFT_TRY(weft_blend_plan(l, a->sample, a->count, &a->blend, &a->length));
    }
    return WEFT_OK;
}

/* Adds what the order of a queue depends on besides its samples. */
static uint64_t mix_blend(const weft_loader *l, const weft_loader_queue *a, uint64_t fingerprint)
{
    for (int p = 0; p < a->blend.parts && l->config.blend != WEFT_BLEND_ONCE; p++) {
        const weft_blend_part *part = &a->blend.part[p];
        fingerprint = weft_seed_mix(fingerprint, part->name);
        fingerprint = weft_seed_mix(fingerprint, (uint64_t)part->items);
        fingerprint = weft_seed_mix(fingerprint, (uint64_t)l->config.blend);
    }
    return fingerprint;
}

enum { FINE = 1 << 20 }; /* integer that represents a share of 1 */

/* A share as an integer; a queue with a share has at least 1. */
static int64_t fine(double share)
{
    return share > 0 ? (int64_t)ceil(share * FINE) : 0;
}

static weft_status image_shares(weft_loader *l, const bool *image)
{
    const double last = l->config.image_batches ? l->config.last_images : l->config.images;
    int64_t of[2] = {0};
    for (int i = 0; i < l->queues; i++)
        of[image[i]] += l->turns.samples[i];
    for (int kind = 0; kind < 2; kind++)
        if (!of[kind] &&
            (kind ? l->config.images > 0 || last > 0 : l->config.images < 1 || last < 1))
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = weft_loader_location(l), WEFT_NUMBER(l->config.images)),
                "a share of %g images (buckets of one frame) is requested, and the "
                "data set has no %s",
                l->config.images, kind ? "images" : "clips");
    for (int i = 0; i < l->queues; i++) {
        const double share = image[i] ? l->config.images : 1 - l->config.images,
                     part = (double)l->turns.samples[i] / (double)(of[image[i]] + !of[image[i]]);
        l->turns.part[i] = part;
        l->turns.image[i] = image[i];
        l->turns.share[i] = l->turns.samples[i] ? fine(share * part) : 0;
    }
    return WEFT_OK;
}

/* Buckets with a given share have it; the other buckets divide the rest. */
static weft_status bucket_shares(weft_loader *l)
{
    double given = 0;
    int64_t others = 0;
    for (int i = 0; i < l->queues; i++) {
        const double share = l->queue[i].size.share;
        given += share;
        others += share > 0 ? 0 : l->turns.samples[i];
        if (share > 0 && !l->turns.samples[i])
            return weft_error(
                WEFT_MSG_CONFIG_VALUE, WEFT_AT(.file = weft_loader_location(l), WEFT_NUMBER(share)),
                "a share of %g is requested for bucket %d of %" PRId64 "x%" PRId64 "x%" PRId64
                ", and no sample fits it. Remove the share or the bucket.",
                share, i, l->queue[i].size.frames, l->queue[i].size.height, l->queue[i].size.width);
    }
    for (int i = 0; i < l->queues; i++) {
        const double share = l->queue[i].size.share,
                     rest = (1 - given) * (double)l->turns.samples[i] / (double)(others + !others);
        l->turns.share[i] = fine(share > 0 ? share : rest);
    }
    return WEFT_OK;
}

weft_status weft_loader_compute_shares(weft_loader *l, const bool *image)
{
    bool given = false;
    for (int i = 0; i < l->queues; i++) {
        l->turns.share[i] = l->turns.samples[i];
        given |= l->queue[i].size.share > 0;
    }
    return image ? image_shares(l, image) : given ? bucket_shares(l) : WEFT_OK;
}

/* Checks that the weights of the sources leave items, and warns of sources that have samples in a
 * bucket but no item. */
static weft_status check_items(const weft_loader *l)
{
    int64_t items = 0, samples = 0;
    for (int i = 0; i < l->queues; i++) {
        const weft_loader_queue *a = &l->queue[i];
        items += a->length;
        samples += a->count;
        for (int p = 0; p < a->blend.parts && l->rank == 0; p++) {
            const weft_data_source *source = (const weft_data_source *)l->config.sources.item + p;
            char name[WEFT_SOURCE_NAME_BYTES];
            if (a->blend.part[p].count && !a->blend.part[p].items && source->weight > 0)
                weft_warning(WEFT_MSG_CONFIG_UNUSUAL,
                             WEFT_AT(.key = weft_data_source_name(source, name),
                                     WEFT_NUMBER(source->weight)),
                             "the source has %" PRId64 " samples in bucket %d, and its weight "
                             "leaves less than half of an item in an epoch: it is not used there",
                             a->blend.part[p].count, i);
        }
    }
    return items || !samples ? WEFT_OK
                             : weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = "data.path"),
                                          "the weights of the sources leave no sample for an "
                                          "epoch. Raise the weights of sources with samples that "
                                          "fit a bucket.");
}

const char *weft_loader_location(const weft_loader *l)
{
    return l->config.shards && *l->config.shards ? l->config.shards : "data.path";
}

/* Rows depend on their size and on the tokens of the samples. */
static void mix_packing(weft_loader *l)
{
    const weft_row_packing *p = &l->config.packing;
    const int64_t number[] = {p->tokens, p->rows, p->samples, p->window};
    for (int i = 0; i < WEFT_COUNT(number); i++)
        l->fingerprint = weft_seed_mix(l->fingerprint, (uint64_t)number[i]);
    for (int i = 0; i < l->queues; i++)
        l->fingerprint = weft_seed_mix(l->fingerprint, (uint64_t)l->queue[i].tokens);
    l->listed = l->fingerprint; /* earlier versions had no rows */
}

weft_status weft_loader_deal(weft_loader *l)
{
    const int64_t count = weft_dataset_count(l->dataset);
    WEFT_TRY(WEFT_NEW(l->record, count + 1, "%" PRId64 " samples", count));
    int64_t usable = 0;
    deal_all(l, count, &usable);
    WEFT_TRY(fill_queues(l, count));
    for (int i = 0; i < l->queues; i++) {
        l->turns.samples[i] = l->queue[i].length;
        /* packed rows take one sample at a time */
        l->turns.batch[i] = l->config.packing.tokens ? 1 : l->queue[i].size.batch;
        l->fingerprint = weft_seed_mix(l->fingerprint, (uint64_t)l->queue[i].size.batch);
        l->listed = weft_seed_mix(l->listed, (uint64_t)l->queue[i].size.batch);
        uint64_t listed = l->listed, sum = 0;
        for (int64_t k = 0; k < l->queue[i].count; k++) {
            const uint64_t id = weft_dataset_at(l->dataset, l->queue[i].sample[k])->id;
            listed = weft_seed_mix(listed, id);
            sum += weft_seed_mix(0, id);
        }
        l->listed = listed;
        l->fingerprint = mix_blend(l, &l->queue[i], weft_seed_mix(l->fingerprint, sum));
        if (is_windowed(l, &l->queue[i])) /* a windowed order also depends on the shards */
            l->fingerprint =
                weft_seed_mix(weft_seed_mix(l->fingerprint, listed), (uint64_t)l->config.shuffle);
        if (l->rank == 0 && !l->config.no_stand_ins)
            warn_of_repetition(&l->queue[i]);
    }
    if (l->config.packing.tokens)
        mix_packing(l);
    if (usable)
        return check_items(l);
    weft_buf why = {0};
    weft_loader_format_report(l, &why);
    const weft_status_code status = weft_error(
        WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = weft_loader_location(l), WEFT_NUMBER(count)),
        "none of %" PRId64 " samples fits a bucket\n%s", count, why.data ? why.data : "");
    weft_buf_free(&why);
    return status;
}
