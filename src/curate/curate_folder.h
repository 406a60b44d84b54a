/* Locks, leftovers and shards of a curation's folder. Private to curate/. */
#ifndef WEFT_CURATE_CURATE_FOLDER_H
#define WEFT_CURATE_CURATE_FOLDER_H

#include "curate/curate.h"

/* Descriptors of the locks; -1: none. */
typedef struct weft_curate_locks {
    int folder, shard;
} weft_curate_locks;

/* Locks the folder: alone, or with `config->shards` for one run per shard. WEFT_E_ARG: another run
 * has the lock, and `config->wait` is false. */
weft_status weft_curate_locks_take(const char *out, const weft_curate_config *config,
                                   weft_curate_locks *locks);
void weft_curate_locks_release(const weft_curate_locks *locks);
/* Waits for the lock of the folder's settings, which runs of shards share. Close *fd. */
weft_status weft_curate_lock_settings(const char *out, int *fd);
/* Makes the folders of the curation, and removes what a killed run left: of the shard's videos
 * only, as other shards may be running. */
weft_status weft_curate_remove_temporaries(const char *out, const weft_curate_config *config);
/* Whether the videos of this hash of the name belong to this run. */
bool weft_curate_is_own(const weft_curate_config *config, uint64_t hash);

#endif
