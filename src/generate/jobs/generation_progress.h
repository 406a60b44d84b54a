/* Progress of a generation run: steps and videos that are finished, and the remaining seconds. */
#ifndef WEFT_GENERATE_JOBS_GENERATION_PROGRESS_H
#define WEFT_GENERATE_JOBS_GENERATION_PROGRESS_H

#include "base/log.h"

/* Lives for the run; of this rank's team. Zero-initialise. */
typedef struct weft_generation_progress {
    weft_progress bar;
    int64_t steps;       /* denoising steps of finished batches and windows */
    int64_t videos;      /* videos to generate */
    int64_t made;        /* videos that are written */
    double step_seconds; /* seconds per further denoising step of the current batch; 0: unknown */
    double longest;      /* maximum decoding seconds of a video so far; 0: none */
    bool foretold;       /* the first video's time was predicted */
} weft_generation_progress;

/* Seconds of a further step after `steps` steps in `elapsed` seconds, of which the first step took
 * `first`. The first step includes one-time work, so that its time counts only while no other step
 * has finished. */
double weft_generation_step_seconds(double elapsed, double first, int64_t steps);
/* Begins the line of `steps` denoising steps and progress->videos videos. `quiet`: prints
 * nothing. */
void weft_generation_progress_begin(weft_generation_progress *progress, int64_t steps, bool quiet);
/* Updates the line. `steps`: finished denoising steps of all batches. `decoding`: predicted
 * decoding seconds of the next video (0: unknown). Each written video counts as a step, so that 100
 * % is the end. Loading and text encoding are not predicted. */
void weft_generation_progress_update(weft_generation_progress *progress, int64_t steps,
                                     const char *detail, double decoding);
/* Ends the line, if it had any step or video. */
void weft_generation_progress_end(weft_generation_progress *progress);

#endif
