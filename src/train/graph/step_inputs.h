/* Fills the inputs of a training program from a batch: clips or latents, captions, and random
 * keys. */
#ifndef WEFT_TRAIN_GRAPH_STEP_INPUTS_H
#define WEFT_TRAIN_GRAPH_STEP_INPUTS_H

#include "prompt/text_tokens.h"
#include "train/graph/objective.h"

typedef struct weft_inputs {
    const weft_run *run;
    const weft_run_models *models;
    weft_tokenizer_set *tokenizers; /* tokenizers of captions that are encoded in the step */
    /* Packed text conditioning of the empty caption; the batch contains the embeddings of its
     * captions. NULL: captions are encoded in the step. */
    const float *no_text;
    int64_t sound_floats; /* of a sample, after its text conditioning (weft_run_sound_floats) */
    weft_model_size clip; /* latents of the batch's clips (weft_run_latent_size) */
} weft_inputs;

/* Copies this rank's samples of `batch` into the inputs "batch.*". `find` returns the input of a
 * name, or NULL if this rank does not need it. `step`: step of the run, from 0. The caller
 * sets the inputs of further data sets and of grey frames. Their latents are normalised in place:
 * "batch.rejected", "batch.control", "batch.image", "batch.overlap", "batch.background",
 * "batch.first_frame", "batch.rejected_first_frame", "batch.rejected_sound", "batch.grey", and
 * latents in "batch.identity". */
weft_status weft_inputs_fill(const weft_inputs *inputs, int64_t step, const weft_batch *batch,
                             weft_input_lookup *find, void *user);
/* Sets caption `row` of the inputs, as tokens or as its precomputed embedding (NULL if the caption
 * is empty). */
weft_status weft_inputs_set_caption(const weft_inputs *inputs, weft_input_lookup *find, void *user,
                                    int64_t row, const char *caption, const float *embedding);
/* The random key of sample i of a batch. */
int64_t weft_inputs_key(const weft_inputs *inputs, int64_t step, const weft_batch *batch,
                        int64_t i);

#endif
