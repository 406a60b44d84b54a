/* Clips of a further data set with the keys of the first one, decoded in every step: a face, or a
 * mask. */
#ifndef WEFT_TRAIN_STEP_PAIRED_CLIPS_H
#define WEFT_TRAIN_STEP_PAIRED_CLIPS_H

#include "comm/comm.h"
#include "train/graph/run_pair.h"

typedef struct weft_paired_clips weft_paired_clips;

/* Opens the set of `pair` (borrowed strings). */
weft_status weft_paired_clips_open(const weft_run *run, const weft_run_pair *pair,
                                   weft_paired_clips **clips);
/* Rejects a sample without a clip of at least `frames` frames at the run's frame rate. `own`
 * receives the clip. */
weft_status weft_paired_clips_check(const weft_paired_clips *clips, const weft_sample *sample,
                                    int64_t frames, const weft_sample **own);
/* Collective. Checks the clips of all samples of the latent cache `first`, and decodes the frames
 * that steps will read, unless a cache has their latents. The ranks share the clips, and all leave
 * soon after one finds a clip that cannot be used; the error names the clip. `grid`: of the
 * latents. WEFT_E_CANCELLED on all ranks if any rank was interrupted. */
weft_status weft_paired_clips_check_all(weft_paired_clips *clips, const weft_dataset *first,
                                        const weft_grid *grid, weft_comm *comm);
/* Hash of the contents of the data set. */
uint64_t weft_paired_clips_fingerprint(const weft_paired_clips *clips);
/* Bytes that reading the clips of the data set `path` reserves: the largest file, frames of the
 * largest size in `size` (RGB), and the samples' index. `marks`: also a mask's frames as floats.
 * A data set that does not exist is not counted, with a warning. */
weft_status weft_paired_clips_bytes(const weft_run *run, const char *path, const weft_bucket *size,
                                    int sizes, bool marks, int64_t *bytes);
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
