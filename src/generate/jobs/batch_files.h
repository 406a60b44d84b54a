/* Writes and removes the saved files of a batch by the table of job_rules.def. */
#ifndef WEFT_GENERATE_JOBS_BATCH_FILES_H
#define WEFT_GENERATE_JOBS_BATCH_FILES_H

#include "generate/jobs/generation_batch.h"

/* The row of the batch's jobs in `state`. */
weft_job_row weft_batch_files_row(const weft_generation_batch *batch, weft_job_state state);
/* Performs the actions of `state` for the files of prompt `prompt`: writes, then removes. If a
 * sampler state that is due cannot be written, warns and succeeds. Writing the sampler state is
 * collective if the ranks have feature caches; the calling rank writes the other files. */
weft_status weft_batch_files_apply(weft_generation_batch *batch, int64_t prompt,
                                   weft_job_state state);
/* Writes latents for other programs, f32 of `rank` dims, to the file NAME.`ending`: "latents.npy"
 * of the video (frames, rows, columns, channels), "audio-latents.npy" (steps, features). */
weft_status weft_batch_files_write_array(const weft_generation_batch *batch, int64_t prompt,
                                         const char *ending, int rank, const int64_t *dim,
                                         const float *x);
/* Writes a preview (height, width, 3) next to the video, in place of the previous one. A failed
 * write is reported once and does not stop denoising. */
weft_status weft_batch_files_write_preview(const weft_generation_batch *batch, int64_t prompt,
                                           const float *image);

#endif
