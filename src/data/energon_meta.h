/* The files that Megatron-Energon needs next to WebDataset shards to read them unchanged:
 *
 *     .nv-meta/dataset.yaml    a crude dataset: samples as dictionaries of their parts
 *              split.yaml      train: train-*.tar, val: heldout-*.tar
 *              .info.json      samples of each shard
 *     train-000000.tar.idx     u64, little endian: offset of each sample, and end of the last one
 *
 * `energon prepare` writes index.sqlite (files by name, for sets that refer to others). */
#ifndef WEFT_DATA_ENERGON_META_H
#define WEFT_DATA_ENERGON_META_H

#include "storage/storage.h"

#include <jansson.h>

/* `shards`: [{"file", "samples"}]. An existing .idx of a shard is kept. */
weft_status weft_energon_write(weft_storage *storage, const json_t *shards);

#endif
