/* Checkpoints: folders <run>/checkpoints/step-00000200 that appear whole or not at all.
 *
 *   state.json       step, guard, loader, fingerprint of the config, and the XXH3 checksum of every
 * other file config.yaml      the resolved config <scope>/         config.json and weights of each
 * model in the public layout (transformer, text_encoder, vae) optimizer.safetensors,
 * ema.safetensors
 *
 * The tensors are copied at once; a thread of its own writes them into a hidden folder, syncs it
 * and renames it. */
#ifndef WEFT_TRAIN_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "runtime/runtime.h"

enum { WEFT_CHECKPOINT_MAX_PARTS = 4 };

typedef struct weft_checkpoint_part {
    const char *scope; /* "transformer" */
    const char *stem;  /* of the file with the weights */
    json_t *config;    /* of config.json; borrowed */
} weft_checkpoint_part;

/* Weights and config.json into `folder`; `variant` "ema." takes the moving averages. */
weft_status weft_part_save(weft_store *store, const weft_graph *graph,
                           const weft_checkpoint_part *part, const char *variant,
                           const char *folder, weft_dtype dtype);

typedef struct weft_checkpoint_spec {
    const char *run;   /* folder */
    weft_store *store; /* borrowed: read while saving and filled while loading */
    weft_graph *graph; /* borrowed: says which tensors are whose parameters; until close */
    weft_checkpoint_part part[WEFT_CHECKPOINT_MAX_PARTS];
    int parts;
    const char *config_yaml; /* borrowed */
    int64_t keep;
} weft_checkpoint_spec;

typedef struct weft_checkpoints weft_checkpoints;
weft_status weft_checkpoints_open(const weft_checkpoint_spec *spec, weft_checkpoints **checkpoints);
/* Waits for the write under way. */
void weft_checkpoints_close(weft_checkpoints *checkpoints); /* accepts NULL */
/* Copies the store and starts writing; waits first if the one before is not written yet, and
 * reports its error. `state` (stolen) gets the checksums. */
weft_status weft_checkpoints_save(weft_checkpoints *checkpoints, int64_t step, json_t *state);
weft_status weft_checkpoints_wait(weft_checkpoints *checkpoints);
/* The newest whole checkpoint, its tensors into the store; damaged ones are named in warnings and
 * passed over. *state is NULL when there is none. `path` (512 bytes) is its folder. */
weft_status weft_checkpoints_load(weft_checkpoints *checkpoints, json_t **state, char path[512]);
/* Step of the last one written or loaded, -1 if none. */
int64_t weft_checkpoints_last(const weft_checkpoints *checkpoints);

#endif
