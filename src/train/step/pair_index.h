/* The samples of a further data set, found by the ids of the samples of data.path. */
#ifndef WEFT_TRAIN_STEP_PAIR_INDEX_H
#define WEFT_TRAIN_STEP_PAIR_INDEX_H

#include "data/dataset.h"
#include "train/graph/run_pair.h"

typedef struct weft_pair_place weft_pair_place;
/* Zero-initialised: no samples. Free with weft_pair_index_free. */
typedef struct weft_pair_index {
    const weft_dataset *dataset; /* borrowed */
    weft_pair_place *place;      /* [count] sorted by id */
    int64_t count;
} weft_pair_index;

weft_status weft_pair_index_make(const weft_dataset *dataset, weft_pair_index *index);
void weft_pair_index_free(weft_pair_index *index);
/* The sample with this id; NULL: none. */
const weft_sample *weft_pair_index_find(const weft_pair_index *index, uint64_t id);
/* The error that the set `path` of the config's `key` has no usable partner of a sample of
 * data.path. */
weft_status weft_pair_index_lacks(const char *path, const char *key, const weft_sample *sample);
/* Whether each pixel of a set belongs to a pixel of the clips: masks and backgrounds. */
bool weft_pair_index_framed(const weft_run_pair *pair);
/* Rejects a clip of another aspect than its partner `sample` of data.path. */
weft_status weft_pair_index_check_aspect(const char *path, const char *key,
                                         const weft_sample *sample, const weft_sample *own);

#endif
