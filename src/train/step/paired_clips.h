/* Clips of a further data set with the keys of the first one, decoded in every step: a face, or a
 * mask. */
#ifndef WEFT_TRAIN_STEP_PAIRED_CLIPS_H
#define WEFT_TRAIN_STEP_PAIRED_CLIPS_H

#include "train/graph/run_pair.h"

typedef struct weft_paired_clips weft_paired_clips;

/* Opens the set of `pair` (borrowed strings). Every sample of the latent cache `first` must have a
 * clip of at least its frames at the run's frame rate; otherwise the error names the first one
 * without. `grid`: of the latents. */
weft_status weft_paired_clips_open(const weft_run *run, const weft_run_pair *pair,
                                   const weft_dataset *first, const weft_grid *grid,
                                   weft_paired_clips **clips);
void weft_paired_clips_close(weft_paired_clips *clips); /* accepts NULL */
/* Reads the first frames of the clip of sample `id` into to[frames, height, width, 3] in [-1,1].
 * Frames are scaled to cover `size`. Their middle is used. */
weft_status weft_paired_clips_read(weft_paired_clips *clips, uint64_t id, const weft_bucket *size,
                                   float *to);
/* Reads a mask as marks: to[latent frames, rows, columns, frames of a latent]. A mark is 1 for
 * black and 0 for white, at the first pixel of each latent. The first frame fills a latent frame
 * alone. */
weft_status weft_paired_clips_marks(weft_paired_clips *clips, uint64_t id, const weft_bucket *size,
                                    const weft_grid *grid, float *to);

#endif
