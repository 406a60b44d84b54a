/* Inputs of models that animate a character (WEFT_FRAME_CONDITION_CHARACTER): its image, a video of
 * poses, and a video of a face. With a background and a mask the character replaces what is white
 * in the mask; otherwise all pixels are new.
 *
 *   latent frame   marks                       latents on channels            control
 *   0              1                           image                          -
 *   others         1 - mask; 1: frames of      frames of the window before,   poses
 *                  the window before           background; else grey
 *
 * Frames after the end of a video are its frames in reverse, and forwards again. */
#ifndef WEFT_GENERATE_CONDITIONING_CHARACTER_H
#define WEFT_GENERATE_CONDITIONING_CHARACTER_H

#include "generate/conditioning/visual_condition.h"

typedef struct weft_character weft_character;

/* Checks the inputs, and sets the counts of channels and pixels in `visual`. Opens the encoders.
 * setup->frames has the latent frame of the image. */
weft_status weft_character_open(const weft_visual_inputs *files,
                                const weft_visual_condition_setup *setup,
                                weft_visual_condition *visual, weft_character **character);
int64_t weft_character_bytes(const weft_character *character);
/* Fills the extra channels, the control and the face of window `window`. `carried`: the last frames
 * of the window before (files->prefix_frames,height,width,3) in [-1,1]; NULL: none. */
weft_status weft_character_read(weft_character *character, weft_visual_condition *visual,
                                int64_t window, const float *carried);
void weft_character_free(weft_character *character); /* accepts NULL */

/* How much of a pixel of a mask is kept: 1 for black, 0 for white. Colours in [-1,1]. */
float weft_character_kept(const float rgb[3]);

#endif
