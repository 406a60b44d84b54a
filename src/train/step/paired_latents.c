#include "train/step/paired_latents.h"

#include "format/tensors/npy.h"
#include "train/step/pair_index.h"

#include <string.h>

struct weft_paired_latents {
    weft_dataset *dataset;
    const char *key, *source;
    weft_pair_index index;
    weft_part_bytes bytes;
};

static weft_status check_size(const weft_run_pair *pair, const weft_sample *sample,
                              const weft_sample *own)
{
    const weft_part_data *parts[] = {weft_sample_part(own, WEFT_LATENT_PART),
                                     weft_sample_part(sample, WEFT_LATENT_PART)};
    if (!parts[0] || !parts[0]->shape || !parts[1] || !parts[1]->shape)
        return WEFT_OK; /* the loader reports them */
    const int32_t *has = parts[0]->shape->dim, *needs = parts[1]->shape->dim,
                  frames = pair->kind == WEFT_PAIR_LATENTS ? needs[0] : 1;
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

/* Rejects a pair of which one clip has sound. */
static weft_status check_sound(const weft_run_pair *pair, const weft_sample *sample,
                               const weft_sample *own)
{
    const bool has = !weft_sample_part(own, WEFT_NO_SOUND_PART),
               needs = !weft_sample_part(sample, WEFT_NO_SOUND_PART);
    if (has == needs)
        return WEFT_OK;
    return weft_error(WEFT_MSG_CONFIG_VALUE,
                      WEFT_AT(.file = pair->path, .key = pair->key, .value = sample->key),
                      "the clip \"%s\" has %s, and the clip of data.path has %s. Both clips of a "
                      "pair need sound, or neither: give the silent one a soundtrack, remove the "
                      "other's, or remove the pair.",
                      sample->key, has ? "sound" : "no sound", needs ? "sound" : "none");
}

static weft_status check_all(const weft_paired_latents *l, const weft_run_pair *pair,
                             const weft_dataset *first)
{
    for (int64_t i = 0; i < weft_dataset_count(first); i++) {
        const weft_sample *sample = weft_dataset_at(first, i);
        const weft_sample *own = weft_pair_index_find(&l->index, sample->id);
        if (!own && pair->kind == WEFT_PAIR_IDENTITY)
            continue;
        if (!own)
            return weft_pair_index_lacks(l->source, l->key, sample);
        if (!pair->features)
            WEFT_TRY(check_size(pair, sample, own));
        if (pair->sound)
            WEFT_TRY(check_sound(pair, sample, own));
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
    WEFT_GO(weft_pair_index_make(l->dataset, &l->index));
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
    weft_pair_index_free(&l->index);
    weft_free(l->bytes.data);
    weft_free(l);
}

bool weft_paired_latents_has(const weft_paired_latents *l, uint64_t id)
{
    return weft_pair_index_find(&l->index, id) != NULL;
}

weft_status weft_paired_latents_read(weft_paired_latents *l, const char *suffix, uint64_t id,
                                     int64_t floats, float *to)
{
    const weft_sample *sample = weft_pair_index_find(&l->index, id);
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
