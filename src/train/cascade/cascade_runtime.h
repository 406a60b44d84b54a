/* Runs a training stage whose steps are iterations of cascades: the executor (cascade_executor.h)
 * with the run's models and data.
 *
 *     data.samples_from    latents    a rank of a DiT cascade reads the latents of its clips from
 *                                        the latent cache
 *                          pixels     a rank of a VAE cascade decodes and encodes its clips, or
 *                                        some frames of each
 *
 * Frozen encoders have separate weights, loaded on every rank, and run as cascades. Trained
 * encoders belong to the DiT's program. */
#ifndef WEFT_TRAIN_CASCADE_CASCADE_RUNTIME_H
#define WEFT_TRAIN_CASCADE_CASCADE_RUNTIME_H

#include "prompt/text_tokens.h"
#include "train/cascade/cascade_executor.h"
#include "train/graph/step_inputs.h"

typedef struct weft_cascade_stage_setup {
    const weft_run *run; /* all pointers are borrowed */
    const weft_run_models *models;
    const weft_train_stage *train_stage;
    const weft_exec_config *exec; /* exec config of the update: one axis "dp" of all ranks */
    weft_store *store;
    weft_tokenizer_set *tokenizers; /* tokenizers of trained encoders */
    bool pixels;
    int64_t cache_bytes; /* program cache; 0 (default): 1 GiB */
} weft_cascade_stage_setup;

typedef struct weft_cascade_stage weft_cascade_stage;
weft_status weft_cascade_stage_open(const weft_cascade_stage_setup *setup,
                                    weft_cascade_stage **runtime);
void weft_cascade_stage_close(weft_cascade_stage *runtime); /* accepts NULL */
weft_cascade_run *weft_cascade_stage_run(weft_cascade_stage *runtime);

/* Sets the loader, whose samples are loaded item by item, and loads the weights of the frozen
 * encoders. `no_text`: text conditioning of the empty caption if latents come from the cache; NULL
 * otherwise. */
weft_status weft_cascade_stage_begin(weft_cascade_stage *runtime, weft_loader *loader,
                                     const float *no_text);
/* Returns the row that a module sends per clip. floats 0: the module is not a cascade of this
 * stage. */
weft_cascade_row weft_cascade_stage_row(const weft_cascade_stage *runtime, int bucket,
                                        weft_cascade_module module);
/* Runs the cascades of one iteration (weft_cascade_run_iteration) and advances the loader by the
 * stage's `accumulate` batches. */
weft_status weft_cascade_stage_step(weft_cascade_stage *runtime, const weft_placed_iteration *plan,
                                    weft_iteration_done *done);

#endif
