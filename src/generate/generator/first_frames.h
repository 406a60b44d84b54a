/* The latents of the first frames of a video that starts from an image. */
#ifndef WEFT_GENERATE_GENERATOR_FIRST_FRAMES_H
#define WEFT_GENERATE_GENERATOR_FIRST_FRAMES_H

#include <stdint.h>

/* Moves mean and deviation of the first `first` latent frames of x (frames, each) towards the
 * moments of up to five next frames. The mean moves by -0.05 to 0.1, the deviation by -0.1 to 0.25.
 * The first frames of Kandinsky 5 have a mesh otherwise. No effect if no frames follow. */
void weft_first_frames_settle(int64_t first, int64_t frames, int64_t each, float *x);

#endif
