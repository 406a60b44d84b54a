/* Checkpoints: folders <run>/checkpoints/step-00000200 that appear whole or not at all.
 *
 *   state.json             step, guard, loader, what the run is made of, the XXH3 checksum of every
 *                          other file, and its own
 *   config.yaml            the resolved config
 *   <scope>/               config.json and weights of each model in the public layout
 *                          (transformer, text_encoder, vae); of one that is tuned only those that
 *                          are trained: made_of in state.json has the hash of all others' folder
 *   optimizer.safetensors  moments
 *   ema.safetensors        moving averages
 *
 * Of several ranks each writes its share, and an index stands beside the files
 * (runtime/part_files.h). All of them write into a hidden folder at once, each in a thread of its
 * own behind a staging memory of bounded size; rank 0 gives the folder its name when every rank has
 * left a note of what it wrote:
 *
 *   rank 0   prepare .step-N | feed ~~~ write, note ─── notes of all? ── index, state.json, rename
 *   rank 1                   | feed ~~~~~~~ write, note ─┘
 *
 * Format 1 (weft 0.1) has no "format" and no own checksum in state.json; it is read too. */
#ifndef WEFT_TRAIN_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "runtime/runtime.h"

enum {
    WEFT_CHECKPOINT_MAX_PARTS = 6,
    WEFT_CHECKPOINT_FORMAT = 2,
    WEFT_CHECKPOINT_STAGING = 256 << 20, /* bytes of copies that wait to be written */
};

typedef struct weft_checkpoint_part {
    const char *scope; /* "transformer" */
    const char *stem;  /* of the file with the weights */
    json_t *config;    /* of config.json; borrowed */
    bool tuned;        /* only what of it is trained is in checkpoints (pass/tune.h) */
} weft_checkpoint_part;

/* Weights, whole, and config.json into `folder`. Collective when `comm` is there; rank 0 writes. */
weft_status weft_part_save(weft_store *store, const weft_graph *graph, weft_comm *comm,
                           const weft_checkpoint_part *part, const char *folder, weft_dtype dtype);

typedef struct weft_checkpoint_spec {
    const char *run;   /* folder, which all ranks see */
    weft_store *store; /* borrowed: read while saving and filled while loading */
    weft_comm *comm;   /* borrowed; NULL: one rank, */
    int rank, ranks;   /* or to plan for: rank of ranks, where those are not 0 */
    weft_checkpoint_part part[WEFT_CHECKPOINT_MAX_PARTS];
    int parts;
    const char *config_yaml; /* borrowed */
    int64_t keep;
    double deadline; /* seconds without progress after which a rank's share is given up; 0: 120 */
    int64_t staging; /* bytes; 0: WEFT_CHECKPOINT_STAGING */
    int64_t shard_bytes; /* of a file at most; 0: 4 GiB */
    /* Is shown the state of what is to be loaded before its tensors are; may be NULL */
    weft_status (*look)(void *user, const json_t *state, const char *folder);
    void *look_user;
} weft_checkpoint_spec;

typedef struct weft_checkpoints weft_checkpoints;
weft_status weft_checkpoints_open(const weft_checkpoint_spec *spec, weft_checkpoints **checkpoints);
/* Waits for the write under way; `abandon`: the run has failed, and others may never finish theirs:
 * what is not whole by itself is given up. */
void weft_checkpoints_close(weft_checkpoints *checkpoints, bool abandon); /* accepts NULL */
/* Collective. Begins to write what the store has now and returns when it may change again: at once
 * where it fits the staging. Waits first if the one before is not written yet, and reports its
 * error. `state` (stolen) is rank 0's; it gets the checksums. The others may give NULL. */
weft_status weft_checkpoints_save(weft_checkpoints *checkpoints, int64_t step, json_t *state);
/* Rank 0: until the whole checkpoint has its name. Others: until their own share is written. */
weft_status weft_checkpoints_wait(weft_checkpoints *checkpoints);
/* Collective. The newest whole checkpoint, its tensors into the store; damaged ones are named in
 * warnings and passed over. *state is NULL when there is none at all. Where there are some and none
 * is whole, WEFT_E_FORMAT lists what each lacks. `path` (512 bytes) is the folder. */
weft_status weft_checkpoints_load(weft_checkpoints *checkpoints, json_t **state, char path[512]);
/* What a save reserves on this rank beside the store, once that is filled. */
weft_status weft_checkpoints_bytes(const weft_checkpoint_spec *spec, int64_t *bytes);
/* Step of the last one written or loaded, -1 if none. Rank 0 knows. */
int64_t weft_checkpoints_last(const weft_checkpoints *checkpoints);
/* How long this rank wrote at the last one that is no longer under way; 0: none. */
double weft_checkpoints_seconds(const weft_checkpoints *checkpoints);

#endif
