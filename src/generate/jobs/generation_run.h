/* Generates a list of videos: runs the generators in sequence, writes the files, saves intermediate
 * states and resumes from them.
 *
 *     job ──> denoising ────────────────────> latents ──────────────────────> video, line of JSON
 *             NAME.sampling.safetensors       NAME.latents.safetensors        NAME.mp4
 *             after each step; removed when   before decoding; removed when the
 *             the latents exist               video exists, unless kept
 *
 * Resuming looks for these files from right to left; job_rules.def has every action on a file.
 *
 *     generation_run.c         the run: finished videos, saved latents, then the other batches
 *     generation_context.c     jobs, teams of ranks, outputs
 *     finished_jobs.c          --resume: existing videos
 *     decode_jobs.c            --resume: saved latents
 *     generation_group.c       batches of one generator
 *     generation_batch.c       one batch: its windows in sequence
 *     batch_events.c           events of the generator: progress, files, frames
 *     batch_files.c            saved files of the batch
 *     job_files.c, job_rules.c names and actions of saved files */
#ifndef WEFT_GENERATE_JOBS_GENERATION_RUN_H
#define WEFT_GENERATE_JOBS_GENERATION_RUN_H

#include "generate/generator/generator.h"
#include "generate/jobs/jobs.h"

typedef struct weft_generation_run {
    const char *model, *out; /* out: file of one video, else a folder */
    const char *sheet;       /* NULL: none */
    bool raw;                /* writes the frames as .npy, too */
    bool latents;            /* writes the latents as .latents.npy, too */
    bool keep_latents;       /* keep the saved latents next to the video */
    bool resume;             /* resume from existing files */
    /* saves the sampler state per video, and resumes it in any batch; false: per batch */
    bool split_states;
    const char *noise; /* initial noise, .npy; NULL: from the seeds */
    /* Each rank may generate its own videos if there are enough; false: all ranks share each
     * video. */
    bool apart;
    /* Options of all jobs that set no other. options->batch is the maximum. */
    const weft_generator_options *options;
    /* Rates for time estimates before the first step. NULL: no estimates. */
    const struct weft_cluster *cluster;
    weft_jobs *jobs; /* unset values are filled in from the run's options */
    weft_comm *comm;
} weft_generation_run;

weft_status weft_generation_run_execute(const weft_generation_run *run);

#endif
