/* The steps of a training stage for another rank whose programs have the same shapes. Graphs, plans
 * and code are shared (weft_program_twin). Used to simulate many equal ranks. */
#ifndef WEFT_TRAIN_STEP_TWIN_STEPS_H
#define WEFT_TRAIN_STEP_TWIN_STEPS_H

#include "train/step/stage_programs.h"

typedef struct weft_twin_steps {
    weft_stage_programs steps; /* programs of the other rank; graphs are borrowed */
    weft_step *step;           /* [steps.count] targets of steps.bucket */
    weft_program **program;    /* [programs] all programs; owned */
    int programs;
} weft_twin_steps;

/* Makes the steps of `rank`. `like` is borrowed, must not be bound, and must outlive the twin. */
weft_status weft_twin_steps_make(const weft_stage_programs *like, const weft_backend *backend,
                                 int rank, weft_twin_steps *twin);
void weft_twin_steps_free(weft_twin_steps *twin);

#endif
