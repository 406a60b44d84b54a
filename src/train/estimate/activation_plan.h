/* The activation plan of a run: per stage, the saved activations that are recomputed or offloaded
 * for memory.limit. It is stored in <out>/activation-plan.json. A resumed run therefore uses the
 * plan that the run began with, whatever rates are measured at its start:
 *
 *   {"format": "weft.activation-plan/1", "weft": VERSION, "id": hash of all other keys,
 *    "stages": [{"inputs": hash, "recompute": [node, ...], "offload": [node, ...]}, ...]} */
#ifndef WEFT_TRAIN_ESTIMATE_ACTIVATION_PLAN_H
#define WEFT_TRAIN_ESTIMATE_ACTIVATION_PLAN_H

#include "comm/comm.h"
#include "transform/memory/saved_activations.h"

#define WEFT_ACTIVATION_PLAN_FORMAT "weft.activation-plan/1"

typedef struct weft_stored_activations_stage {
    uint64_t inputs; /* hash of all inputs of the plan except measured rates and process bytes */
    weft_activation_plan activations;
} weft_stored_activations_stage;

typedef struct weft_stored_activations {
    weft_stored_activations_stage *train_stage; /* heap */
    int64_t train_stages;
    bool changed; /* differs from the file */
} weft_stored_activations;

/* Reads the plan of the run folder `out`; empty if no file exists. WEFT_E_FORMAT: the file was
 * edited or damaged. */
weft_status weft_stored_activations_load(const char *out, weft_stored_activations *plan);
/* Collective. Gives rank 0's plan to all ranks. `read`: the status of rank 0's load. */
weft_status weft_stored_activations_share(weft_stored_activations *plan, weft_comm *comm,
                                          weft_status_code read);
/* Writes the file atomically. */
weft_status weft_stored_activations_save(const char *out, const weft_stored_activations *plan);
void weft_stored_activations_free(weft_stored_activations *plan);

/* The stored choice of stage `index` if it was made from `inputs`; NULL: plan the stage. */
const weft_activation_plan *weft_stored_activations_find(const weft_stored_activations *plan,
                                                         int64_t index, uint64_t inputs);
/* Stores a copy of the choice of stage `index` of `train_stages`. */
weft_status weft_stored_activations_set(weft_stored_activations *plan, int64_t index,
                                        int64_t train_stages, uint64_t inputs,
                                        const weft_activation_plan *activations);

#endif
