/* Trains by iterations of cascades: the trainer's interface for a step, and `weft train --dry-run`.
 *
 *     loader ──peek──> samples of i+1 ──> cascade_planner ──> placed iteration
 *        │                                                          │
 *        └─ clips, latents, captions ─> inputs, encoders <─ cascade_executor ─> update
 *                                                   │
 *     cascade_cost_table <── seconds of each cascade┴──> cascade_log */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_TRAINER_H
#define WEFT_TRAIN_CASCADE_CASCADE_TRAINER_H

#include "base/log.h"
#include "plan/cluster/cluster.h"
#include "prompt/text_tokens.h"
#include "train/graph/objective.h"
#include "train/monitor/train_logger.h"
#include "train/step/stage_programs.h"

typedef struct weft_cascade_train_setup {
    const weft_run *run;
    const char *path;
    const weft_run_models *models;
    const weft_exec_config *exec; /* exec config of the update: one axis "dp" of all ranks */
    weft_store *store;
    weft_tokenizer_set *tokenizers; /* tokenizers of trained encoders */
    int64_t train_stage_index;
    const weft_cluster *cluster; /* cluster of parallel.cascades */
    const char *cluster_name;    /* name of the loaded cluster, for messages */
    int64_t decoder_bytes;       /* bytes of the process while it decodes (process_memory.h) */
} weft_cascade_train_setup;

static inline bool weft_run_cascades(const weft_run *run)
{
    return weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE;
}

typedef struct weft_cascade_train weft_cascade_train;
/* Collective. Plans the update and creates its states, and those of all buckets, in the store.
 * Borrows the setup's pointers. */
weft_status weft_cascade_train_open(const weft_cascade_train_setup *setup,
                                    weft_cascade_train **out);
void weft_cascade_train_free(weft_cascade_train *train); /* accepts NULL */
/* Sets *steps to the one-rank programs by bucket and the update, for reports of a stage. The caller
 * owns the list, not the programs. */
weft_status weft_cascade_train_steps(weft_cascade_train *train, weft_stage_programs *steps);
/* Loads frozen encoders, estimates costs and starts to plan the first iteration. Call after the
 * weights are loaded. The loader is positioned at the first batch of `step` of the run, and no item
 * of its batches belongs to this rank. `no_text` as in weft_cascade_stage_begin. */
weft_status weft_cascade_train_begin(weft_cascade_train *train, weft_loader *loader,
                                     const float *no_text, int64_t step);
/* Starts to plan the next iteration and runs the current one. *update is then ready to run. */
weft_status weft_cascade_train_run(weft_cascade_train *train, int64_t step, weft_step **update,
                                   weft_step_figures *figures);
/* Gathers, logs and records the timing of the iteration, for the next plans. Call after the
 * update. */
weft_status weft_cascade_train_record(weft_cascade_train *train);
/* Ends a stage, finished or stopped: writes the charts and prints a summary of the iterations. */
weft_status weft_cascade_train_end(weft_cascade_train *train);

/* Dry run, in place of begin, run and note: plans the first iterations and appends their tables to
 * `out`. Runs and writes nothing, and does not communicate. `fixed`: bytes of a rank without its
 * programs. `progress` counts iterations. `svg` receives the chart of the first iteration; NULL:
 * none. */
weft_status weft_cascade_train_estimate(weft_cascade_train *train, weft_loader *loader,
                                        int64_t fixed, int iterations, weft_progress *progress,
                                        weft_buf *svg, weft_buf *out);

#endif
