/* A stage of a run whose steps are iterations of cascades: the executor (train/cascade_run.h) with
 * the run's models and data.
 *
 *     data.samples_from    latents    a rank of a DiT cascade reads its clips' latents from the
 *                                        cache
 *                          pixels     a rank of a VAE cascade decodes its clips and encodes them,
 *                                        or some frames of each
 *
 * Encoders that are not trained run with weights of their own on every rank that is given a cascade
 * of theirs; those that are trained belong to the DiT's program. */
#ifndef WEFT_TRAIN_CASCADE_STAGE_H
#define WEFT_TRAIN_CASCADE_STAGE_H

#include "train/cascade_run.h"
#include "train/inputs.h"

typedef struct weft_cascade_stage_setup {
    const weft_run *run; /* all borrowed */
    const weft_run_models *models;
    const weft_stage *stage;
    const weft_place_of_run *place; /* of the update: one axis "dp" of all ranks */
    weft_store *store;
    weft_spelling *spelling; /* of captions that trained encoders read */
    bool pixels;
    int64_t cache_bytes; /* of programs; 0: the usual */
} weft_cascade_stage_setup;

typedef struct weft_cascade_stage weft_cascade_stage;
weft_status weft_cascade_stage_open(const weft_cascade_stage_setup *setup,
                                    weft_cascade_stage **stage);
void weft_cascade_stage_close(weft_cascade_stage *stage); /* accepts NULL */
weft_cascade_run *weft_cascade_stage_run(weft_cascade_stage *stage);

/* From here on: clips of the loader, all of whose batches are taken item by item; what is told of
 * captions that are left away (latents: from the cache, else NULL). Loads encoders' weights. */
weft_status weft_cascade_stage_begin(weft_cascade_stage *stage, weft_loader *loader,
                                     const float *no_text);
/* What each cascade of a step hands on of a clip; floats 0: there is no such module. */
weft_cascade_row weft_cascade_stage_row(const weft_cascade_stage *stage, int bucket,
                                        weft_cascade_module module);
/* One iteration's contributions (weft_cascade_run_iteration), and the loader moved on behind the
 * stage's `accumulate` batches. */
weft_status weft_cascade_stage_step(weft_cascade_stage *stage, const weft_placed_iteration *plan,
                                    weft_iteration_done *done);

#endif
