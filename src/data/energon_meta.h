/* What Megatron-Energon wants beside WebDataset shards, so that it reads them as they are:
 *
 *     .nv-meta/dataset.yaml    a crude dataset: samples as dictionaries of their parts
 *              split.yaml      train: train-*.tar, val: heldout-*.tar
 *              .info.json      samples of each shard
 *     train-000000.tar.idx     u64, little endian: where each sample begins, and the last one ends
 *
 * Its index.sqlite (files by name, for sets that point into others) is left to `energon prepare`.
 * */
#ifndef WEFT_DATA_ENERGON_H
#define WEFT_DATA_ENERGON_H

#include "data/storage.h"

#include <jansson.h>

/* `shards`: [{"file", "samples"}]. A shard's .idx that is there is kept. */
weft_status weft_energon_write(weft_storage *storage, const json_t *shards);

#endif
