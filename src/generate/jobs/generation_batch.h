/* A batch of videos: its prompts and windows go through the generator in sequence. */
#ifndef WEFT_GENERATE_JOBS_GENERATION_BATCH_H
#define WEFT_GENERATE_JOBS_GENERATION_BATCH_H

#include "generate/jobs/generation_group.h"

/* Measurements of one window; a video without continuation has one. Times are weft_now(). */
typedef struct weft_generation_window {
    int64_t begun_at;    /* step that it resumes from */
    double began;        /* time of its begin */
    double stepping;     /* time when the denoising steps began */
    double first_step;   /* seconds of the first step */
    double decoded;      /* end of the last decoding; 0: denoising has not ended */
    double first_frame;  /* seconds from `began` to frames that come before; 0: none came */
    double saved_at;     /* time of the last save of the sampler state */
    double save_seconds; /* seconds of that save */
} weft_generation_window;

/* Lives for a batch. */
typedef struct weft_generation_batch {
    weft_generation_context *context; /* borrowed, as the next two */
    weft_generation_group *group;
    const weft_job_batch *jobs;
    double denoising, decoding; /* measured seconds, except the current window */
    weft_generation_window window;
} weft_generation_batch;

/* Number of the job that is prompt `prompt` of the batch. */
int64_t weft_generation_batch_job(const weft_generation_batch *batch, int64_t prompt);
/* Generates the batch's videos. `noise`: initial latents of all jobs; NULL: from the seeds. */
weft_status weft_generation_batch_run(weft_generation_group *group, const weft_job_batch *jobs,
                                      const float *noise);

#endif
