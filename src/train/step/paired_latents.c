#include "train/step/paired_latents.h"

#include "format/tensors/npy.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    uint64_t id;
    int64_t sample;
} place;

struct weft_paired_latents {
    weft_dataset *dataset;
    const char *key, *source;
    place *place; /* [count] sorted by id */
    int64_t count;
    weft_part_bytes bytes;
};

static int by_id(const void *a, const void *b)
{
    const uint64_t x = ((const place *)a)->id, y = ((const place *)b)->id;
    return (x > y) - (x < y);
}

static const place *find(const weft_paired_latents *l, uint64_t id)
{
    const place wanted = {id, 0};
    return l->count ? bsearch(&wanted, l->place, (size_t)l->count, sizeof wanted, by_id) : NULL;
}

static weft_status check_size(const weft_run_pair *pair, const weft_sample *sample,
                              const weft_sample *own)
{
    const weft_part_data *parts[] = {weft_sample_part(own, WEFT_LATENT_PART),
                                     weft_sample_part(sample, WEFT_LATENT_PART)};
    if (!parts[0] || !parts[0]->shape || !parts[1] || !parts[1]->shape)
        return WEFT_OK; /* the loader reports them */
    const int32_t *has = parts[0]->shape->dim, *needs = parts[1]->shape->dim,
                  frames = pair->kind == WEFT_PAIR_STILLS ? 1 : needs[0];
    return has[0] == frames && has[1] == needs[1] && has[2] == needs[2]
               ? WEFT_OK
               : weft_error(
                     WEFT_MSG_CONFIG_VALUE,
                     WEFT_AT(.file = pair->path, .key = pair->key, .value = sample->key),
                     "the clip \"%s\" is encoded to %d frames of %dx%d latents, and the clip of "
                     "data.path needs %d of %dx%d: they fit different buckets. Give both the same "
                     "size, and videos the same number of frames.",
                     sample->key, has[0], has[1], has[2], frames, needs[1], needs[2]);
}

static weft_status check_all(const weft_paired_latents *l, const weft_run_pair *pair,
                             const weft_dataset *first)
{
    for (int64_t i = 0; i < weft_dataset_count(first); i++) {
        const weft_sample *sample = weft_dataset_at(first, i);
        const place *at = find(l, sample->id);
        if (!at)
            return weft_error(
                WEFT_MSG_CONFIG_VALUE,
                WEFT_AT(.file = l->source, .key = l->key, .value = sample->key),
                "the data set has no usable clip \"%s\", which data.path has. Add the clip, or "
                "remove the one of data.path.",
                sample->key);
        WEFT_TRY(check_size(pair, sample, weft_dataset_at(l->dataset, at->sample)));
    }
    return WEFT_OK;
}

weft_status weft_paired_latents_open(const char *folder, const weft_run_pair *pair,
                                     const weft_dataset *first, weft_paired_latents **out)
{
    weft_paired_latents *l;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(l, 1, "paired latents"));
    *l = (weft_paired_latents){.key = pair->key, .source = pair->path};
    WEFT_GO(weft_dataset_open(folder, NULL, false, &l->dataset));
    l->count = weft_dataset_count(l->dataset);
    WEFT_GO(WEFT_NEW(l->place, l->count + 1, "paired latents"));
    for (int64_t i = 0; i < l->count; i++)
        l->place[i] = (place){weft_dataset_at(l->dataset, i)->id, i};
    qsort(l->place, (size_t)l->count, sizeof *l->place, by_id);
    WEFT_GO(check_all(l, pair, first));
    *out = l;
    return WEFT_OK;
out:
    weft_paired_latents_close(l);
    return status;
}

void weft_paired_latents_close(weft_paired_latents *l)
{
    if (!l)
        return;
    weft_dataset_close(l->dataset);
    weft_free(l->place);
    weft_free(l->bytes.data);
    weft_free(l);
}

weft_status weft_paired_latents_read(weft_paired_latents *l, const char *suffix, uint64_t id,
                                     int64_t floats, float *to)
{
    const place *at = find(l, id);
    const weft_sample *sample = at ? weft_dataset_at(l->dataset, at->sample) : NULL;
    const weft_part_data *part = sample ? weft_sample_part(sample, suffix) : NULL;
    weft_npy npy;
    if (!part)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = sample ? sample->key : "?"),
                          "the sample has no latents in the second data set");
    WEFT_TRY(weft_dataset_read(l->dataset, sample, part, false, &l->bytes));
    WEFT_TRY(weft_npy_parse_head(l->bytes.data, l->bytes.bytes, part->bytes, sample->key, &npy));
    if (npy.count != floats || npy.dtype != WEFT_F32)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.file = l->source, .key = l->key, .value = sample->key),
                          "the clip \"%s\" has latents of %" PRId64
                          " elements, and the clip of data.path of %" PRId64
                          ". Both clips of a pair need the same size.",
                          sample->key, npy.count, floats);
    memcpy(to, npy.data, (size_t)npy.count * sizeof *to);
    return WEFT_OK;
}
