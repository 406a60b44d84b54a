/* Plans batches, decodes them ahead, and returns them in order.
 *
 *   plan      step -> (bucket, positions) -> samples        sequential, in the caller's thread
 *   slots     ring of batches; the batch of step s is in slot s mod slot_count
 *   workers   each takes the next undecoded item of the earliest planned batch
 *
 * Workers write the items of a slot without the lock, and count them in `done` with the lock. A
 * slot with done == count is safe to read. */
#include "data/loader.h"

#include "base/log.h"
#include "base/rng.h"
#include "data/sample_order.h"
#include "format/tensors/npy.h"
#include "graph/mesh.h"
#include "video/clip.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

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
};
const weft_section weft_bucket_section = {
    "buckets",
    "clip sizes to train on; a sample goes to the bucket with the nearest aspect that it "
    "fills, then the longest",
    sizeof(weft_bucket), bucket_keys, WEFT_COUNT(bucket_keys)};

typedef struct permutation {
    int64_t epoch; /* -1: none yet */
    weft_order_item *item;
} permutation;

typedef struct bucket_queue { /* a bucket and its samples */
    weft_bucket size;
    weft_item_range own; /* items of this rank in a batch */
    double aspect;       /* logarithm of width / height */
    int64_t *sample;     /* [count] indices in the dataset, ascending */
    int64_t count;
    int64_t item_floats;
    permutation cache[2]; /* permutations of the current and the next epoch */
} bucket_queue;

typedef struct outcome { /* eight bytes, because every sample of the data set has one */
    int32_t frames;
    int16_t bucket; /* bucket of a used sample; -1: none */
    uint8_t what;   /* weft_sample_outcome */
    bool skipped;   /* true: counts as used, but is in no batch */
} outcome;

typedef struct slot {
    int64_t step; /* -1: empty */
    int bucket;
    int64_t items; /* capacity */
    int64_t count, first;
    int64_t taken, done; /* items handed to workers, items finished */
    weft_status_code status;
    weft_error_copy *error; /* when status is set; NULL: no memory for it */
    uint64_t *id;
    int64_t *epoch, *sequence_index, *sample;
    const char **caption;
    weft_part_bytes *text; /* [items] memory of the captions */
    bool *replaced;
    float *data, *extra;
} slot;

/* A prefetched item of weft_loader_prefetch_items. */
typedef struct early {
    struct early *next;
    weft_item item; /* the requested item, which another may replace in `taken` */
    weft_loaded_item taken;
    int64_t epoch, sequence_index;
    slot one;
} early;

struct weft_loader {
    weft_loader_config config;
    weft_dataset *dataset;
    int rank;
    const char *part;
    int64_t channels;
    bucket_queue *queue;
    int queues;
    int64_t *queue_samples, *queue_batch;
    int64_t *queue_share;        /* [queues] weight of the queue's turns */
    int64_t *planned, *returned; /* [queues] samples planned, and returned by next() */
    int64_t plan_step, next_step;
    weft_loader_report report; /* replaced and waited_ms; the other sums come from `outcome` */
    outcome *outcome;          /* [samples]; written with the lock once workers run */
    uint64_t fingerprint;      /* hash of samples, batches and settings that affect the order */
    uint64_t listed;           /* fingerprint of earlier versions, which used the listing order */

    slot *slots;
    int64_t slot_count;
    early *early, **early_last; /* prefetched items not yet loaded, oldest first */
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t *worker;
    int64_t workers, busy;
    bool quit;
};

/* ---- dealing samples to buckets ------------------------------------------------------------ */

/* Returns the frames of a clip at the loader's rate. */
static int64_t frames_of(const weft_sample *s, double fps)
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

static weft_sample_outcome deal_part(const weft_loader *l, const weft_sample *s, outcome *f)
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

static weft_sample_outcome deal_video(const weft_loader *l, const weft_sample *s, outcome *f)
{
    bool long_enough;
    if (!weft_sample_video(s))
        return WEFT_SAMPLE_NO_PART;
    if (s->unreadable)
        return WEFT_SAMPLE_UNREADABLE;
    const int64_t frames = frames_of(s, l->config.fps);
    f->frames = (int32_t)(frames < INT32_MAX ? frames : INT32_MAX);
    if (s->damaged)
        return WEFT_SAMPLE_DAMAGED;
    f->bucket = (int16_t)choose_bucket(l, frames, s->width, s->height, &long_enough);
    return f->bucket >= 0 ? WEFT_SAMPLE_USED
           : long_enough  ? WEFT_SAMPLE_TOO_SMALL
                          : WEFT_SAMPLE_TOO_SHORT;
}

static bool is_windowed(const weft_loader *l, const bucket_queue *a)
{
    return l->config.shuffle > 0 && l->config.shuffle < a->count;
}

static void warn_of_repetition(const bucket_queue *a)
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
        outcome *f = &l->outcome[i];
        f->bucket = -1;
        f->what = (uint8_t)(l->part ? deal_part(l, s, f) : deal_video(l, s, f));
        *usable += f->bucket >= 0;
        f->skipped = f->bucket >= 0 && l->config.skip && l->config.skip(l->config.skip_user, s);
        if (f->bucket >= 0)
            l->queue[f->bucket].count += !f->skipped;
    }
}

static weft_status fill_queues(weft_loader *l, int64_t count)
{
    for (int i = 0; i < l->queues; i++) {
        bucket_queue *a = &l->queue[i];
        WEFT_TRY(WEFT_NEW(a->sample, a->count, "%" PRId64 " samples", a->count));
        a->count = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        const outcome *f = &l->outcome[i];
        if (f->bucket >= 0 && !f->skipped)
            l->queue[f->bucket].sample[l->queue[f->bucket].count++] = i;
    }
    return WEFT_OK;
}

/* Sets the weights of the queues' turns: their numbers of samples. With a share of images, scales
 * the weights of image and clip queues so that the share holds. */
static weft_status compute_shares(weft_loader *l, const bool *image)
{
    enum { FINE = 1 << 20 }; /* integer that represents a share of 1 */
    int64_t of[2] = {0};
    for (int i = 0; i < l->queues; i++) {
        l->queue_share[i] = l->queue_samples[i];
        of[image && image[i]] += l->queue_samples[i];
    }
    for (int kind = 0; image && kind < 2; kind++)
        if (!of[kind] && (kind ? l->config.images > 0 : l->config.images < 1))
            return weft_error(WEFT_MSG_CONFIG_VALUE,
                              WEFT_AT(.file = l->config.shards, WEFT_NUMBER(l->config.images)),
                              "a share of %g images (buckets of one frame) is requested, and the "
                              "data set has no %s",
                              l->config.images, kind ? "images" : "clips");
    for (int i = 0; image && i < l->queues; i++) {
        const double share = image[i] ? l->config.images : 1 - l->config.images,
                     part = (double)l->queue_samples[i] / (double)(of[image[i]] + !of[image[i]]);
        const int64_t fine = (int64_t)ceil(share * part * FINE);
        l->queue_share[i] = share > 0 && l->queue_samples[i] ? fine : 0;
    }
    return WEFT_OK;
}

static weft_status deal(weft_loader *l)
{
    const int64_t count = weft_dataset_count(l->dataset);
    WEFT_TRY(WEFT_NEW(l->outcome, count + 1, "%" PRId64 " samples", count));
    int64_t usable = 0;
    deal_all(l, count, &usable);
    WEFT_TRY(fill_queues(l, count));
    for (int i = 0; i < l->queues; i++) {
        l->queue_samples[i] = l->queue[i].count;
        l->queue_batch[i] = l->queue[i].size.batch;
        l->fingerprint = weft_seed_mix(l->fingerprint, (uint64_t)l->queue[i].size.batch);
        l->listed = weft_seed_mix(l->listed, (uint64_t)l->queue[i].size.batch);
        uint64_t listed = l->listed, sum = 0;
        for (int64_t k = 0; k < l->queue[i].count; k++) {
            const uint64_t id = weft_dataset_at(l->dataset, l->queue[i].sample[k])->id;
            listed = weft_seed_mix(listed, id);
            sum += weft_seed_mix(0, id);
        }
        l->listed = listed;
        l->fingerprint = weft_seed_mix(l->fingerprint, sum);
        if (is_windowed(l, &l->queue[i])) /* a windowed order also depends on the shards */
            l->fingerprint =
                weft_seed_mix(weft_seed_mix(l->fingerprint, listed), (uint64_t)l->config.shuffle);
        if (l->rank == 0 && !l->config.no_stand_ins)
            warn_of_repetition(&l->queue[i]);
    }
    if (usable)
        return WEFT_OK;
    weft_buf why = {0};
    weft_loader_format_report(l, &why);
    const weft_status_code status = weft_error(
        WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = l->config.shards, WEFT_NUMBER(count)),
        "none of %" PRId64 " samples fits a bucket\n%s", count, why.data ? why.data : "");
    weft_buf_free(&why);
    return status;
}

/* ---- accounting ---------------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
} outcomes[WEFT_SAMPLE_FATES] = {
    [WEFT_SAMPLE_USED] = {"used", "are used"},
    [WEFT_SAMPLE_TOO_SHORT] = {"too_short", "are shorter than every bucket"},
    [WEFT_SAMPLE_TOO_SMALL] = {"too_small",
                               "have fewer pixels than every bucket that they are long enough for"},
    [WEFT_SAMPLE_OTHER_SIZE] = {"other_size", "have a part of another size than every bucket"},
    [WEFT_SAMPLE_NO_PART] = {"no_part", "have no part of the kind that is read"},
    [WEFT_SAMPLE_DAMAGED] = {"damaged", "were found damaged by curation"},
    [WEFT_SAMPLE_UNREADABLE] = {"unreadable", "cannot be opened"},
    [WEFT_SAMPLE_UNDECODABLE] = {"undecodable", "do not decode (found so far)"},
    [WEFT_SAMPLE_CORRUPT] = {"corrupt",
                             "have other bytes than were written, or are cut off (found so far)"},
};

weft_loader_report weft_loader_get_report(const weft_loader *l)
{
    weft_loader *locked = (weft_loader *)l; /* only the lock is modified */
    pthread_mutex_lock(&locked->lock);
    weft_loader_report r = l->report;
    r.damaged_shards = weft_dataset_damaged(l->dataset);
    r.all_samples = weft_dataset_count(l->dataset);
    for (int64_t i = 0; i < r.all_samples; i++) {
        const outcome *f = &l->outcome[i];
        r.samples[f->what]++;
        r.frames[f->what] += f->frames;
        r.all_frames += f->frames;
        if (f->what == WEFT_SAMPLE_USED)
            r.window_frames += l->queue[f->bucket].size.frames;
    }
    r.unused_frames = r.frames[WEFT_SAMPLE_USED] - r.window_frames;
    for (int64_t i = 0; i < l->slot_count; i++)
        r.decoded_batches +=
            l->slots[i].step >= l->next_step && l->slots[i].done == l->slots[i].count;
    for (const early *e = l->early; e; e = e->next) {
        r.wanted++;
        r.early += e->one.done;
    }
    pthread_mutex_unlock(&locked->lock);
    return r;
}

weft_sample_outcome weft_loader_outcome(const weft_loader *l, int64_t sample)
{
    weft_loader *locked = (weft_loader *)l;
    pthread_mutex_lock(&locked->lock);
    const weft_sample_outcome what = l->outcome[sample].what;
    pthread_mutex_unlock(&locked->lock);
    return what;
}

void weft_loader_set_outcome(weft_loader *l, int64_t sample, weft_sample_outcome what)
{
    pthread_mutex_lock(&l->lock);
    l->outcome[sample].what = (uint8_t)what;
    pthread_mutex_unlock(&l->lock);
}

void weft_loader_format_report(const weft_loader *l, weft_buf *out)
{
    const weft_loader_report r = weft_loader_get_report(l);
    weft_buf_printf(out,
                    "%" PRId64 " of %" PRId64 " samples and %" PRId64 " of %" PRId64
                    " %s are used in an epoch",
                    r.samples[WEFT_SAMPLE_USED], r.all_samples, r.window_frames, r.all_frames,
                    l->part ? "latent frames" : "frames");
    if (r.unused_frames)
        weft_buf_printf(out, "; %" PRId64 " frames of used samples lie outside of their windows",
                        r.unused_frames);
    weft_buf_printf(out, "\n");
    for (int i = 0; i < l->queues && l->queues > 1; i++) {
        const weft_bucket *b = &l->queue[i].size;
        int64_t inside = 0;
        for (int64_t k = 0; k < r.all_samples; k++)
            inside += l->outcome[k].bucket == i;
        weft_buf_printf(out,
                        "%" PRId64 " of %" PRId64 " samples are in bucket %d of %" PRId64
                        "x%" PRId64 "x%" PRId64 "%s\n",
                        inside, r.all_samples, i, b->frames, b->height, b->width,
                        inside ? "" : ": it never has a turn");
    }
    for (int i = WEFT_SAMPLE_USED + 1; i < WEFT_SAMPLE_FATES; i++)
        if (r.samples[i])
            weft_buf_printf(out, "%" PRId64 " of %" PRId64 " samples %s (%" PRId64 " frames)\n",
                            r.samples[i], r.all_samples, outcomes[i].text, r.frames[i]);
    if (r.damaged_shards)
        weft_buf_printf(out, "%" PRId64 " shards are damaged; their lost samples are not counted\n",
                        r.damaged_shards);
}

json_t *weft_loader_report_json(const weft_loader *l)
{
    const weft_loader_report r = weft_loader_get_report(l);
    json_t *dropped = json_object(), *list = json_array();
    for (int i = WEFT_SAMPLE_USED + 1; i < WEFT_SAMPLE_FATES; i++)
        json_object_set_new(dropped, outcomes[i].name,
                            json_pack("{s:I, s:I}", "samples", (json_int_t)r.samples[i], "frames",
                                      (json_int_t)r.frames[i]));
    for (int64_t i = 0; i < r.all_samples; i++) {
        const weft_sample_outcome what = weft_loader_outcome(l, i);
        if (what != WEFT_SAMPLE_USED)
            json_array_append_new(
                list,
                json_pack(
                    "{s:s, s:s, s:s, s:I}", "key", weft_dataset_at(l->dataset, i)->key, "shard",
                    weft_dataset_shard(l->dataset, weft_dataset_at(l->dataset, i)->shard), "reason",
                    outcomes[what].name, "frames", (json_int_t)l->outcome[i].frames));
    }
    return json_pack("{s:I, s:I, s:{s:I, s:I, s:I}, s:o, s:I, s:o}", "samples",
                     (json_int_t)r.all_samples, "frames", (json_int_t)r.all_frames, "used",
                     "samples", (json_int_t)r.samples[WEFT_SAMPLE_USED], "frames_in_windows",
                     (json_int_t)r.window_frames, "frames_outside", (json_int_t)r.unused_frames,
                     "dropped", dropped, "damaged_shards", (json_int_t)r.damaged_shards, "list",
                     list);
}

/* ---- planning ------------------------------------------------------------------------------ */

static uint64_t id_of(const void *dataset, int64_t sample)
{
    return weft_dataset_at(dataset, sample)->id;
}

static uint64_t shard_of(const void *dataset, int64_t sample)
{
    return weft_dataset_shard_id(dataset, weft_dataset_at(dataset, sample)->shard);
}

/* Returns the order of `epoch` in a queue. Caches two epochs, because a batch may span two. */
static const weft_order_item *order_of(const weft_loader *l, bucket_queue *a, int64_t epoch)
{
    permutation *p = &a->cache[epoch % 2];
    if (p->epoch != epoch) {
        const weft_order_facts facts = {.user = l->dataset, .id = id_of, .shard = shard_of};
        for (int64_t i = 0; i < a->count; i++)
            p->item[i].sample = a->sample[i];
        weft_order_shuffle(p->item, a->count, l->config.shuffle, (uint64_t)l->config.seed,
                           (uint64_t)epoch, &facts);
        p->epoch = epoch;
    }
    return p->item;
}

/* Returns the item at `sequence_index` of a queue's endless sequence. */
static weft_item item_at(const weft_loader *l, int bucket, int64_t sequence_index)
{
    bucket_queue *a = &l->queue[bucket];
    const int64_t epoch = sequence_index / a->count;
    return (weft_item){.sample = order_of(l, a, epoch)[sequence_index % a->count].sample,
                       .epoch = epoch,
                       .sequence_index = sequence_index,
                       .bucket = bucket};
}

static bool caption_dropped(const weft_loader *l, uint64_t id, int64_t epoch)
{
    const uint64_t seed = weft_seed_mix((uint64_t)l->config.seed, (uint64_t)epoch);
    return l->config.caption_dropout > 0 &&
           (double)weft_random_uniform(seed, WEFT_RNG_DROP, id) < l->config.caption_dropout;
}

static void set_item(const weft_loader *l, slot *s, int64_t i, const weft_item *item)
{
    s->id[i] = weft_dataset_at(l->dataset, item->sample)->id;
    s->epoch[i] = item->epoch;
    s->sequence_index[i] = item->sequence_index;
    s->sample[i] = item->sample;
    s->caption[i] = "";
    s->replaced[i] = false;
}

/* Fills the slot of plan_step with the items of this rank. */
static void plan_next(weft_loader *l)
{
    slot *s = &l->slots[l->plan_step % l->slot_count];
    const int b = weft_order_turn(l->queue_share, l->queue_batch, l->queues, l->planned);
    const int64_t batch = l->queue[b].size.batch, at = l->planned[b] - batch;
    const int64_t start = l->queue[b].own.first, count = l->queue[b].own.count;
    s->bucket = b;
    s->count = count;
    s->first = start;
    s->taken = s->done = 0;
    s->status = WEFT_OK;
    for (int64_t i = 0; i < count; i++) {
        const weft_item item = item_at(l, b, at + start + i);
        set_item(l, s, i, &item);
    }
    s->step = l->plan_step++;
}

weft_status weft_loader_peek(weft_loader *l, int64_t batches_ahead, int *bucket, weft_item *out,
                             int64_t *count)
{
    int64_t *taken;
    WEFT_TRY(WEFT_NEW(taken, l->queues, "a look ahead"));
    pthread_mutex_lock(&l->lock);
    memcpy(taken, l->returned, (size_t)l->queues * sizeof *taken);
    for (int64_t i = 0; i <= batches_ahead; i++)
        *bucket = weft_order_turn(l->queue_share, l->queue_batch, l->queues, taken);
    if (out) {
        *count = l->queue[*bucket].size.batch;
        for (int64_t i = 0; i < *count; i++)
            out[i] = item_at(l, *bucket, taken[*bucket] - *count + i);
    }
    pthread_mutex_unlock(&l->lock);
    weft_free(taken);
    return WEFT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------ */

/* State of loading one item. */
typedef struct load_state {
    weft_part_bytes bytes;     /* stored bytes of the part being decoded */
    weft_sample_outcome fault; /* outcome of the sample if loading fails */
} load_state;

static weft_status read_bytes(const weft_loader *l, const weft_sample *s, const weft_part_data *p,
                              load_state *r)
{
    r->fault = WEFT_SAMPLE_CORRUPT;
    WEFT_TRY(weft_dataset_read(l->dataset, s, p, l->config.verify, &r->bytes));
    r->fault = WEFT_SAMPLE_UNDECODABLE;
    return WEFT_OK;
}

static weft_status read_clip(const weft_loader *l, const weft_sample *s, const weft_item *item,
                             load_state *r, float *out)
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
    const int64_t frames = frames_of(s, l->config.fps);
    const double fps = l->config.fps > 0 ? l->config.fps : s->fps;
    if (l->config.random_start && fps > 0 && frames > size->frames) {
        const double u = (double)weft_random_uniform(weft_seed_mix(seed, 3), WEFT_RNG_CROP, s->id);
        request.start_seconds = floor(u * (double)(frames - size->frames + 1)) / fps;
    }
    WEFT_TRY(read_bytes(l, s, weft_sample_video(s), r));
    return weft_clip_read_memory(r->bytes.data, r->bytes.bytes, s->key, &request, out);
}

static weft_status read_array(const weft_loader *l, const weft_sample *s, const char *suffix,
                              int64_t floats, load_state *r, float *out)
{
    const weft_part_data *p = weft_sample_part(s, suffix);
    const int64_t header = p->bytes - 4 * floats;
    const bool whole = !p->shape || p->shape->dtype != WEFT_F32 || header < 0 || header > 65536;
    weft_npy npy;
    r->fault = WEFT_SAMPLE_CORRUPT;
    /* f32 is read directly into the destination; the index has the length of the header */
    WEFT_TRY(weft_dataset_read_apart(l->dataset, s, p, l->config.verify, whole ? p->bytes : header,
                                     &r->bytes, out));
    r->fault = WEFT_SAMPLE_UNDECODABLE;
    WEFT_TRY(weft_npy_parse_head(r->bytes.data, r->bytes.bytes, p->bytes, s->key, &npy));
    if (npy.count != floats || (npy.dtype != WEFT_F32 && npy.dtype != WEFT_F16))
        return weft_error(WEFT_MSG_SAMPLE_DAMAGED, WEFT_AT(.file = s->key, .key = suffix),
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

static weft_status read_data(const weft_loader *l, const weft_item *item, load_state *r, float *out)
{
    const weft_sample *s = weft_dataset_at(l->dataset, item->sample);
    return l->part ? read_array(l, s, l->part, l->queue[item->bucket].item_floats, r, out)
                   : read_clip(l, s, item, r, out);
}

static weft_status read_item(const weft_loader *l, slot *s, int64_t i, load_state *r)
{
    const weft_item item = {.sample = s->sample[i],
                            .epoch = s->epoch[i],
                            .sequence_index = s->sequence_index[i],
                            .bucket = s->bucket};
    const weft_sample *sample = weft_dataset_at(l->dataset, item.sample);
    const bucket_queue *a = &l->queue[s->bucket];
    if (!caption_dropped(l, sample->id, item.epoch) && sample->captioned) {
        r->fault = WEFT_SAMPLE_CORRUPT;
        WEFT_TRY(weft_dataset_caption(l->dataset, sample, l->config.verify, &s->text[i]));
        s->caption[i] = s->text[i].data;
    }
    if (!s->data)
        return WEFT_OK;
    WEFT_TRY(read_data(l, &item, r, s->data + i * a->item_floats));
    return l->config.extra ? read_array(l, sample, l->config.extra, l->config.extra_floats, r,
                                        s->extra + i * l->config.extra_floats)
                           : WEFT_OK;
}

/* Decodes item i of a slot. Replaces an unusable sample by the next one of its bucket, or with
 * no_stand_ins leaves zeros. This is deterministic because the same bytes fail on every rank. */
static weft_status decode_item(weft_loader *l, slot *s, int64_t i, load_state *r)
{
    enum { TRIES = 16 };
    const bucket_queue *a = &l->queue[s->bucket];
    weft_status_code status = WEFT_OK;
    for (int t = 0; t < TRIES && t < a->count; t++) {
        status = read_item(l, s, i, r);
        if (status == WEFT_OK || status == WEFT_E_MEMORY)
            return status;
        pthread_mutex_lock(&l->lock);
        if (l->outcome[s->sample[i]].what == WEFT_SAMPLE_USED) /* warn once, not in every epoch */
            weft_warn_error(WEFT_MSG_SAMPLE_SKIPPED, l->config.no_stand_ins
                                                         ? "the sample is skipped"
                                                         : "another sample replaces it");
        l->report.replaced++;
        l->outcome[s->sample[i]].what = (uint8_t)r->fault;
        pthread_mutex_unlock(&l->lock);
        s->replaced[i] = true;
        if (l->config.no_stand_ins) {
            memset(s->data + i * a->item_floats, 0, (size_t)a->item_floats * 4);
            return WEFT_OK;
        }
        int64_t k = 0;
        while (k < a->count && a->sample[k] != s->sample[i])
            k++;
        const weft_item other = {.sample = a->sample[(k + 1) % a->count],
                                 .epoch = s->epoch[i],
                                 .sequence_index = s->sequence_index[i],
                                 .bucket = s->bucket};
        set_item(l, s, i, &other);
        s->replaced[i] = true;
    }
    return weft_error_add(status, "%d samples in a row cannot be used.", TRIES);
}

/* ---- single items -------------------------------------------------------------------------- */

static slot slot_of_one(const weft_item *item, weft_loaded_item *taken, int64_t *epoch,
                        int64_t *sequence_index, float *to, float *extra)
{
    return (slot){.bucket = item->bucket,
                  .count = 1,
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

static void early_free(early *e)
{
    weft_free(e->taken.text.data);
    weft_free(e->one.error);
    weft_free(e->one.data);
    weft_free(e->one.extra);
    weft_free(e);
}

static void drop_early(weft_loader *l)
{
    while (l->early) {
        early *e = l->early;
        l->early = e->next;
        early_free(e);
    }
    l->early_last = &l->early;
}

static early *early_of(const weft_loader *l, const weft_item *item)
{
    early *e = weft_alloc(sizeof *e);
    const int64_t floats = l->queue[item->bucket].item_floats;
    if (!e)
        return NULL;
    float *data = weft_alloc_aligned(floats * 4),
          *extra = l->config.extra ? weft_alloc_aligned(l->config.extra_floats * 4) : NULL;
    e->one = slot_of_one(item, &e->taken, &e->epoch, &e->sequence_index, data, extra);
    e->item = *item;
    if (data && (extra || !l->config.extra)) {
        set_item(l, &e->one, 0, item);
        return e;
    }
    early_free(e);
    return NULL;
}

weft_status weft_loader_prefetch_items(weft_loader *l, const weft_item *item, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        early *e = early_of(l, &item[i]);
        WEFT_TRY(WEFT_ALLOCATED(e, "an item that is decoded ahead"));
        pthread_mutex_lock(&l->lock);
        *l->early_last = e;
        l->early_last = &e->next;
        pthread_cond_signal(&l->work);
        pthread_mutex_unlock(&l->lock);
    }
    return WEFT_OK;
}

/* Removes a prefetched item from the list and returns it; NULL: the item was not prefetched. Waits
 * for a worker that is decoding it. The caller has the lock. */
static early *take_early(weft_loader *l, const weft_item *item)
{
    early **at = &l->early;
    while (*at && ((*at)->item.sample != item->sample ||
                   (*at)->item.sequence_index != item->sequence_index ||
                   (*at)->item.bucket != item->bucket))
        at = &(*at)->next;
    early *e = *at;
    if (!e)
        return NULL;
    *at = e->next;
    if (!e->next)
        l->early_last = at;
    const double began = weft_now();
    while (e->one.done < e->one.taken)
        pthread_cond_wait(&l->ready, &l->lock);
    l->report.waited_ms += (int64_t)(1e3 * (weft_now() - began));
    return e;
}

/* Copies an item that a worker has decoded. */
static weft_status get_decoded(const weft_loader *l, early *e, float *to, float *extra,
                               weft_loaded_item *taken)
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
    load_state r = {.bytes = {0}};
    int64_t epoch, sequence_index;
    pthread_mutex_lock(&l->lock);
    early *e = to ? take_early(l, item) : NULL;
    pthread_mutex_unlock(&l->lock);
    weft_status_code status;
    if (e && e->one.done) {
        status = get_decoded(l, e, to, extra, taken);
    } else { /* not prefetched, or no worker has started it */
        slot one = slot_of_one(item, taken, &epoch, &sequence_index, to, extra);
        set_item(l, &one, 0, item);
        status = decode_item(l, &one, 0, &r);
    }
    weft_free(r.bytes.data);
    if (e)
        early_free(e);
    return status;
}

/* ---- workers ------------------------------------------------------------------------------- */

/* Returns the earliest batch with an item to decode, else a prefetched item to decode. */
static slot *next_work(weft_loader *l)
{
    slot *best = NULL;
    for (int64_t i = 0; i < l->slot_count; i++) {
        slot *s = &l->slots[i];
        if (s->step >= 0 && s->taken < s->count && (!best || s->step < best->step))
            best = s;
    }
    for (early *e = l->early; e && !best; e = e->next)
        if (!e->one.taken)
            best = &e->one;
    return best;
}

static void *work(void *user)
{
    weft_loader *l = user;
    load_state r = {.bytes = {0}};
    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        slot *s = next_work(l);
        if (!s) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        const int64_t item = s->taken++;
        l->busy++;
        pthread_mutex_unlock(&l->lock);
        const weft_status_code status = decode_item(l, s, item, &r);
        pthread_mutex_lock(&l->lock);
        l->busy--;
        s->done++;
        if (status != WEFT_OK && s->status == WEFT_OK) {
            s->status = status;
            weft_free(s->error);
            s->error = weft_error_save();
        }
        pthread_cond_broadcast(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    weft_free(r.bytes.data);
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------- */

/* Returns this rank's items in a batch of a bucket. */
static weft_item_range own_items(const weft_loader_config *config, int bucket, int rank, int ranks)
{
    const weft_bucket *size = (const weft_bucket *)config->buckets.item + bucket;
    weft_item_range own;
    if (config->own)
        return config->own[bucket];
    weft_part(size->batch, ranks, rank, &own.first, &own.count);
    return own;
}

static int64_t floats_of_item(const weft_bucket *size, int64_t channels)
{
    return size->frames * size->height * size->width * channels;
}

/* Returns the bytes of a slot per item, without the item's floats. */
static int64_t item_bytes(void)
{
    const slot *s = NULL;
    return (int64_t)(sizeof *s->id + sizeof *s->epoch + sizeof *s->sequence_index +
                     sizeof *s->text + sizeof *s->sample + sizeof *s->caption +
                     sizeof *s->replaced);
}

weft_loader_plan weft_loader_plan_make(const weft_loader_config *config, int rank, int ranks,
                                       int64_t channels)
{
    weft_loader_plan p = {.slots = config->prefetch + 1};
    for (int i = 0; i < (int)config->buckets.count; i++) {
        const weft_bucket *size = (const weft_bucket *)config->buckets.item + i;
        const int64_t count = own_items(config, i, rank, ranks).count,
                      floats = count * floats_of_item(size, channels);
        p.items = count > p.items ? count : p.items;
        p.floats = floats > p.floats ? floats : p.floats;
    }
    p.extra = config->extra ? p.items * config->extra_floats : 0;
    p.bytes = p.slots * ((p.floats + p.extra) * 4 + p.items * item_bytes());
    return p;
}

static bool allocate_slot(const weft_loader_plan *plan, slot *s)
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

static weft_status allocate(weft_loader *l, const weft_loader_plan *plan)
{
    for (int i = 0; i < l->queues; i++) {
        bucket_queue *a = &l->queue[i];
        for (int e = 0; e < 2; e++) {
            a->cache[e].epoch = -1;
            WEFT_TRY(WEFT_NEW(a->cache[e].item, a->count + 1, "%" PRId64 " samples", a->count));
        }
    }
    WEFT_TRY(WEFT_NEW(l->slots, plan->slots, "%" PRId64 " batches", plan->slots));
    l->slot_count = plan->slots;
    for (int64_t i = 0; i < plan->slots; i++)
        WEFT_TRY(WEFT_ALLOCATED(allocate_slot(plan, &l->slots[i]), "batches of %" PRId64 " floats",
                                plan->floats));
    return WEFT_OK;
}

static weft_status start_workers(weft_loader *l)
{
    WEFT_TRY(WEFT_NEW(l->worker, l->config.threads, "%" PRId64 " threads", l->config.threads));
    for (; l->workers < l->config.threads; l->workers++)
        if (pthread_create(&l->worker[l->workers], NULL, work, l) != 0)
            return weft_no_memory("decoder thread %" PRId64, l->workers);
    return WEFT_OK;
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
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->config = *config;
    l->early_last = &l->early;
    l->config.own = NULL; /* copied to the queues; the caller owns the array */
    l->config.image = NULL;
    l->rank = rank;
    l->part = part;
    l->channels = part ? channels : 3;
    l->queues = (int)config->buckets.count;
    l->queue = weft_calloc(l->queues, sizeof *l->queue);
    l->queue_samples = weft_alloc(l->queues * 8);
    l->queue_batch = weft_alloc(l->queues * 8);
    l->queue_share = weft_alloc(l->queues * 8);
    l->planned = weft_alloc(l->queues * 8);
    l->returned = weft_alloc(l->queues * 8);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(l->queue && l->queue_samples && l->queue_batch && l->queue_share &&
                               l->planned && l->returned,
                           "a loader"));
    for (int i = 0; i < l->queues; i++) {
        const weft_bucket *size = &((const weft_bucket *)config->buckets.item)[i];
        l->queue[i].size = *size;
        l->queue[i].aspect = log((double)size->width / (double)size->height);
        l->queue[i].item_floats = floats_of_item(size, l->channels);
        l->queue[i].own = own_items(config, i, rank, ranks);
    }
    WEFT_GO(weft_dataset_open(config->shards,
                              config->split && *config->split ? config->split : NULL,
                              config->strict, &l->dataset));
    WEFT_GO(deal(l));
    WEFT_GO(compute_shares(l, config->image));
    const weft_loader_plan plan = weft_loader_plan_make(config, rank, ranks, l->channels);
    WEFT_GO(allocate(l, &plan));
    WEFT_GO(start_workers(l));
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
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int64_t i = 0; i < l->workers; i++)
        pthread_join(l->worker[i], NULL);
    drop_early(l);
    for (int64_t i = 0; l->slots && i < l->slot_count; i++) {
        slot *s = &l->slots[i];
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
        weft_free(s->error);
    }
    for (int i = 0; l->queue && i < l->queues; i++) {
        weft_free(l->queue[i].sample);
        weft_free(l->queue[i].cache[0].item);
        weft_free(l->queue[i].cache[1].item);
    }
    weft_free(l->slots);
    weft_free(l->queue);
    weft_free(l->queue_samples);
    weft_free(l->queue_batch);
    weft_free(l->queue_share);
    weft_free(l->planned);
    weft_free(l->returned);
    weft_free(l->worker);
    weft_free(l->outcome);
    weft_dataset_close(l->dataset);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
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
                    weft_dataset_count(l->dataset) * (int64_t)sizeof *l->outcome;
    for (int i = 0; i < l->queues; i++)
        bytes +=
            l->queue[i].count * (int64_t)(sizeof *l->queue[i].sample + 2 * sizeof(weft_order_item));
    return bytes;
}

int64_t weft_loader_bucket_samples(const weft_loader *l, int bucket)
{
    return l->queue_samples[bucket];
}

/* Plans the requested batch and the `prefetch` batches after it. Reuses the slot of the previous
 * batch, which the caller returned with this request. */
static void plan_batches(weft_loader *l)
{
    while (l->plan_step < l->next_step + l->slot_count)
        plan_next(l);
    pthread_cond_broadcast(&l->work);
}

weft_status weft_loader_next(weft_loader *l, weft_batch *batch)
{
    pthread_mutex_lock(&l->lock);
    weft_status_code status = WEFT_OK;
    plan_batches(l);
    slot *s = &l->slots[l->next_step % l->slot_count];
    const double began = weft_now();
    while (status == WEFT_OK && s->done < s->count)
        pthread_cond_wait(&l->ready, &l->lock);
    l->report.waited_ms += (int64_t)(1e3 * (weft_now() - began));
    if (status == WEFT_OK && s->status != WEFT_OK)
        status = weft_error_restore(s->error);
    if (status == WEFT_OK) {
        *batch = (weft_batch){.step = s->step,
                              .bucket = s->bucket,
                              .count = s->count,
                              .first = s->first,
                              .id = s->id,
                              .epoch = s->epoch,
                              .sequence_index = s->sequence_index,
                              .sample = s->sample,
                              .caption = s->caption,
                              .replaced = s->replaced};
        if (l->part)
            batch->part = s->data;
        else
            batch->video = s->data;
        batch->extra = l->config.extra ? s->extra : NULL;
        l->returned[s->bucket] += l->queue_batch[s->bucket];
        l->next_step++;
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* ---- state --------------------------------------------------------------------------------- */

json_t *weft_loader_state(const weft_loader *l)
{
    json_t *taken = json_array();
    char fingerprint[32];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, l->fingerprint);
    for (int i = 0; i < l->queues; i++)
        json_array_append_new(taken, json_integer(l->returned[i]));
    return json_pack("{s:I, s:I, s:s, s:o}", "step", (json_int_t)l->next_step, "seed",
                     (json_int_t)l->config.seed, "samples", fingerprint, "taken", taken);
}

weft_status weft_loader_restore(weft_loader *l, const json_t *state, const char *where)
{
    int64_t step, seed;
    const char *fingerprint;
    char own[32], old[32];
    const json_t *taken = json_object_get(state, "taken");
    WEFT_TRY(weft_json_get_i64(state, "step", where, &step));
    WEFT_TRY(weft_json_get_i64(state, "seed", where, &seed));
    WEFT_TRY(weft_json_get_string(state, "samples", where, &fingerprint));
    snprintf(own, sizeof own, "%016" PRIx64, l->fingerprint);
    snprintf(old, sizeof old, "%016" PRIx64, l->listed);
    if (seed != l->config.seed || (strcmp(fingerprint, own) && strcmp(fingerprint, old)) ||
        (int)json_array_size(taken) != l->queues || step < 0)
        return weft_error(WEFT_MSG_DATA_CHANGED, WEFT_AT(.file = where),
                          "the checkpoint is of other data (shards, clip sizes, batch or seed "
                          "changed). Restore them, or use a new output folder.");
    for (int i = 0; i < l->queues; i++) {
        const json_t *count = json_array_get(taken, (size_t)i);
        if (!json_is_integer(count) || json_integer_value(count) < 0)
            return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "taken"),
                              "the number of samples of bucket %d is missing or negative", i);
    }
    int64_t batches = 0; /* sum over the buckets */
    for (int i = 0; i < l->queues; i++) {
        const int64_t count = json_integer_value(json_array_get(taken, (size_t)i));
        batches += count % l->queue_batch[i] ? -step - 1 : count / l->queue_batch[i];
        if (batches < 0 || batches > step)
            break;
    }
    if (batches != step)
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = where, .key = "taken"),
                          "the numbers of samples do not add up to %" PRId64 " batches", step);
    pthread_mutex_lock(&l->lock);
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i].taken = l->slots[i].count; /* no worker starts another item */
    for (early *e = l->early; e; e = e->next)
        e->one.taken = e->one.count;
    while (l->busy > 0)
        pthread_cond_wait(&l->ready, &l->lock);
    drop_early(l);
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i].step = -1;
    for (int i = 0; i < l->queues; i++)
        l->planned[i] = l->returned[i] = json_integer_value(json_array_get(taken, (size_t)i));
    l->plan_step = l->next_step = step;
    pthread_mutex_unlock(&l->lock);
    return WEFT_OK;
}
