/* What a program that trains is given of a batch: clips or latents, captions, and the keys of all
 * randomness. */
#ifndef WEFT_TRAIN_INPUTS_H
#define WEFT_TRAIN_INPUTS_H

#include "train/objective.h"

typedef struct weft_inputs {
    const weft_run *run;
    const weft_run_models *models;
    weft_spelling *spelling; /* of captions that are encoded in the step */
    /* What is told of captions that are left away, packed: embeddings come with the batch; NULL:
     * captions are encoded in the step. */
    const float *no_text;
} weft_inputs;

/* Items of this rank in `batch` into the inputs "batch.*" that `find` finds; one that it does not
 * find is not needed here. `step` of the run, from 0. */
weft_status weft_inputs_fill(const weft_inputs *inputs, int64_t step, const weft_batch *batch,
                             weft_find_input *find, void *user);

#endif
