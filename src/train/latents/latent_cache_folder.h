/* The folder of a latent cache (latent_cache.h): its name, its shards, its lock. It may be a prefix
 * of a bucket, whose lock is a claim (storage/bucket_owner.h). A complete folder is not written, so
 * it may be shared and read-only. */
#ifndef WEFT_TRAIN_LATENTS_LATENT_CACHE_FOLDER_H
#define WEFT_TRAIN_LATENTS_LATENT_CACHE_FOLDER_H

#include "model/tiling.h"
#include "storage/bucket_owner.h"
#include "train/step/train_step.h"

/* Path <latents>/<hash of the encoders' files, the shards' contents and the clip sizes>. */
weft_status weft_latent_cache_folder(const weft_run *run, const weft_run_models *models,
                                     const weft_train_stage *train_stage, char folder[512]);
/* Sets encoded[] by training stage: its cache is marked as complete. All false if the run caches no
 * latents. */
weft_status weft_latents_encoded(const weft_run *run, const weft_run_models *models, bool *encoded);
/* Whether the latents that are not `encoded` can be written. The error names the training stage. */
weft_status weft_latents_check_writable(const weft_run *run, const weft_run_models *models,
                                        const bool *encoded);
/* The tiles in which clips are encoded (autoencoder.tile). */
weft_tile weft_latent_tile(const weft_run *run);

/* Files next to the shards. `folder`: a cache, here or in a bucket. */
weft_status weft_latent_cache_has(const char *folder, const char *name, bool *has);
/* Frees the buffer in any case. */
weft_status weft_latent_cache_put(const char *folder, const char *name, weft_buf *data);
weft_status weft_latent_cache_json(const char *folder, const char *name, json_t **json);
/* Reads an array: f32 (count), owned by the caller. `source`: the file or folder that the user
 * removes if it has another size, and that is then written again. */
weft_status weft_latent_cache_array(const char *folder, const char *name, const char *source,
                                    int64_t count, float **values);

/* Ids of the samples in the cache's shards: a hash table; 0: empty slot. */
typedef struct weft_latent_ids {
    uint64_t *id; /* heap, owned */
    int64_t slots, count;
} weft_latent_ids;
bool weft_latent_ids_have(const void *ids, const weft_sample *sample);
weft_status weft_latent_cache_read(const char *folder, weft_storage *storage, weft_latent_ids *ids);
/* Whether the cache has the number of samples recorded in its file `complete`. */
weft_status weft_latent_cache_is_complete(const char *folder, const weft_latent_ids *ids,
                                          bool *complete);

/* Checks the cache without writing. *finished: the cache is complete and its shards are intact.
 * *samples: samples in its shards; 0 without the file `complete`. */
weft_status weft_latent_cache_inspect(const char *folder, bool verify, bool *finished,
                                      int64_t *samples);
/* WEFT_E_IO: the folder cannot be written. Buckets are not asked. `samples`: number already
 * encoded, for the message. */
weft_status weft_latent_cache_check_writable(const char *folder, int64_t samples);
/* Rank 0: removes shards that were truncated or changed, with a warning for each. */
weft_status weft_latent_cache_repair(weft_storage *storage, bool verify);
/* Owned by rank 0 of the run that encodes. */
typedef struct weft_latent_cache_lock {
    int file; /* -1: none */
    weft_bucket_owner *owner;
} weft_latent_cache_lock;
/* Collective. Waits for other runs that encode into the folder. Later runs wait until the close. */
weft_status weft_latent_cache_lock_open(const weft_run *run, const weft_exec_config *exec,
                                        const char *folder, weft_latent_cache_lock *lock);
void weft_latent_cache_lock_close(weft_latent_cache_lock *lock);

#endif
