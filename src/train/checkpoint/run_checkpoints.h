/* The checkpoints of a training run: its trained models as parts, its provenance, and the state
 * that a resumed run continues from. */
#ifndef WEFT_TRAIN_CHECKPOINT_RUN_CHECKPOINTS_H
#define WEFT_TRAIN_CHECKPOINT_RUN_CHECKPOINTS_H

#include "data/loader.h"
#include "train/checkpoint/checkpoint.h"
#include "train/graph/objective.h"
#include "train/monitor/outlier_guard.h"

/* Progress of a run, saved in each checkpoint. */
typedef struct weft_run_progress {
    int64_t done; /* steps done */
    weft_guard guard;
    double fps; /* frame rate of the clips; 0: unknown before the first training stage */
} weft_run_progress;

typedef struct weft_run_checkpoints {
    const weft_run *run;                                  /* borrowed */
    const weft_run_models *models;                        /* borrowed */
    weft_comm *comm;                                      /* borrowed */
    weft_checkpoint_part part[WEFT_CHECKPOINT_MAX_PARTS]; /* trained models; configs are owned */
    int parts;
    weft_buf yaml;   /* resolved config */
    json_t *made_of; /* provenance, on rank 0; written into each checkpoint */
    weft_checkpoints *files;
    /* State of the loaded checkpoint, until its training stage has started; NULL: none. */
    json_t *resumed;
} weft_run_checkpoints;

/* Lists the trained models of a run, without their configs, and returns their number. */
int weft_run_checkpoints_parts(const weft_run *run, const weft_run_models *models,
                               weft_checkpoint_part part[WEFT_CHECKPOINT_MAX_PARTS]);
/* Lists the trained models of the run and dumps its config. */
weft_status weft_run_checkpoints_create(const weft_run *run, const weft_run_models *models,
                                        weft_comm *comm, weft_run_checkpoints *checkpoints);
/* Collective. Sets lora.recorded to the layers with LoRA in the newest checkpoint of the run, for
 * lora.targets: auto. The list is in `arena`. */
weft_status weft_run_checkpoints_targets(weft_run *run, weft_comm *comm, weft_arena *arena);
/* Frees all but the files, which weft_checkpoints_close closes. */
void weft_run_checkpoints_free(weft_run_checkpoints *checkpoints);
/* Loads the newest checkpoint into the store before the first training stage, and its progress.
 * Every rank reads it. */
weft_status weft_run_checkpoints_resume(weft_run_checkpoints *checkpoints, weft_store *store,
                                        weft_run_progress *progress);
/* Restores the loader's position in the training stage that the run resumes. With
 * checkpoint.allow_changes, starts at the beginning of changed data. */
weft_status weft_run_checkpoints_restore_loader(const weft_run_checkpoints *checkpoints,
                                                weft_loader *loader);
/* Starts writing a checkpoint. Collective; rank 0 adds the state. */
weft_status weft_run_checkpoints_save(weft_run_checkpoints *checkpoints,
                                      const weft_run_progress *progress, int64_t train_stage_index,
                                      const weft_loader *loader);

#endif
