/* The jobs of a resumed run whose videos exist, and their saved files. */
#ifndef WEFT_GENERATE_JOBS_FINISHED_JOBS_H
#define WEFT_GENERATE_JOBS_FINISHED_JOBS_H

#include "generate/jobs/generation_context.h"

/* Sets context->done for existing videos and prints their number, with --resume. The result is the
 * same on all ranks. WEFT_E_ARG: an existing video of the list has other settings than its job. */
weft_status weft_finished_jobs_find(weft_generation_context *context);
/* Removes saved files of finished videos, which a run leaves that was killed after writing a video.
 * A sampler state belongs to a batch and stays until all its videos exist. */
void weft_finished_jobs_clean(const weft_generation_context *context);

#endif
