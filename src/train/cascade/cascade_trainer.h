/* Training by iterations of cascades: what the trainer asks for a step, and `weft train --dry-run`.
 *
 *     loader ──peek──> samples of i+1 ──> train/cascade_ahead ──> placed iteration
 *        │                                                             │
 *        └─ clips, latents, captions ─> inputs, encoders <─ train/cascade_run ─> update
 *                                                   │
 *     train/cascade_cost <── seconds of each cascade ┴──> train/cascade_log
 */
#ifndef WEFT_TRAIN_CASCADE_TRAIN_H
#define WEFT_TRAIN_CASCADE_TRAIN_H

#include "train/meter.h"
#include "train/objective.h"
#include "train/stage_steps.h"

typedef struct weft_cascade_train_setup {
    const weft_run *run;
    const char *path;
    const weft_run_models *models;
    const weft_place_of_run *place; /* of the update: one axis dp of all ranks */
    weft_store *store;
    weft_spelling *spelling; /* of captions that trained encoders read */
    int64_t stage;           /* index */
} weft_cascade_train_setup;

static inline bool weft_run_cascades(const weft_run *run)
{
    return weft_cascades_planned(&run->cascades) != WEFT_CASCADES_NONE;
}

typedef struct weft_cascade_train weft_cascade_train;
/* The update and what its buckets keep, in the store; borrows the setup's pointers. Collective. */
weft_status weft_cascade_train_open(const weft_cascade_train_setup *setup,
                                    weft_cascade_train **out);
void weft_cascade_train_free(weft_cascade_train *train); /* accepts NULL */
/* As a stage's steps without cascades are looked at: programs on one rank by bucket, and the
 * update. The list is the caller's, the steps are not. */
weft_status weft_cascade_train_steps(weft_cascade_train *train, weft_stage_steps *steps);
/* Encoders, prices and the first plan, once weights are there and the loader, of whose batches no
 * item is this rank's, stands where the next step begins, `step` of the run. `no_text`: as
 * weft_cascade_stage_begin has it. */
weft_status weft_cascade_train_begin(weft_cascade_train *train, weft_loader *loader,
                                     const float *no_text, int64_t step);
/* Runs the iteration of a step and plans the next; then the update is ready to be run. */
weft_status weft_cascade_train_run(weft_cascade_train *train, int64_t step, weft_step **update,
                                   weft_step_figures *figures);
/* The update has run: what the iteration came to is gathered, told and noted for the next plans. */
weft_status weft_cascade_train_note(weft_cascade_train *train);
/* A stage's end, or where the run is stopped in it: pictures, and a line on what its iterations
 * came to. */
weft_status weft_cascade_train_end(weft_cascade_train *train);

/* Instead of all that: plans the first iterations and adds their tables to `out`; nothing is run or
 * written, and the setup's communicator is not spoken with. `fixed`: bytes of a rank beside its
 * programs. `svg` (or NULL) gets the chart of the first. */
weft_status weft_cascade_train_foresee(weft_cascade_train *train, weft_loader *loader,
                                       int64_t fixed, int iterations, weft_buf *svg, weft_buf *out);

#endif
