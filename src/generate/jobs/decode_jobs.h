/* Decodes the saved latents of a resumed run's jobs, and files of latents, with the VAE alone. */
#ifndef WEFT_GENERATE_JOBS_DECODE_JOBS_H
#define WEFT_GENERATE_JOBS_DECODE_JOBS_H

#include "generate/jobs/generation_context.h"

/* Decodes the saved latents of unfinished jobs, before the transformer is loaded. */
weft_status weft_decode_jobs(weft_generation_context *context);
/* Decodes the files of latents `paths` to run->out. Several files need a folder. */
weft_status weft_decode_jobs_files(const weft_generation_run *run, const char *const *paths,
                                   int count);

#endif
