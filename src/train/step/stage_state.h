/* State of one training stage, which its steps share: programs, batches and totals. */
#ifndef WEFT_TRAIN_STEP_STAGE_STATE_H
#define WEFT_TRAIN_STEP_STAGE_STATE_H

#include "data/loader.h"
#include "train/step/batch_share.h"
#include "train/step/paired_clips.h"
#include "train/step/paired_latents.h"
#include "train/step/stage_programs.h"
#include "train/step/train_context.h"

/* Totals of the stage's steps so far, without the totals of pp_executor. */
typedef struct weft_stage_totals {
    weft_offload_times offload_times;
    weft_comm_times sent;
    double seconds; /* seconds of steps */
} weft_stage_totals;

/* Lives for a training stage. Zero-initialise; free with weft_stage_state_free. */
typedef struct weft_stage_state {
    const weft_train_stage *train_stage; /* borrowed */
    int64_t index;
    weft_stage_programs programs;  /* steps are borrowed */
    weft_pp_executor *pp_executor; /* runs the pipeline stages of `programs`; NULL: no pipeline */
    double *flops;                 /* FLOPs of a run over all ranks, by program */
    double *bf16_flops;            /* part of `flops` in bf16, by program; in the same memory */
    int *bucket_of;                /* bucket of each microbatch of a step */
    /* Packed text conditioning of the empty caption. NULL: captions are encoded in the step. */
    float *no_text;
    weft_loader *loader;
    /* Further data sets (weft_run_pairs_of), one of the two of each; NULL: the other one */
    weft_paired_latents *pair[WEFT_RUN_PAIRS];
    weft_paired_clips *clips[WEFT_RUN_PAIRS];
    float **grey;                /* by bucket: latents of grey frames; NULL: not needed */
    weft_batch_share share;      /* of the loader's batches */
    weft_stragglers *stragglers; /* straggler detection, on rank 0; NULL: off */
    weft_stage_totals totals;
} weft_stage_state;

/* Collective. Counts the FLOPs of `programs`, which are set. `watch`: starts straggler detection if
 * the config sets it. */
weft_status weft_stage_state_create(const weft_train_context *context, bool watch,
                                    weft_stage_state *train_stage);
/* Reserves the memory of the programs, of which none is bound. */
weft_status weft_stage_state_bind(weft_train_context *context, weft_stage_state *train_stage);
void weft_stage_state_free(weft_stage_state *train_stage);
/* Bytes of the bound programs and of the pipeline's microbatch buffers. */
int64_t weft_stage_state_bytes(const weft_train_context *context,
                               const weft_stage_state *train_stage);
/* Prints the bytes sent and offloaded in the stage's steps, and the share hidden behind compute. */
void weft_stage_state_print_traffic(const weft_stage_state *train_stage);

#endif
