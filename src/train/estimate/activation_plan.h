/* The activation plan of a run: per stage, the saved activations that are recomputed or offloaded
 * for memory.limit. <out>/activation-plan.json keeps it, so that a resumed run uses the plan that
 * the run began with, whatever rates are measured at its start:
 *
 *   {"format": "weft.activation-plan/1", "weft": VERSION, "id": hash of all of it,
 *    "stages": [{"inputs": hash, "recompute": [node, ...], "offload": [node, ...]}, ...]} */
#ifndef WEFT_TRAIN_ACTIVATION_PLAN_H
#define WEFT_TRAIN_ACTIVATION_PLAN_H

#include "pass/pass.h"
#include "runtime/comm.h"

#define WEFT_ACTIVATION_PLAN_FORMAT "weft.activation-plan/1"

typedef struct weft_activation_stage {
    uint64_t inputs; /* hash of all that the plan may follow from, but for measured rates */
    weft_fates fates;
} weft_activation_stage;

typedef struct weft_activation_plan {
    weft_activation_stage *stage; /* heap */
    int64_t stages;
    bool changed; /* differs from the file */
} weft_activation_plan;

/* Reads the plan of the run folder `out`; without a file an empty plan. WEFT_E_FORMAT: the file was
 * edited or damaged. */
weft_status weft_activation_plan_load(const char *out, weft_activation_plan *plan);
/* Collective. Gives rank 0's plan to all ranks. `read`: the status of rank 0's load. */
weft_status weft_activation_plan_share(weft_activation_plan *plan, weft_comm *comm,
                                       weft_status_code read);
/* Atomic. */
weft_status weft_activation_plan_save(const char *out, const weft_activation_plan *plan);
void weft_activation_plan_free(weft_activation_plan *plan);

/* The stored choice of stage `index` if it was made from `inputs`; NULL: plan the stage. */
const weft_fates *weft_activation_plan_find(const weft_activation_plan *plan, int64_t index,
                                            uint64_t inputs);
/* Stores a copy of the choice of stage `index` of `stages`. */
weft_status weft_activation_plan_set(weft_activation_plan *plan, int64_t index, int64_t stages,
                                     uint64_t inputs, const weft_fates *fates);

#endif
