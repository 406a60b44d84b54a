/* Given frames before a video (Helios): an image, or the last sections of another video. The model
 * gets the latents of
 *
 *     the image, or the first frame of the other video
 *     the other video's sections, each encoded as a video of its own; of an image, the last latent
 *     frame of a section that shows the image in every frame
 *
 * Each latent frame has a share of noise, as in training: a random number from 0.111 to 0.135. */
#ifndef WEFT_GENERATE_CONDITIONING_PRECEDING_FRAMES_H
#define WEFT_GENERATE_CONDITIONING_PRECEDING_FRAMES_H

#include "generate/conditioning/visual_condition.h"

typedef struct weft_preceding_frames {
    int64_t given;             /* latent frames after the image's; 0: no inputs */
    int64_t floats;            /* of a latent frame */
    float *latents;            /* (1 + given, floats) without noise */
    float *noisy;              /* (1 + given, floats) with the noise of the current seed */
    const char *image, *video; /* borrowed */
    weft_grid grid;
    weft_canvas canvas; /* of a section */
    int64_t sections;
    struct weft_vae *one,
        *whole; /* encoders of one frame and of a section, until the inputs are read */
} weft_preceding_frames;

/* Checks the image or video of `files` and opens the encoders. setup->grid has the section. Without
 * an image and a video, *frames is empty. Reserves no large memory. */
weft_status weft_preceding_frames_open(const weft_visual_inputs *files,
                                       const weft_visual_condition_setup *setup,
                                       weft_preceding_frames *frames);
/* Bytes that stay reserved, and temporary bytes needed while the inputs are read. */
int64_t weft_preceding_frames_bytes(const weft_preceding_frames *frames);
int64_t weft_preceding_frames_workspace_bytes(const weft_preceding_frames *frames);
/* Reads and encodes the inputs, then releases the encoders. */
weft_status weft_preceding_frames_read(weft_preceding_frames *frames);
/* Sets `noisy` for the video of a seed. */
void weft_preceding_frames_set_seed(weft_preceding_frames *frames, uint64_t seed);
void weft_preceding_frames_free(weft_preceding_frames *frames);

#endif
