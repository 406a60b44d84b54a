/* State of a run, which its steps share: config, models, device, weights, programs and progress. */
#ifndef WEFT_TRAIN_STEP_TRAIN_CONTEXT_H
#define WEFT_TRAIN_STEP_TRAIN_CONTEXT_H

#include "prompt/text_tokens.h"
#include "train/checkpoint/run_checkpoints.h"
#include "train/monitor/step_telemetry.h"
#include "train/step/compiled_steps.h"

/* Lives for the run. Zero-initialise; free with weft_train_context_free. */
typedef struct weft_train_context {
    const weft_run *run; /* borrowed; with the resolved layout */
    const char *path;    /* path of the config, for messages; borrowed */
    weft_run_models models;
    weft_exec_config exec; /* its communicator and pipeline are borrowed */
    bool is_rank0;         /* rank 0 writes the run's files */
    bool meta;             /* device without values: dry run */
    weft_store *store;
    weft_compiled_steps *steps;
    weft_tokenizer_set tokenizers; /* tokenizers of captions that are encoded in the step */
    weft_run_progress progress;
    weft_step_telemetry telemetry;
} weft_train_context;

/* Creates the empty store on the backend's device, the cache of programs, the outlier guard
 * and the telemetry, after `run` and `exec` are set. */
weft_status weft_train_context_create(weft_train_context *context);
void weft_train_context_free(weft_train_context *context);
/* Replaces the cache of programs with an empty one. */
weft_status weft_train_context_drop_programs(weft_train_context *context);

#endif
