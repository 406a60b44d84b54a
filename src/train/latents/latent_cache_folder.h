/* The folder of a cache of latents (train/latents.h): its name, its shards, its lock. A finished
 * folder is used as it is, so it may be shared and read-only. */
#ifndef WEFT_TRAIN_LATENT_CACHE_H
#define WEFT_TRAIN_LATENT_CACHE_H

#include "data/storage.h"
#include "model/tiling.h"
#include "train/step.h"

/* <latents>/<hash of the encoders' files, the shards' contents and the clips' sizes>. */
weft_status weft_latent_cache_folder(const weft_run *run, const weft_run_models *models,
                                     const weft_stage *stage, char folder[512]);
/* By stage of the run: its cache is marked as finished. False for all where nothing is cached. */
weft_status weft_latents_encoded(const weft_run *run, const weft_run_models *models, bool *encoded);
/* The tiles that clips are encoded in (autoencoder.tile). */
weft_tile weft_latent_tile(const weft_run *run);

/* Ids of the samples in the cache's shards: a hash table, 0 for an empty slot. */
typedef struct weft_latent_ids {
    uint64_t *id; /* heap, owned */
    int64_t slots, count;
} weft_latent_ids;
bool weft_latent_ids_have(const void *ids, const weft_sample *sample);
weft_status weft_latent_cache_read(const char *folder, weft_storage *storage, weft_latent_ids *ids);
/* Whether the cache holds as many samples as it had when it was finished. */
bool weft_latent_cache_is_complete(const char *folder, const weft_latent_ids *ids);

/* Reads only. *finished: the cache is complete and its shards are whole. *samples: in its shards;
 * 0 without the mark of a finished cache. */
weft_status weft_latent_cache_look(const char *folder, bool verify, bool *finished,
                                   int64_t *samples);
/* WEFT_E_IO: the folder is not finished and cannot be written. */
weft_status weft_latent_cache_check_writable(const char *folder, int64_t samples);
/* Rank 0: removes shards that lost bytes or were changed, with a warning for each. */
weft_status weft_latent_cache_repair(weft_storage *storage, bool verify);
/* Collective. Waits for other runs that encode into the folder. *lock: rank 0's, to be closed. */
weft_status weft_latent_cache_lock(const weft_place_of_run *place, const char *folder, int *lock);

#endif
