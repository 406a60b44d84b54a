/* Plan, decode ahead, hand over.
 *
 *   plan:   step -> (bucket, positions) -> samples          sequential, in the caller's thread
 *   slots:  a ring of `prefetch` batches; step s lives in slot s mod prefetch
 *   workers take the next undecoded item of the earliest planned batch
 *
 * A slot's items are written by workers without the lock; `done` counts them under it, so a full
 * slot is safe to read. */
#include "data/loader.h"

#include "base/log.h"
#include "base/rng.h"
#include "data/shuffle.h"
#include "format/npy.h"
#include "graph/mesh.h"
#include "video/clip.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const weft_key bucket_keys[] = {
    {"batch", WEFT_KEY_I64, offsetof(weft_bucket, batch), "0", "clips",
     "clips per step, over all ranks; 0: as many as the stage's tokens and load allow", .min = 0,
     .max = 65536},
    {"frames", WEFT_KEY_I64, offsetof(weft_bucket, frames), NULL, "frames", "clip length", .min = 1,
     .max = 65536},
    {"height", WEFT_KEY_I64, offsetof(weft_bucket, height), NULL, "pixels", "clip height", .min = 1,
     .max = 16384},
    {"width", WEFT_KEY_I64, offsetof(weft_bucket, width), NULL, "pixels", "clip width", .min = 1,
     .max = 16384},
};
const weft_section weft_bucket_section = {"buckets",
                                          "clip sizes that are trained on; each sample goes to the "
                                          "nearest in aspect that it fills, then the longest",
                                          sizeof(weft_bucket), bucket_keys,
                                          WEFT_COUNT(bucket_keys)};

typedef struct permutation {
    int64_t epoch; /* -1: none yet */
    weft_order_item *item;
} permutation;

typedef struct lane { /* a bucket and its samples */
    weft_bucket size;
    weft_item_range own; /* of a batch: what this rank gets */
    double aspect;       /* logarithm of width / height */
    int64_t *sample;     /* in order of the dataset */
    int64_t count;
    int64_t item_floats;
    permutation cache[2]; /* of this epoch and the next */
} lane;

typedef struct fate { /* eight bytes: there is one for each sample of the set */
    int32_t frames;
    int16_t lane; /* of a used one; -1: none */
    uint8_t what; /* weft_sample_fate */
    bool skipped; /* it counts as used and never comes */
} fate;

typedef struct slot {
    int64_t step; /* -1: empty */
    int bucket;
    int64_t items; /* room */
    int64_t count, first;
    int64_t taken, done; /* items handed to workers, items finished */
    weft_status_code status;
    char *message; /* heap, when status is set */
    uint64_t *id;
    int64_t *epoch, *place, *sample;
    const char **caption;
    weft_part_bytes *text; /* that `caption` points into */
    bool *replaced;
    float *data, *extra;
} slot;

/* An item that somebody will take by itself (weft_loader_want), decoded before it is asked for. */
typedef struct early {
    struct early *next;
    weft_item item; /* as it is asked for: another may stand in for it */
    weft_taken taken;
    int64_t epoch, place;
    slot one;
} early;

struct weft_loader {
    weft_loader_config config;
    weft_dataset *dataset;
    int rank;
    const char *part;
    int64_t channels;
    lane *lane;
    int lanes;
    int64_t *lane_samples, *lane_batch;
    int64_t *lane_share;         /* what a lane's turns are in proportion to */
    int64_t *planned, *returned; /* samples taken per lane: by the plan, by next() */
    int64_t plan_step, next_step;
    weft_loader_report report; /* replaced and waited_ms; the rest is summed up from `fate` */
    fate *fate;                /* of each sample; written under the lock once workers run */
    uint64_t fingerprint;      /* of samples, batches and what the order depends on */
    uint64_t listed;           /* the same as it was written before: by the order of listing */

    slot *slots;
    int64_t slot_count;
    early *early, **early_last; /* wanted and not taken, oldest first */
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t *worker;
    int64_t workers, busy;
    bool quit;
};

/* ---- dealing samples to buckets ------------------------------------------------------------ */

/* Frames of a clip at the loader's rate. */
static int64_t frames_of(const weft_sample *s, double fps)
{
    if (fps > 0 && s->fps > 0)
        return (int64_t)floor((double)(s->frames - 1) / s->fps * fps + 1e-6) + 1;
    return s->frames;
}

/* Of the buckets that the clip fills those nearest in aspect (5 % more is as near: sizes are
 * rounded), of these the longest, then the nearest, then the largest. -1: none. */
static int choose_lane(const weft_loader *l, int64_t frames, int64_t w, int64_t h,
                       bool *long_enough)
{
    int best = -1;
    double best_aspect = 0, nearest = INFINITY;
    const double own = log((double)w / (double)h);
    bool moves = false; /* a clip goes to a bucket of pictures only where it fills no other */
    *long_enough = false;
    for (int i = 0; i < l->lanes; i++) {
        const weft_bucket *b = &l->lane[i].size;
        moves |= b->frames > 1 && frames >= b->frames && w >= b->width && h >= b->height;
    }
    for (int i = 0; i < l->lanes; i++) {
        const weft_bucket *b = &l->lane[i].size;
        if (frames >= b->frames && w >= b->width && h >= b->height && (!moves || b->frames > 1))
            nearest = fmin(nearest, fabs(own - l->lane[i].aspect));
    }
    for (int i = 0; i < l->lanes; i++) {
        const weft_bucket *b = &l->lane[i].size;
        if (frames < b->frames)
            continue;
        *long_enough = true;
        if (w < b->width || h < b->height)
            continue;
        const double aspect = fabs(own - l->lane[i].aspect);
        if (aspect > nearest + 0.05 || (moves && b->frames == 1))
            continue;
        const weft_bucket *c = best >= 0 ? &l->lane[best].size : NULL;
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

static weft_sample_fate deal_part(const weft_loader *l, const weft_sample *s, fate *f)
{
    const weft_part_data *p = weft_sample_part(s, l->part);
    if (!p || (l->config.extra && !weft_sample_part(s, l->config.extra)))
        return WEFT_SAMPLE_NO_PART;
    const weft_part_shape *shape = p->shape;
    if (!shape || (shape->dtype != WEFT_F32 && shape->dtype != WEFT_F16))
        return WEFT_SAMPLE_UNREADABLE;
    f->frames = shape->rank ? shape->dim[0] : 0;
    for (int i = 0; i < l->lanes && shape->rank == 4; i++) {
        const weft_bucket *b = &l->lane[i].size;
        if (shape->dim[0] == b->frames && shape->dim[1] == b->height && shape->dim[2] == b->width &&
            shape->dim[3] == l->channels)
            f->lane = (int16_t)i;
    }
    return f->lane < 0 ? WEFT_SAMPLE_OTHER_SIZE : WEFT_SAMPLE_USED;
}

static weft_sample_fate deal_video(const weft_loader *l, const weft_sample *s, fate *f)
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
    f->lane = (int16_t)choose_lane(l, frames, s->width, s->height, &long_enough);
    return f->lane >= 0  ? WEFT_SAMPLE_USED
           : long_enough ? WEFT_SAMPLE_TOO_SMALL
                         : WEFT_SAMPLE_TOO_SHORT;
}

static bool is_windowed(const weft_loader *l, const lane *a)
{
    return l->config.shuffle > 0 && l->config.shuffle < a->count;
}

static void warn_of_repetition(const lane *a)
{
    if (a->count > 0 && a->size.batch > a->count)
        weft_warn("the bucket of %lldx%lldx%lld has %lld samples and a batch of %lld: samples come "
                  "more than once in a step",
                  (long long)a->size.frames, (long long)a->size.height, (long long)a->size.width,
                  (long long)a->count, (long long)a->size.batch);
}

/* The fate of every sample, and how many each lane has. */
static void deal_all(weft_loader *l, int64_t count, int64_t *usable)
{
    for (int64_t i = 0; i < count; i++) {
        const weft_sample *s = weft_dataset_at(l->dataset, i);
        fate *f = &l->fate[i];
        f->lane = -1;
        f->what = (uint8_t)(l->part ? deal_part(l, s, f) : deal_video(l, s, f));
        *usable += f->lane >= 0;
        f->skipped = f->lane >= 0 && l->config.skip && l->config.skip(l->config.skip_user, s);
        if (f->lane >= 0)
            l->lane[f->lane].count += !f->skipped;
    }
}

static weft_status list_lanes(weft_loader *l, int64_t count)
{
    for (int i = 0; i < l->lanes; i++) {
        lane *a = &l->lane[i];
        a->sample = weft_alloc(a->count * (int64_t)sizeof *a->sample);
        if (!a->sample)
            return weft_fail(WEFT_E_MEMORY, "out of memory for %lld samples", (long long)a->count);
        a->count = 0;
    }
    for (int64_t i = 0; i < count; i++) {
        const fate *f = &l->fate[i];
        if (f->lane >= 0 && !f->skipped)
            l->lane[f->lane].sample[l->lane[f->lane].count++] = i;
    }
    return WEFT_OK;
}

/* What the turns of lanes go by: their samples, or with a share of images those of each kind
 * weighted so that the kinds come in that proportion. */
static weft_status share_turns(weft_loader *l, const bool *image)
{
    enum { FINE = 1 << 20 }; /* of a share */
    int64_t of[2] = {0};
    for (int i = 0; i < l->lanes; i++) {
        l->lane_share[i] = l->lane_samples[i];
        of[image && image[i]] += l->lane_samples[i];
    }
    for (int kind = 0; image && kind < 2; kind++)
        if (!of[kind] && (kind ? l->config.images > 0 : l->config.images < 1))
            return weft_fail(WEFT_E_CONFIG,
                             "%s: %g of the samples are to be images (buckets of one frame), and "
                             "there are no %s",
                             l->config.shards, l->config.images, kind ? "images" : "clips");
    for (int i = 0; image && i < l->lanes; i++) {
        const double share = image[i] ? l->config.images : 1 - l->config.images,
                     part = (double)l->lane_samples[i] / (double)(of[image[i]] + !of[image[i]]);
        const int64_t fine = (int64_t)ceil(share * part * FINE);
        l->lane_share[i] = share > 0 && l->lane_samples[i] ? fine : 0;
    }
    return WEFT_OK;
}

static weft_status deal(weft_loader *l)
{
    const int64_t count = weft_dataset_count(l->dataset);
    l->fate = weft_alloc((count + 1) * (int64_t)sizeof *l->fate);
    if (!l->fate)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld samples", (long long)count);
    int64_t usable = 0;
    deal_all(l, count, &usable);
    WEFT_TRY(list_lanes(l, count));
    for (int i = 0; i < l->lanes; i++) {
        l->lane_samples[i] = l->lane[i].count;
        l->lane_batch[i] = l->lane[i].size.batch;
        l->fingerprint = weft_seed_mix(l->fingerprint, (uint64_t)l->lane[i].size.batch);
        l->listed = weft_seed_mix(l->listed, (uint64_t)l->lane[i].size.batch);
        uint64_t listed = l->listed, sum = 0;
        for (int64_t k = 0; k < l->lane[i].count; k++) {
            const uint64_t id = weft_dataset_at(l->dataset, l->lane[i].sample[k])->id;
            listed = weft_seed_mix(listed, id);
            sum += weft_seed_mix(0, id);
        }
        l->listed = listed;
        l->fingerprint = weft_seed_mix(l->fingerprint, sum);
        if (is_windowed(l, &l->lane[i])) /* then the order depends on the shards too */
            l->fingerprint =
                weft_seed_mix(weft_seed_mix(l->fingerprint, listed), (uint64_t)l->config.shuffle);
        if (l->rank == 0 && !l->config.no_stand_ins)
            warn_of_repetition(&l->lane[i]);
    }
    if (usable)
        return WEFT_OK;
    weft_buf why = {0};
    weft_loader_explain(l, &why);
    const weft_status_code status =
        weft_fail(WEFT_E_ARG, "%s: none of %lld samples fits a bucket\n%s", l->config.shards,
                  (long long)count, why.data ? why.data : "");
    weft_buf_free(&why);
    return status;
}

/* ---- accounting ---------------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
} fates[WEFT_SAMPLE_FATES] = {
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
    weft_loader *locked = (weft_loader *)l; /* only its lock */
    pthread_mutex_lock(&locked->lock);
    weft_loader_report r = l->report;
    r.damaged_shards = weft_dataset_damaged(l->dataset);
    r.all_samples = weft_dataset_count(l->dataset);
    for (int64_t i = 0; i < r.all_samples; i++) {
        const fate *f = &l->fate[i];
        r.samples[f->what]++;
        r.frames[f->what] += f->frames;
        r.all_frames += f->frames;
        if (f->what == WEFT_SAMPLE_USED)
            r.window_frames += l->lane[f->lane].size.frames;
    }
    r.behind_frames = r.frames[WEFT_SAMPLE_USED] - r.window_frames;
    for (int64_t i = 0; i < l->slot_count; i++)
        r.ahead += l->slots[i].step >= l->next_step && l->slots[i].done == l->slots[i].count;
    for (const early *e = l->early; e; e = e->next) {
        r.wanted++;
        r.early += e->one.done;
    }
    pthread_mutex_unlock(&locked->lock);
    return r;
}

weft_sample_fate weft_loader_fate(const weft_loader *l, int64_t sample)
{
    weft_loader *locked = (weft_loader *)l;
    pthread_mutex_lock(&locked->lock);
    const weft_sample_fate what = l->fate[sample].what;
    pthread_mutex_unlock(&locked->lock);
    return what;
}

void weft_loader_mark(weft_loader *l, int64_t sample, weft_sample_fate what)
{
    pthread_mutex_lock(&l->lock);
    l->fate[sample].what = (uint8_t)what;
    pthread_mutex_unlock(&l->lock);
}

void weft_loader_explain(const weft_loader *l, weft_buf *out)
{
    const weft_loader_report r = weft_loader_get_report(l);
    weft_buf_printf(out, "%lld of %lld samples and %lld of %lld %s are used in an epoch",
                    (long long)r.samples[WEFT_SAMPLE_USED], (long long)r.all_samples,
                    (long long)r.window_frames, (long long)r.all_frames,
                    l->part ? "latent frames" : "frames");
    if (r.behind_frames)
        weft_buf_printf(out, "; %lld frames of used samples lie outside of their windows",
                        (long long)r.behind_frames);
    weft_buf_printf(out, "\n");
    for (int i = 0; i < l->lanes && l->lanes > 1; i++) {
        const weft_bucket *b = &l->lane[i].size;
        int64_t inside = 0;
        for (int64_t k = 0; k < r.all_samples; k++)
            inside += l->fate[k].lane == i;
        weft_buf_printf(out, "%lld of %lld samples are in bucket %d of %lldx%lldx%lld%s\n",
                        (long long)inside, (long long)r.all_samples, i, (long long)b->frames,
                        (long long)b->height, (long long)b->width,
                        inside ? "" : ": it never has a turn");
    }
    for (int i = WEFT_SAMPLE_USED + 1; i < WEFT_SAMPLE_FATES; i++)
        if (r.samples[i])
            weft_buf_printf(out, "%lld of %lld samples %s (%lld frames)\n", (long long)r.samples[i],
                            (long long)r.all_samples, fates[i].text, (long long)r.frames[i]);
    if (r.damaged_shards)
        weft_buf_printf(out, "%lld shards are damaged; what was lost in them is in no count\n",
                        (long long)r.damaged_shards);
}

json_t *weft_loader_account(const weft_loader *l)
{
    const weft_loader_report r = weft_loader_get_report(l);
    json_t *dropped = json_object(), *list = json_array();
    for (int i = WEFT_SAMPLE_USED + 1; i < WEFT_SAMPLE_FATES; i++)
        json_object_set_new(dropped, fates[i].name,
                            json_pack("{s:I, s:I}", "samples", (json_int_t)r.samples[i], "frames",
                                      (json_int_t)r.frames[i]));
    for (int64_t i = 0; i < r.all_samples; i++) {
        const weft_sample_fate what = weft_loader_fate(l, i);
        if (what != WEFT_SAMPLE_USED)
            json_array_append_new(
                list,
                json_pack("{s:s, s:s, s:s, s:I}", "key", weft_dataset_at(l->dataset, i)->key,
                          "shard",
                          weft_dataset_shard(l->dataset, weft_dataset_at(l->dataset, i)->shard),
                          "reason", fates[what].name, "frames", (json_int_t)l->fate[i].frames));
    }
    return json_pack("{s:I, s:I, s:{s:I, s:I, s:I}, s:o, s:I, s:o}", "samples",
                     (json_int_t)r.all_samples, "frames", (json_int_t)r.all_frames, "used",
                     "samples", (json_int_t)r.samples[WEFT_SAMPLE_USED], "frames_in_windows",
                     (json_int_t)r.window_frames, "frames_outside", (json_int_t)r.behind_frames,
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

/* The order of `epoch` in a lane. Two epochs are kept: batches reach over the border of one to the
 * next. */
static const weft_order_item *order_of(const weft_loader *l, lane *a, int64_t epoch)
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

/* What stands at `place` of a lane's walk through the epochs. */
static weft_item item_at(const weft_loader *l, int bucket, int64_t place)
{
    lane *a = &l->lane[bucket];
    const int64_t epoch = place / a->count;
    return (weft_item){.sample = order_of(l, a, epoch)[place % a->count].sample,
                       .epoch = epoch,
                       .place = place,
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
    s->place[i] = item->place;
    s->sample[i] = item->sample;
    s->caption[i] = "";
    s->replaced[i] = false;
}

/* Fills the slot of plan_step with the items of this rank. */
static void plan_next(weft_loader *l)
{
    slot *s = &l->slots[l->plan_step % l->slot_count];
    const int b = weft_order_turn(l->lane_share, l->lane_batch, l->lanes, l->planned);
    const int64_t batch = l->lane[b].size.batch, at = l->planned[b] - batch;
    const int64_t start = l->lane[b].own.first, count = l->lane[b].own.count;
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

weft_status weft_loader_peek(weft_loader *l, int64_t ahead, int *bucket, weft_item *out,
                             int64_t *count)
{
    int64_t *taken = weft_alloc(l->lanes * (int64_t)sizeof *taken);
    if (!taken)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a look ahead");
    pthread_mutex_lock(&l->lock);
    memcpy(taken, l->returned, (size_t)l->lanes * sizeof *taken);
    for (int64_t i = 0; i <= ahead; i++)
        *bucket = weft_order_turn(l->lane_share, l->lane_batch, l->lanes, taken);
    if (out) {
        *count = l->lane[*bucket].size.batch;
        for (int64_t i = 0; i < *count; i++)
            out[i] = item_at(l, *bucket, taken[*bucket] - *count + i);
    }
    pthread_mutex_unlock(&l->lock);
    weft_free(taken);
    return WEFT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------ */

/* Where reading stopped: what it means for the sample. */
typedef struct reading {
    weft_part_bytes bytes; /* of the part that is decoded */
    weft_sample_fate fault;
} reading;

static weft_status read_bytes(const weft_loader *l, const weft_sample *s, const weft_part_data *p,
                              reading *r)
{
    r->fault = WEFT_SAMPLE_CORRUPT;
    WEFT_TRY(weft_dataset_read(l->dataset, s, p, l->config.verify, &r->bytes));
    r->fault = WEFT_SAMPLE_UNDECODABLE;
    return WEFT_OK;
}

static weft_status read_clip(const weft_loader *l, const weft_sample *s, const weft_item *item,
                             reading *r, float *out)
{
    const weft_bucket *size = &l->lane[item->bucket].size;
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
                              int64_t floats, reading *r, float *out)
{
    const weft_part_data *p = weft_sample_part(s, suffix);
    const int64_t header = p->bytes - 4 * floats;
    const bool whole = !p->shape || p->shape->dtype != WEFT_F32 || header < 0 || header > 65536;
    weft_npy npy;
    r->fault = WEFT_SAMPLE_CORRUPT;
    /* f32 is read to where it is wanted: the index knows how long the header must be */
    WEFT_TRY(weft_dataset_read_apart(l->dataset, s, p, l->config.verify, whole ? p->bytes : header,
                                     &r->bytes, out));
    r->fault = WEFT_SAMPLE_UNDECODABLE;
    WEFT_TRY(weft_npy_parse_head(r->bytes.data, r->bytes.bytes, p->bytes, s->key, &npy));
    if (npy.count != floats || (npy.dtype != WEFT_F32 && npy.dtype != WEFT_F16))
        return weft_fail(WEFT_E_FORMAT, "%s.%s: not f32 or f16 of the bucket's size", s->key,
                         suffix);
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

static weft_status read_data(const weft_loader *l, const weft_item *item, reading *r, float *out)
{
    const weft_sample *s = weft_dataset_at(l->dataset, item->sample);
    return l->part ? read_array(l, s, l->part, l->lane[item->bucket].item_floats, r, out)
                   : read_clip(l, s, item, r, out);
}

static weft_status read_item(const weft_loader *l, slot *s, int64_t i, reading *r)
{
    const weft_item item = {
        .sample = s->sample[i], .epoch = s->epoch[i], .place = s->place[i], .bucket = s->bucket};
    const weft_sample *sample = weft_dataset_at(l->dataset, item.sample);
    const lane *a = &l->lane[s->bucket];
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

/* A sample that cannot be used is replaced by the next one of its bucket: deterministic, since the
 * same bytes fail everywhere. */
static weft_status decode_item(weft_loader *l, slot *s, int64_t i, reading *r)
{
    enum { TRIES = 16 };
    const lane *a = &l->lane[s->bucket];
    weft_status_code status = WEFT_OK;
    for (int t = 0; t < TRIES && t < a->count; t++) {
        status = read_item(l, s, i, r);
        if (status == WEFT_OK || status == WEFT_E_MEMORY)
            return status;
        pthread_mutex_lock(&l->lock);
        if (l->fate[s->sample[i]].what == WEFT_SAMPLE_USED) /* told once, not in every epoch */
            weft_warn("%s; %s", weft_error_message(),
                      l->config.no_stand_ins
                          ? "the sample is left out"
                          : "another sample takes its place, whenever its turn comes");
        l->report.replaced++;
        l->fate[s->sample[i]].what = (uint8_t)r->fault;
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
                                 .place = s->place[i],
                                 .bucket = s->bucket};
        set_item(l, s, i, &other);
        s->replaced[i] = true;
    }
    return weft_fail_context(status, "%d samples in a row cannot be used", TRIES);
}

/* ---- items by themselves ------------------------------------------------------------------- */

static slot slot_of_one(const weft_item *item, weft_taken *taken, int64_t *epoch, int64_t *place,
                        float *to, float *extra)
{
    return (slot){.bucket = item->bucket,
                  .count = 1,
                  .id = &taken->id,
                  .epoch = epoch,
                  .place = place,
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
    weft_free(e->one.message);
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
    const int64_t floats = l->lane[item->bucket].item_floats;
    if (!e)
        return NULL;
    float *data = weft_alloc_aligned(floats * 4),
          *extra = l->config.extra ? weft_alloc_aligned(l->config.extra_floats * 4) : NULL;
    e->one = slot_of_one(item, &e->taken, &e->epoch, &e->place, data, extra);
    e->item = *item;
    if (data && (extra || !l->config.extra)) {
        set_item(l, &e->one, 0, item);
        return e;
    }
    early_free(e);
    return NULL;
}

weft_status weft_loader_want(weft_loader *l, const weft_item *item, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        early *e = early_of(l, &item[i]);
        if (!e)
            return weft_fail(WEFT_E_MEMORY, "out of memory for an item that is decoded ahead");
        pthread_mutex_lock(&l->lock);
        *l->early_last = e;
        l->early_last = &e->next;
        pthread_cond_signal(&l->work);
        pthread_mutex_unlock(&l->lock);
    }
    return WEFT_OK;
}

/* Under the lock: out of the list if it is there, when no worker is at it any more. */
static early *take_early(weft_loader *l, const weft_item *item)
{
    early **at = &l->early;
    while (*at && ((*at)->item.sample != item->sample || (*at)->item.place != item->place ||
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

/* What a worker has decoded. */
static weft_status hand_over(const weft_loader *l, early *e, float *to, float *extra,
                             weft_taken *taken)
{
    if (e->one.status != WEFT_OK)
        return weft_fail(e->one.status, "%s",
                         e->one.message ? e->one.message : "a sample does not decode");
    memcpy(to, e->one.data, (size_t)l->lane[e->one.bucket].item_floats * 4);
    if (extra)
        memcpy(extra, e->one.extra, (size_t)l->config.extra_floats * 4);
    const weft_part_bytes text = taken->text;
    *taken = e->taken; /* the caption points into the text, which goes along */
    e->taken.text = text;
    return WEFT_OK;
}

weft_status weft_loader_take(weft_loader *l, const weft_item *item, float *to, float *extra,
                             weft_taken *taken)
{
    reading r = {.bytes = {0}};
    int64_t epoch, place;
    pthread_mutex_lock(&l->lock);
    early *e = to ? take_early(l, item) : NULL;
    pthread_mutex_unlock(&l->lock);
    weft_status_code status;
    if (e && e->one.done) {
        status = hand_over(l, e, to, extra, taken);
    } else { /* nobody wanted it before, or no worker has come to it */
        slot one = slot_of_one(item, taken, &epoch, &place, to, extra);
        set_item(l, &one, 0, item);
        status = decode_item(l, &one, 0, &r);
    }
    weft_free(r.bytes.data);
    if (e)
        early_free(e);
    return status;
}

/* ---- workers ------------------------------------------------------------------------------- */

/* The earliest batch with an item that nobody has taken, else what is wanted by itself. */
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
    reading r = {.bytes = {0}};
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
            weft_free(s->message);
            s->message = weft_strdup(weft_error_message());
        }
        pthread_cond_broadcast(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    weft_free(r.bytes.data);
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------- */

static weft_status allocate(weft_loader *l)
{
    int64_t items = 0, floats = 0;
    for (int i = 0; i < l->lanes; i++) {
        lane *a = &l->lane[i];
        const int64_t count = a->own.count;
        items = count > items ? count : items;
        floats = count * a->item_floats > floats ? count * a->item_floats : floats;
        for (int e = 0; e < 2; e++) {
            a->cache[e].epoch = -1;
            a->cache[e].item = weft_alloc((a->count + 1) * (int64_t)sizeof(weft_order_item));
            if (!a->cache[e].item)
                goto fail;
        }
    }
    l->slot_count = l->config.prefetch + 1; /* one is in the caller's hands */
    l->slots = weft_alloc(l->slot_count * (int64_t)sizeof *l->slots);
    if (!l->slots)
        goto fail;
    for (int64_t i = 0; i < l->slot_count; i++) {
        slot *s = &l->slots[i];
        s->step = -1;
        s->id = weft_alloc(items * (int64_t)sizeof *s->id);
        s->items = items;
        s->epoch = weft_alloc(items * (int64_t)sizeof *s->epoch);
        s->place = weft_alloc(items * (int64_t)sizeof *s->place);
        s->text = weft_alloc(items * (int64_t)sizeof *s->text);
        s->sample = weft_alloc(items * (int64_t)sizeof *s->sample);
        s->caption = weft_alloc(items * (int64_t)sizeof *s->caption);
        s->replaced = weft_alloc(items * (int64_t)sizeof *s->replaced);
        s->data = weft_alloc_aligned(floats * 4);
        s->extra = weft_alloc_aligned(l->config.extra ? items * l->config.extra_floats * 4 : 0);
        if (!s->id || !s->epoch || !s->place || !s->text || !s->sample || !s->caption ||
            !s->replaced || !s->data || !s->extra)
            goto fail;
    }
    return WEFT_OK;
fail:
    return weft_fail(WEFT_E_MEMORY, "out of memory for %lld batches of %lld floats",
                     (long long)l->slot_count, (long long)floats);
}

static weft_status start_workers(weft_loader *l)
{
    l->worker = weft_alloc(l->config.threads * (int64_t)sizeof *l->worker);
    if (!l->worker)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld threads",
                         (long long)l->config.threads);
    for (; l->workers < l->config.threads; l->workers++)
        if (pthread_create(&l->worker[l->workers], NULL, work, l) != 0)
            return weft_fail(WEFT_E_MEMORY, "cannot start decoder thread %lld",
                             (long long)l->workers);
    return WEFT_OK;
}

weft_status weft_loader_open(const weft_loader_config *config, int rank, int ranks,
                             const char *part, int64_t channels, weft_loader **loader)
{
    if (config->buckets.count < 1 || config->buckets.count > INT16_MAX)
        return weft_fail(
            WEFT_E_CONFIG,
            "data.buckets: %lld buckets {batch, frames, height, width}; 1 to %d can be",
            (long long)config->buckets.count, INT16_MAX);
    weft_loader *l = weft_alloc(sizeof *l);
    if (!l)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a loader");
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    l->config = *config;
    l->early_last = &l->early;
    l->config.own = NULL; /* are the caller's */
    l->config.image = NULL;
    l->rank = rank;
    l->part = part;
    l->channels = part ? channels : 3;
    l->lanes = (int)config->buckets.count;
    l->lane = weft_alloc(l->lanes * (int64_t)sizeof *l->lane);
    l->lane_samples = weft_alloc(l->lanes * 8);
    l->lane_batch = weft_alloc(l->lanes * 8);
    l->lane_share = weft_alloc(l->lanes * 8);
    l->planned = weft_alloc(l->lanes * 8);
    l->returned = weft_alloc(l->lanes * 8);
    weft_status_code status = WEFT_OK;
    if (!l->lane || !l->lane_samples || !l->lane_batch || !l->lane_share || !l->planned ||
        !l->returned) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory for a loader");
        goto out;
    }
    for (int i = 0; i < l->lanes; i++) {
        const weft_bucket *size = &((const weft_bucket *)config->buckets.item)[i];
        l->lane[i].size = *size;
        l->lane[i].aspect = log((double)size->width / (double)size->height);
        l->lane[i].item_floats =
            l->lane[i].size.frames * l->lane[i].size.height * l->lane[i].size.width * l->channels;
        weft_item_range *own = &l->lane[i].own;
        weft_part(l->lane[i].size.batch, ranks, rank, &own->first, &own->count);
        if (config->own)
            *own = config->own[i];
    }
    WEFT_GO(weft_dataset_open(config->shards,
                              config->split && *config->split ? config->split : NULL,
                              config->strict, &l->dataset));
    WEFT_GO(deal(l));
    WEFT_GO(share_turns(l, config->image));
    WEFT_GO(allocate(l));
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
        weft_free(s->place);
        weft_free(s->sample);
        for (int64_t k = 0; s->text && k < s->items; k++)
            weft_free(s->text[k].data);
        weft_free(s->text);
        weft_free(s->caption);
        weft_free(s->replaced);
        weft_free(s->data);
        weft_free(s->extra);
        weft_free(s->message);
    }
    for (int i = 0; l->lane && i < l->lanes; i++) {
        weft_free(l->lane[i].sample);
        weft_free(l->lane[i].cache[0].item);
        weft_free(l->lane[i].cache[1].item);
    }
    weft_free(l->slots);
    weft_free(l->lane);
    weft_free(l->lane_samples);
    weft_free(l->lane_batch);
    weft_free(l->lane_share);
    weft_free(l->planned);
    weft_free(l->returned);
    weft_free(l->worker);
    weft_free(l->fate);
    weft_dataset_close(l->dataset);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->lock);
    weft_free(l);
}

/* ---- handing over -------------------------------------------------------------------------- */

const weft_dataset *weft_loader_dataset(const weft_loader *l)
{
    return l->dataset;
}

int64_t weft_loader_resident(const weft_loader *l)
{
    int64_t bytes = weft_dataset_resident(l->dataset) +
                    weft_dataset_count(l->dataset) * (int64_t)sizeof *l->fate;
    for (int i = 0; i < l->lanes; i++)
        bytes +=
            l->lane[i].count * (int64_t)(sizeof *l->lane[i].sample + 2 * sizeof(weft_order_item));
    return bytes;
}

int64_t weft_loader_bucket_samples(const weft_loader *l, int bucket)
{
    return l->lane_samples[bucket];
}

/* Plans the batch that is asked for and `prefetch` behind it: the one before, which the caller had,
 * is given back by asking. */
static void plan_ahead(weft_loader *l)
{
    while (l->plan_step < l->next_step + l->slot_count)
        plan_next(l);
    pthread_cond_broadcast(&l->work);
}

weft_status weft_loader_next(weft_loader *l, weft_batch *batch)
{
    pthread_mutex_lock(&l->lock);
    weft_status_code status = WEFT_OK;
    plan_ahead(l);
    slot *s = &l->slots[l->next_step % l->slot_count];
    const double began = weft_now();
    while (status == WEFT_OK && s->done < s->count)
        pthread_cond_wait(&l->ready, &l->lock);
    l->report.waited_ms += (int64_t)(1e3 * (weft_now() - began));
    if (status == WEFT_OK && s->status != WEFT_OK)
        status = weft_fail(s->status, "%s", s->message ? s->message : "a sample does not decode");
    if (status == WEFT_OK) {
        *batch = (weft_batch){.step = s->step,
                              .bucket = s->bucket,
                              .count = s->count,
                              .first = s->first,
                              .id = s->id,
                              .epoch = s->epoch,
                              .place = s->place,
                              .sample = s->sample,
                              .caption = s->caption,
                              .replaced = s->replaced};
        if (l->part)
            batch->part = s->data;
        else
            batch->video = s->data;
        batch->extra = l->config.extra ? s->extra : NULL;
        l->returned[s->bucket] += l->lane_batch[s->bucket];
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
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)l->fingerprint);
    for (int i = 0; i < l->lanes; i++)
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
    snprintf(own, sizeof own, "%016llx", (unsigned long long)l->fingerprint);
    snprintf(old, sizeof old, "%016llx", (unsigned long long)l->listed);
    if (seed != l->config.seed || (strcmp(fingerprint, own) && strcmp(fingerprint, old)) ||
        (int)json_array_size(taken) != l->lanes || step < 0)
        return weft_fail(WEFT_E_CONFIG,
                         "%s: the loader stood in other data (shards, clip sizes, batch or seed "
                         "changed); restore them, "
                         "or begin with a new output folder",
                         where);
    for (int i = 0; i < l->lanes; i++) {
        const json_t *count = json_array_get(taken, (size_t)i);
        if (!json_is_integer(count) || json_integer_value(count) < 0)
            return weft_fail(WEFT_E_FORMAT, "%s: the loader took no number of samples of bucket %d",
                             where, i);
    }
    int64_t batches = 0; /* each of them was some bucket's */
    for (int i = 0; i < l->lanes; i++) {
        const int64_t count = json_integer_value(json_array_get(taken, (size_t)i));
        batches += count % l->lane_batch[i] ? -step - 1 : count / l->lane_batch[i];
        if (batches < 0 || batches > step)
            break;
    }
    if (batches != step)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: the samples that the loader took are not those of its %lld batches",
                         where, (long long)step);
    pthread_mutex_lock(&l->lock);
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i].taken = l->slots[i].count; /* nobody begins another item */
    for (early *e = l->early; e; e = e->next)
        e->one.taken = e->one.count;
    while (l->busy > 0)
        pthread_cond_wait(&l->ready, &l->lock);
    drop_early(l);
    for (int64_t i = 0; i < l->slot_count; i++)
        l->slots[i].step = -1;
    for (int i = 0; i < l->lanes; i++)
        l->planned[i] = l->returned[i] = json_integer_value(json_array_get(taken, (size_t)i));
    l->plan_step = l->next_step = step;
    pthread_mutex_unlock(&l->lock);
    return WEFT_OK;
}
