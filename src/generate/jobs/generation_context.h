/* State of a generation run, which its batches share: jobs, ranks, outputs and progress. */
#ifndef WEFT_GENERATE_JOBS_GENERATION_CONTEXT_H
#define WEFT_GENERATE_JOBS_GENERATION_CONTEXT_H

#include "base/hex.h"
#include "generate/generator/decode.h"
#include "generate/jobs/generation_progress.h"
#include "generate/jobs/generation_run.h"
#include "generate/jobs/job_files.h"

/* The ranks that generate the same videos. */
typedef struct weft_generation_team {
    weft_comm *comm; /* communicator of this team; NULL: each rank works alone */
    int number;
    bool writes;   /* first rank of its team */
    bool is_rank0; /* rank 0 of the run */
} weft_generation_team;

/* Lives for the run. Free with weft_generation_context_free. */
typedef struct weft_generation_context {
    const weft_generation_run *run; /* borrowed; its jobs have all values */
    weft_video_outputs_item *items; /* [jobs] */
    bool *done;                     /* [jobs] the video exists */
    weft_job_files files;
    weft_job_batches batches;
    weft_generation_team team;
    bool opened;  /* the outputs are open on all ranks */
    bool checked; /* the sizes of all jobs are */
    weft_video_outputs *outputs;
    char model[WEFT_HEX_BYTES]; /* identity of the model; "": not computed */
    bool preview_failed;        /* warned about a failed preview */
    weft_generation_progress progress;
    weft_kept_sound sound; /* decoder of the sound of saved latents */
} weft_generation_context;

/* Fills in the jobs' unset values, assigns batches to *teams teams and checks the outputs. */
weft_status weft_generation_context_create(const weft_generation_run *run,
                                           weft_generation_context *context, int *teams);
void weft_generation_context_free(weft_generation_context *context);
/* Checks the outputs; repeated when the model's frame rate is known. */
weft_status weft_generation_context_check_outputs(const weft_generation_context *context);
/* Opens the outputs once per run. Collective. Removes the files that jobs of this state remove. */
weft_status weft_generation_context_open_outputs(weft_generation_context *context);
/* Whether a video of the batch is missing, for batches of this team. */
bool weft_generation_context_is_left(const weft_generation_context *context,
                                     const weft_job_batch *batch);
/* WEFT_E_CANCELLED: interrupted. Collective for the ranks of the team. */
weft_status weft_generation_context_check_interrupt(const weft_generation_context *context);
/* Collective for teams of one rank: all ranks return an error if one failed. The failed rank has
 * printed its error. */
weft_status weft_generation_context_meet(const weft_generation_context *context,
                                         weft_status_code status);

#endif
