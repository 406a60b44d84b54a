/* Refinement of a coarse video: the video is enlarged in space and time, encoded, noised to a
 * level, and denoised from there. The model sees whole blocks of latent frames, so that the first
 * frame is repeated before the video and the last one after it:
 *
 *     given frames:   front copies of the first given frame | given frames
 *     enlarged video: front copies of its first frame | the video | copies of its last frame
 *
 * Latents of given frames replace the first ones of the enlarged video. */
#ifndef WEFT_GENERATE_CONDITIONING_REFINEMENT_H
#define WEFT_GENERATE_CONDITIONING_REFINEMENT_H

#include "generate/conditioning/frame_inputs.h"
#include "model/tiling.h"

/* The file with the coarse video, and how it is enlarged. */
typedef struct weft_coarse_video {
    const char *file; /* NULL: none */
    bool same_frames; /* no new frames; false: the refined video has twice the frames */
} weft_coarse_video;

/* Frames of a refined video. Zero: the video is not refined. */
typedef struct weft_refinement {
    int64_t coarse; /* frames of the coarse video */
    int64_t frames; /* of the refined video */
    int64_t front;  /* frames before the refined video */
    int64_t given;  /* latent frames that are given, a multiple of `whole`; 0: none */
    int64_t latent; /* latent frames of all, a multiple of `whole` */
} weft_refinement;

/* Frames and rate of the refined video of all frames of the file. Decodes the file if it does not
 * have the number of its frames. WEFT_E_SHAPE: the file has one frame. */
weft_status weft_refinement_size(const weft_coarse_video *video, int64_t *frames);
weft_status weft_refinement_rate(const weft_coarse_video *video, double *fps);
/* Lays out a refined video of `frames`, which begins with `given` frames. `whole`: latent frames of
 * a block. WEFT_E_SHAPE: illegal `frames` or `given`. */
weft_status weft_refinement_lay(const weft_coarse_video *video, int64_t frames, int64_t given,
                                int64_t whole, const weft_grid *grid, weft_refinement *refinement);
/* Checks that a refined video can have `frames`. */
weft_status weft_refinement_check_frames(const weft_coarse_video *video, int64_t frames);
/* Checks that the file has frames for a refined video of `frames`, with an aspect ratio near that
 * of the size. */
weft_status weft_refinement_check_file(const weft_coarse_video *video, int64_t frames,
                                       int64_t height, int64_t width, weft_fit fit);

/* The enlarged video, one box at a time (weft_box_fn; the user pointer is `source`). Rows, columns
 * and frames are interpolated linearly between the first and the last one. Two frames of the file
 * are in memory. */
typedef struct weft_refinement_source weft_refinement_source;
weft_status weft_refinement_source_open(const weft_coarse_video *video, const weft_refinement *r,
                                        const weft_canvas *canvas, weft_refinement_source **source);
weft_status_code weft_refinement_source_box(void *source, const int64_t first[3],
                                            const int64_t size[3], float *to);
void weft_refinement_source_close(weft_refinement_source *source); /* accepts NULL */
/* Bytes of the enlarged frames of a source. */
int64_t weft_refinement_source_bytes(const weft_canvas *canvas);

#endif
