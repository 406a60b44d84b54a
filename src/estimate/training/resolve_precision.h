/* Resolves `precision: auto` of a run. */
#ifndef WEFT_ESTIMATE_TRAINING_RESOLVE_PRECISION_H
#define WEFT_ESTIMATE_TRAINING_RESOLVE_PRECISION_H

#include "comm/comm.h"
#include "plan/cluster/cluster.h"
#include "train/graph/objective.h"

#define WEFT_PRECISION_CHOICE_FORMAT "weft.precision-choice/1"

/* The choice of a run. <out>/precision-choice.json stores it, so that a resumed run computes in the
 * same type even if the rates of the machine have changed:
 *
 *   {"format": "weft.precision-choice/1", "weft": VERSION, "id": hash of the file's content,
 *    "precision": "bf16"} */
typedef struct weft_precision_choice {
    int precision; /* weft_precision; WEFT_PRECISION_AUTO: no choice */
    bool changed;  /* differs from the file */
} weft_precision_choice;

/* Reads the choice of the run folder `out`. Without a file, the choice is empty. WEFT_E_FORMAT: the
 * file was edited or damaged. */
weft_status weft_precision_choice_load(const char *out, weft_precision_choice *choice);
/* Writes the choice to the run folder `out`, atomically. */
weft_status weft_precision_choice_save(const char *out, const weft_precision_choice *choice);

/* Returns bf16 if a step of the run is faster in bf16 by at least a tenth, else f32. The step runs
 * on one rank without a memory limit, at the rates of `cluster`. Without units for bf16: f32. `why`
 * gets the reason. `run` may have any precision. */
weft_status weft_precision_choose(const weft_run *run, const weft_run_models *models,
                                  const char *path, const weft_cluster *cluster, bool bf16_units,
                                  weft_arena *arena, int *precision, weft_buf *why);

/* Replaces `precision: auto` by the stored choice, or else by a new one. With f32,
 * grad_reduce_dtype becomes f32. Does nothing for another precision.
 *
 * Rates are of the cluster `spec`. For "local" they come from <out>/profile.json, or without
 * a profile from a measurement of the run's backend (under a second). Rank 0 chooses for all ranks
 * of `comm` (NULL: one process). `stored` is the choice in the run folder, read by rank 0, and
 * becomes the choice. On rank 0, `out` gets a line about the choice. */
weft_status weft_run_resolve_precision(weft_run *run, const weft_run_models *models,
                                       const char *path, const char *spec, weft_comm *comm,
                                       weft_precision_choice *stored, weft_arena *arena,
                                       weft_buf *out);

/* weft_run_resolve_precision in a process that only predicts, with the choice stored in the run
 * folder, if any. */
weft_status weft_run_predict_precision(weft_run *run, const weft_run_models *models,
                                       const char *path, const char *spec, weft_arena *arena,
                                       weft_buf *out);

#endif
