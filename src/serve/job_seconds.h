/* Seconds of the running job as functions of its price and of the worker's messages. */
#ifndef WEFT_SERVE_JOB_SECONDS_H
#define WEFT_SERVE_JOB_SECONDS_H

#include <stdint.h>

/* Progress of the running job, from the worker's messages. */
typedef struct weft_worker_progress {
    int64_t done, total; /* steps and videos; total 0: unknown */
    int64_t videos;      /* of `total`; 0: 1 */
    int64_t first;       /* `done` of the first message: steps of earlier runs, and one */
    double seconds_left; /* negative: unknown */
    int64_t preview;     /* time of the preview's file in ms; 0: none */
} weft_worker_progress;

/* Seconds from the start of a job to its first step, at the first message, which the worker writes
 * after one step. `elapsed`: seconds since the start; `seconds`: predicted seconds of this run,
 * with `decode` seconds for the decoding of all videos (0: unknown). One-time work of the first
 * step counts as start. */
double weft_job_start_seconds(const weft_worker_progress *progress, double elapsed, double seconds,
                              double decode);
/* Steps of `total`; 0: unknown. */
int64_t weft_job_steps(const weft_worker_progress *progress);
/* Remaining seconds of the job by its progress; negative: unknown. The first message measures no
 * ordinary step. While the worker denoises, it reports the seconds of the steps alone. While it
 * decodes the first of several videos, it reports the seconds of this video alone. `decode`:
 * predicted seconds of the decoding of all videos; 0: unknown. */
double weft_job_seconds_left(const weft_worker_progress *progress, double decode);

/* Remaining seconds as of weft_job_seconds_left, `since` seconds after the last message; *step:
 * seconds until the end of the step that runs, 0: unknown. */
double weft_job_seconds_left_since(const weft_worker_progress *progress, double decode,
                                   double since, double *step);

/* Measured seconds per predicted second, after a job that was expected to take `expected` seconds
 * by the pace before, and took `actual` ones. The mean of up to 4 jobs, then one that follows the
 * last ones. pace 0: unknown. `jobs`: measured before; 0: this job replaces the pace. */
double weft_job_pace(double pace, double expected, double actual, int64_t jobs);
/* Measured seconds of the end of a video beyond its predicted decoding, such as the writing of the
 * file: a mean as of weft_job_pace. `rest`: of this job. */
double weft_job_finish(double finish, double rest, int64_t jobs);

#endif
