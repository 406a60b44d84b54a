/* Counts samples and frames by outcome. */
#include "data/loader_report.h"

#include "data/loader_internal.h"

#include <math.h>

static const struct {
    const char *name, *text;
} outcomes[WEFT_SAMPLE_OUTCOMES] = {
    [WEFT_SAMPLE_USED] = {"used", "are used"},
    [WEFT_SAMPLE_TOO_SHORT] = {"too_short", "are shorter than every bucket"},
    [WEFT_SAMPLE_TOO_SMALL] = {"too_small",
                               "have fewer pixels than every bucket that they are long enough for"},
    [WEFT_SAMPLE_OTHER_SIZE] = {"other_size", "have a part of another size than every bucket"},
    [WEFT_SAMPLE_NO_PART] = {"no_part", "have no part of the kind that is read"},
    [WEFT_SAMPLE_LIMITED] = {"limited", "are beyond the limits of their sources"},
    [WEFT_SAMPLE_DAMAGED] = {"damaged", "were found damaged by curation"},
    [WEFT_SAMPLE_UNREADABLE] = {"unreadable", "cannot be opened"},
    [WEFT_SAMPLE_UNDECODABLE] = {"undecodable", "do not decode (found so far)"},
    [WEFT_SAMPLE_CORRUPT] = {"corrupt",
                             "have other bytes than were written, or are cut off (found so far)"},
};

/* Share of a frame of w x h that covers a bucket and is outside of the bucket. */
static double share_outside(const weft_bucket *b, int64_t w, int64_t h)
{
    const double x = (double)(w * b->height), y = (double)(h * b->width);
    return w > 0 && h > 0 ? 1 - fmin(x, y) / fmax(x, y) : 0;
}

static void add_crop(const weft_loader *l, int64_t sample, weft_loader_report *r)
{
    const weft_sample *s = weft_dataset_at(l->dataset, sample);
    const double outside =
        share_outside(&l->queue[l->record[sample].bucket].size, s->width, s->height);
    r->cropped += outside > 0;
    r->cropped_share += outside;
}

weft_loader_report weft_loader_get_report(const weft_loader *l)
{
    weft_loader *locked = (weft_loader *)l; /* only the lock is modified */
    pthread_mutex_lock(&locked->threads.lock);
    weft_loader_report r = l->report;
    r.damaged_shards = weft_dataset_damaged(l->dataset);
    r.all_samples = weft_dataset_count(l->dataset);
    for (int64_t i = 0; i < r.all_samples; i++) {
        const weft_sample_record *f = &l->record[i];
        r.samples[f->what]++;
        r.frames[f->what] += f->frames;
        r.all_frames += f->frames;
        if (f->what == WEFT_SAMPLE_USED)
            r.window_frames += l->queue[f->bucket].size.frames;
        if (f->what == WEFT_SAMPLE_USED && !l->part)
            add_crop(l, i, &r);
    }
    if (r.cropped)
        r.cropped_share /= (double)r.samples[WEFT_SAMPLE_USED];
    r.unused_frames = r.frames[WEFT_SAMPLE_USED] - r.window_frames;
    for (int64_t i = 0; i < l->slot_count; i++)
        r.decoded_batches +=
            l->slots[i].step >= l->position.next_step && l->slots[i].done == l->slots[i].count;
    for (const weft_prefetched_item *e = l->prefetched; e; e = e->next) {
        r.wanted++;
        r.early += e->one.done;
    }
    pthread_mutex_unlock(&locked->threads.lock);
    return r;
}

weft_data_source_report weft_loader_source_report(const weft_loader *l, int64_t source)
{
    weft_data_source_report r = {0};
    for (int64_t i = 0; i < weft_dataset_count(l->dataset); i++) {
        const weft_sample_outcome what = weft_loader_outcome(l, i);
        if (weft_dataset_at(l->dataset, i)->source != source)
            continue;
        r.all++;
        r.used += what == WEFT_SAMPLE_USED;
        r.limited += what == WEFT_SAMPLE_LIMITED;
        r.frames += l->record[i].frames;
        r.used_frames += what == WEFT_SAMPLE_USED ? l->record[i].frames : 0;
    }
    for (int i = 0; i < l->queues; i++) {
        const weft_blend_part *part = &l->queue[i].blend.part[source];
        r.items += part->items;
        r.repeated += part->items > part->count ? part->items - part->count : 0;
    }
    return r;
}

int64_t weft_loader_source_items(const weft_loader *l, int64_t source)
{
    return l->by_source[source];
}

const weft_section_list *weft_loader_sources(const weft_loader *l)
{
    return l->config.sources.count ? &l->config.sources : NULL;
}

/* A line for each source: its samples and frames, its weight and its items in an epoch. */
static void format_sources(const weft_loader *l, weft_buf *out)
{
    for (int64_t i = 0; i < l->config.sources.count; i++) {
        const weft_data_source *source = (const weft_data_source *)l->config.sources.item + i;
        const weft_data_source_report r = weft_loader_source_report(l, i);
        char name[WEFT_SOURCE_NAME_BYTES];
        weft_buf_printf(out,
                        "source %s: %" PRId64 " of %" PRId64 " samples and %" PRId64 " of %" PRId64
                        " frames are used",
                        weft_data_source_name(source, name), r.used, r.all, r.used_frames,
                        r.frames);
        if (l->config.blend != WEFT_BLEND_ONCE)
            weft_buf_printf(out, "; weight %g, %s: %" PRId64 " items in an epoch", source->weight,
                            weft_blend_names[l->config.blend], r.items);
        if (r.repeated)
            weft_buf_printf(out, ", of which %" PRId64 " repeat a sample", r.repeated);
        if (r.limited)
            weft_buf_printf(out, "; %" PRId64 " samples are beyond the limit of %" PRId64,
                            r.limited, source->limit);
        weft_buf_printf(out, "\n");
    }
}

static json_t *sources_json(const weft_loader *l)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < l->config.sources.count; i++) {
        const weft_data_source *source = (const weft_data_source *)l->config.sources.item + i;
        const weft_data_source_report r = weft_loader_source_report(l, i);
        char name[WEFT_SOURCE_NAME_BYTES];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                            weft_data_source_name(source, name), "path", source->path, "weight",
                            source->weight, "samples", (json_int_t)r.all, "used",
                            (json_int_t)r.used, "limited", (json_int_t)r.limited, "dropped",
                            (json_int_t)(r.all - r.used - r.limited), "items", (json_int_t)r.items,
                            "repeated", (json_int_t)r.repeated));
    }
    return list;
}

weft_sample_outcome weft_loader_outcome(const weft_loader *l, int64_t sample)
{
    weft_loader *locked = (weft_loader *)l;
    pthread_mutex_lock(&locked->threads.lock);
    const weft_sample_outcome what = l->record[sample].what;
    pthread_mutex_unlock(&locked->threads.lock);
    return what;
}

void weft_loader_set_outcome(weft_loader *l, int64_t sample, weft_sample_outcome what)
{
    pthread_mutex_lock(&l->threads.lock);
    l->record[sample].what = (uint8_t)what;
    pthread_mutex_unlock(&l->threads.lock);
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
    if (r.cropped)
        weft_buf_printf(out, "; %" PRId64 " samples are cropped, %.1f %% of all pixels", r.cropped,
                        100 * r.cropped_share);
    weft_buf_printf(out, "\n");
    format_sources(l, out);
    for (int i = 0; i < l->queues && l->queues > 1; i++) {
        const weft_bucket *b = &l->queue[i].size;
        int64_t inside = 0;
        for (int64_t k = 0; k < r.all_samples; k++)
            inside += l->record[k].bucket == i;
        weft_buf_printf(out,
                        "%" PRId64 " of %" PRId64 " samples are in bucket %d of %" PRId64
                        "x%" PRId64 "x%" PRId64 "%s\n",
                        inside, r.all_samples, i, b->frames, b->height, b->width,
                        inside ? "" : ": it never has a turn");
    }
    for (int i = WEFT_SAMPLE_USED + 1; i < WEFT_SAMPLE_OUTCOMES; i++)
        if (r.samples[i])
            weft_buf_printf(out,
                            "%" PRId64 " of %" PRId64 " samples %s (%" PRId64 " frames in total)\n",
                            r.samples[i], r.all_samples, outcomes[i].text, r.frames[i]);
    if (r.damaged_shards)
        weft_buf_printf(out, "%" PRId64 " shards are damaged; their lost samples are not counted\n",
                        r.damaged_shards);
}

json_t *weft_loader_report_json(const weft_loader *l)
{
    const weft_loader_report r = weft_loader_get_report(l);
    json_t *dropped = json_object(), *list = json_array();
    for (int i = WEFT_SAMPLE_USED + 1; i < WEFT_SAMPLE_OUTCOMES; i++)
        if (i != WEFT_SAMPLE_LIMITED || l->config.sources.count)
            json_object_set_new(dropped, outcomes[i].name,
                                json_pack("{s:I, s:I}", "samples", (json_int_t)r.samples[i],
                                          "frames", (json_int_t)r.frames[i]));
    for (int64_t i = 0; i < r.all_samples; i++) {
        const weft_sample_outcome what = weft_loader_outcome(l, i);
        if (what != WEFT_SAMPLE_USED)
            json_array_append_new(
                list,
                json_pack(
                    "{s:s, s:s, s:s, s:I}", "key", weft_dataset_at(l->dataset, i)->key, "shard",
                    weft_dataset_shard(l->dataset, weft_dataset_at(l->dataset, i)->shard), "reason",
                    outcomes[what].name, "frames", (json_int_t)l->record[i].frames));
    }
    json_t *report =
        json_pack("{s:I, s:I, s:{s:I, s:I, s:I, s:I, s:f}, s:o, s:I, s:o}", "samples",
                  (json_int_t)r.all_samples, "frames", (json_int_t)r.all_frames, "used", "samples",
                  (json_int_t)r.samples[WEFT_SAMPLE_USED], "frames_in_windows",
                  (json_int_t)r.window_frames, "frames_outside", (json_int_t)r.unused_frames,
                  "cropped", (json_int_t)r.cropped, "cropped_share", r.cropped_share, "dropped",
                  dropped, "damaged_shards", (json_int_t)r.damaged_shards, "list", list);
    if (l->config.sources.count) {
        json_object_set_new(report, "sources", sources_json(l));
        if (l->config.blend != WEFT_BLEND_ONCE)
            json_object_set_new(report, "blend", json_string(weft_blend_names[l->config.blend]));
    }
    return report;
}
