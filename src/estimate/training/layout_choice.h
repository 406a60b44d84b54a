/* The choices of `context: auto` and `slices: auto` of a run. <out>/layout-choice.json stores them.
 * A resumed run thus uses its first layout, even if the profile has changed:
 *
 *   {"format": "weft.layout-choice/1", "weft": VERSION, "id": hash of the file's content,
 *    "inputs": hash,
 *    "context": {"kind", "ulysses", "ring"},
 *    "slices": {"kind", "time", "space", "lift_time", "lift_space", "heads", "chunks"}} */
#ifndef WEFT_ESTIMATE_TRAINING_LAYOUT_CHOICE_H
#define WEFT_ESTIMATE_TRAINING_LAYOUT_CHOICE_H

#include "train/graph/objective.h"
#include "transform/sharding/slices.h"

#define WEFT_LAYOUT_CHOICE_FORMAT "weft.layout-choice/1"

typedef struct weft_settled {
    uint64_t inputs; /* hash of all inputs of the choice except rates; 0: no choice */
    weft_cp_config context;
    weft_comm_overlap overlap;
    bool changed; /* differs from the file */
} weft_settled;

/* Hash of the choice's inputs for a run whose `parallel` is as in its config. */
weft_status weft_settled_inputs(const weft_run *run, const weft_run_models *models, int ranks,
                                uint64_t *inputs);
/* Reads the choice of the run folder `out`. Without a file, the choice is empty. WEFT_E_FORMAT: the
 * file was edited or damaged. */
weft_status weft_settled_load(const char *out, weft_settled *choice);
/* Writes the choice to the run folder `out`, atomically. */
weft_status weft_settled_save(const char *out, const weft_settled *choice);

#endif
