/* Checkpoints: folders <run>/checkpoints/step-00000200 that appear complete or not at all.
 *
 *   state.json             step, guard, loader, provenance, the XXH3 checksums of all other files
 *                          and its own checksum
 *   config.yaml            resolved config
 *   <scope>/               config.json and weights of each model in the public layout
 *                          (transformer, text_encoder, vae). Partly trained models store only the
 *                          trained tensors; the provenance has the hash of the base weights
 *   optimizer.safetensors  moments
 *   ema.safetensors        moving averages
 *
 * With several ranks, each rank writes its share, and an index is stored next to the files
 * (shard_files.h). All ranks write into a hidden folder at the same time. Each rank uses a thread
 * and a staging buffer of bounded size, and writes a note that lists its files. Rank 0 renames the
 * folder when the notes of all ranks exist:
 *
 *   rank 0   prepare .step-N | feed ~~~ write ─── all notes? ── index, state.json, rename
 *   rank 1                   | feed ~~~~~~~ write, note ─┘
 *
 * In a bucket a checkpoint is visible from its state.json on, which is sent after all other files.
 * A send that fails is a warning: the next checkpoint sends what is missing.
 *
 * Format 1 (weft 0.1) has no "format" and no own checksum in state.json. It can still be loaded. */
#ifndef WEFT_TRAIN_CHECKPOINT_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_CHECKPOINT_H

#include "base/dtype.h"
#include "base/json.h"
#include "comm/comm.h"
#include "exec/store/store.h"
#include "format/tensors/tensors.h"
#include "graph/op.h"
#include "storage/working_copy.h"

enum {
    WEFT_CHECKPOINT_MAX_PARTS = 6,
    WEFT_CHECKPOINT_FORMAT = 2,
    WEFT_CHECKPOINT_STAGING = 256 << 20, /* default bytes of the staging buffer */
};

typedef struct weft_checkpoint_part {
    const char *scope;   /* scope of its parameters, such as "transformer" */
    const char *stem;    /* base name of the weights file */
    json_t *config;      /* content of config.json; borrowed */
    bool partly_trained; /* checkpoints contain only its trained tensors (trainable.h) */
    bool internal;       /* needed to resume only; not a part of the finished model */
} weft_checkpoint_part;

/* Writes the unsharded weights, the tensor `also` of another file (NULL: none) and config.json into
 * `folder`. Collective if `comm` is not NULL; rank 0 writes. */
weft_status weft_part_save(weft_store *store, const weft_graph *graph, weft_comm *comm,
                           const weft_checkpoint_part *part, const weft_stored_tensor *also,
                           const char *folder, weft_dtype dtype);

typedef struct weft_checkpoint_spec {
    const char *run;         /* folder that all ranks can access */
    weft_working_copy *copy; /* sends `run` to a bucket, on rank 0; borrowed. NULL: none */
    weft_store *store;       /* borrowed; saving reads and loading fills the store */
    weft_comm *comm;         /* borrowed; NULL: one rank */
    int rank, ranks;         /* without `comm`: rank to plan for; 0 ranks: one rank */
    weft_checkpoint_part part[WEFT_CHECKPOINT_MAX_PARTS];
    int parts;
    const char *config_yaml; /* borrowed */
    int64_t keep_latest;
    /* seconds without progress after which rank 0 gives up waiting for a rank; 0: 120 */
    double deadline;
    int64_t staging;     /* bytes; 0: WEFT_CHECKPOINT_STAGING */
    int64_t shard_bytes; /* maximum bytes of a file; 0: 4 GiB */
    /* Called with state.json before the tensors are loaded. NULL: not called. */
    weft_status (*check_state)(void *user, const json_t *state, const char *folder);
    void *check_state_user;
} weft_checkpoint_spec;

typedef struct weft_checkpoints weft_checkpoints;
weft_status weft_checkpoints_open(const weft_checkpoint_spec *spec, weft_checkpoints **checkpoints);
/* Waits for the write in progress. `abandon`: the run has failed; the write stops waiting for other
 * ranks, and a checkpoint that depends on them is discarded. */
void weft_checkpoints_close(weft_checkpoints *checkpoints, bool abandon); /* accepts NULL */
/* Collective. Starts writing the content of the store. Returns when the store may change again,
 * which is at once if the data fits the staging buffer. Waits first for the previous write and
 * returns its error. Rank 0 passes `state` (stolen), which receives the checksums; other ranks may
 * pass NULL. */
weft_status weft_checkpoints_save(weft_checkpoints *checkpoints, int64_t step, json_t *state);
/* Rank 0: waits until the complete checkpoint has its final name. Other ranks: until their share is
 * written. */
weft_status weft_checkpoints_wait(weft_checkpoints *checkpoints);
/* Collective. Loads the newest intact checkpoint into the store. Damaged checkpoints are skipped
 * with a warning. *state is NULL if no checkpoint exists. WEFT_E_FORMAT: checkpoints exist, but all
 * are damaged; the message lists the damage. `path` receives the folder. */
weft_status weft_checkpoints_load(weft_checkpoints *checkpoints, json_t **state, char path[512]);
/* Reads state.json of the newest checkpoint in the run folder `run` that has an intact one, without
 * the other files. *state is NULL if there is none (new reference). */
weft_status weft_checkpoints_read_state(const char *run, json_t **state);
/* Bytes that a save reserves on this rank in addition to the filled store. */
weft_status weft_checkpoints_bytes(const weft_checkpoint_spec *spec, int64_t *bytes);
/* Step of the last checkpoint written or loaded; -1: none. Exact on rank 0; other ranks count a
 * checkpoint as written when their own share is. */
int64_t weft_checkpoints_last(const weft_checkpoints *checkpoints);
/* Seconds that this rank needed for the last finished write; 0 without one. */
double weft_checkpoints_seconds(const weft_checkpoints *checkpoints);

#endif
