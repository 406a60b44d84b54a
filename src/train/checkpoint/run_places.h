/* The buckets of a run: models that are read, `out`, and `data.latents`. A run works in folders of
 * this machine, and its results are sent to the bucket with each checkpoint and at the end. Latents
 * are read and written in the bucket itself (train/latents/latent_cache.h). */
#ifndef WEFT_TRAIN_CHECKPOINT_RUN_PLACES_H
#define WEFT_TRAIN_CHECKPOINT_RUN_PLACES_H

#include "comm/comm.h"
#include "storage/owner_keeper.h"
#include "storage/working_copy.h"
#include "train/config/train_config.h"

typedef struct weft_run_places weft_run_places;
/* Copies the remote models of the run, and what the bucket of `out` has. *places has all, also if
 * nothing is remote. Every rank calls this before it knows the others. */
weft_status weft_run_places_open(const weft_run *run, weft_run_places **places);
void weft_run_places_close(weft_run_places *places); /* accepts NULL */
/* The run with folders in place of remote locations; borrowed. */
const weft_run *weft_run_places_run(const weft_run_places *places);
/* NULL: `out` is a folder. */
weft_working_copy *weft_run_places_out(const weft_run_places *places);
/* Renews claims of this rank on a bucket of latents. NULL: the rank writes none. */
weft_owner_keeper *weft_run_places_keeper(const weft_run_places *places);
/* Collective. Fails if the ranks do not share the folder of `out`. */
weft_status weft_run_places_check_shared(const weft_run_places *places, weft_comm *comm);
/* Replaces the folders in a text by their locations. */
weft_status weft_run_places_restore(const weft_run_places *places, weft_buf *text);

#endif
