/* Opens the loader of a training stage: clips, or cached latents and embeddings. */
#ifndef WEFT_TRAIN_LATENTS_STAGE_LOADER_H
#define WEFT_TRAIN_LATENTS_STAGE_LOADER_H

#include "train/step/stage_state.h"

/* Collective. Opens stage->loader, sets the frame rate of the run and writes the data report.
 * `latents`: folder of the latent cache, if the stage reads one. `pairs`: folders of the latents of
 * further data sets (weft_run_pairs_of). `by_item`: the rank that needs a clip loads it,
 * so batches have no items of this rank. */
weft_status weft_stage_loader_open(weft_train_context *context, weft_stage_state *train_stage,
                                   const char *latents, char pairs[WEFT_RUN_PAIRS][512],
                                   bool by_item);
/* Bytes that the loader of training stage `index` reserves for the batches of this rank. */
weft_status weft_stage_loader_bytes(const weft_run *run, const weft_run_models *models,
                                    const weft_exec_config *exec, int64_t index,
                                    const weft_stage_programs *programs, int64_t *bytes);
/* Collective. Writes the data report known so far to <out>/data-stage-<n>.json, with the outcome of
 * every sample. */
weft_status weft_stage_loader_report(const weft_train_context *context,
                                     weft_stage_state *train_stage, const char *title);

#endif
