/* The steps of a stage for another rank whose programs have the same shapes: graphs, plans and code
 * are shared (runtime/runtime.h, weft_program_twin). For simulations with many equal ranks. */
#ifndef WEFT_TRAIN_TWIN_STEPS_H
#define WEFT_TRAIN_TWIN_STEPS_H

#include "train/stage_steps.h"

typedef struct weft_twin_steps {
    weft_stage_steps steps; /* programs of `rank`; graphs are borrowed */
    weft_step *step;        /* [steps.count] what steps.bucket points to */
    weft_program **program; /* [programs] all of them */
    int programs;
} weft_twin_steps;

/* `like` is borrowed, is not bound, and outlives the twin. */
weft_status weft_twin_steps_make(const weft_stage_steps *like, const weft_backend *backend,
                                 int rank, weft_twin_steps *twin);
void weft_twin_steps_free(weft_twin_steps *twin);

#endif
