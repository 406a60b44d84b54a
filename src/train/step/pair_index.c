#include "train/step/pair_index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct weft_pair_place {
    uint64_t id;
    int64_t sample;
};

static int by_id(const void *a, const void *b)
{
    const uint64_t x = ((const weft_pair_place *)a)->id, y = ((const weft_pair_place *)b)->id;
    return (x > y) - (x < y);
}

weft_status weft_pair_index_make(const weft_dataset *dataset, weft_pair_index *index)
{
    const int64_t count = weft_dataset_count(dataset);
    *index = (weft_pair_index){.dataset = dataset, .count = count};
    WEFT_TRY(WEFT_NEW(index->place, count + 1, "the samples of a further data set"));
    for (int64_t i = 0; i < count; i++)
        index->place[i] = (weft_pair_place){weft_dataset_at(dataset, i)->id, i};
    qsort(index->place, (size_t)count, sizeof *index->place, by_id);
    return WEFT_OK;
}

void weft_pair_index_free(weft_pair_index *index)
{
    weft_free(index->place);
    *index = (weft_pair_index){0};
}

const weft_sample *weft_pair_index_find(const weft_pair_index *index, uint64_t id)
{
    const weft_pair_place wanted = {id, 0};
    const weft_pair_place *at =
        index->count ? bsearch(&wanted, index->place, (size_t)index->count, sizeof wanted, by_id)
                     : NULL;
    return at ? weft_dataset_at(index->dataset, at->sample) : NULL;
}

weft_status weft_pair_index_lacks(const char *path, const char *key, const weft_sample *sample)
{
    return weft_error(WEFT_MSG_CONFIG_VALUE,
                      WEFT_AT(.file = path, .key = key, .value = sample->key),
                      "the data set has no usable clip \"%s\", which data.path has. Add the clip, "
                      "or remove the one of data.path.",
                      sample->key);
}

bool weft_pair_index_framed(const weft_run_pair *pair)
{
    return pair->kind == WEFT_PAIR_MARKS || !strcmp(pair->key, "control.background");
}

weft_status weft_pair_index_check_aspect(const char *path, const char *key,
                                         const weft_sample *sample, const weft_sample *own)
{
    const double share = 0.02, /* sizes are rounded */
        wide = (double)own->width * sample->height, high = (double)own->height * sample->width;
    return fabs(wide - high) <= share * high || wide <= 0 || high <= 0
               ? WEFT_OK
               : weft_error(WEFT_MSG_CONFIG_VALUE,
                            WEFT_AT(.file = path, .key = key, .value = sample->key),
                            "the clip \"%s\" is %dx%d, and the clip of data.path is %dx%d, so "
                            "they would be cropped at different places. Give both one aspect.",
                            sample->key, own->width, own->height, sample->width, sample->height);
}
