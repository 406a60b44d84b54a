/* Sound of models that generate it with the video. In x, the audio latents follow the latents of
 * their video: an item. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_SOUND_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_SOUND_H

#include "generate/generator/generator_parts.h"

/* Copies the predictions of video and sound of a branch (0: with prompt, 1: without) to `to`,
 * (batch, item). */
void weft_generator_take_both(const weft_generator *p, weft_program *program, int branch,
                              float *to);
/* Copies the predictions of the weakened branches to memory.weakened. */
void weft_generator_take_weakened(weft_generator *p, weft_program *program);
/* Combines the branches (batch, item) of x at the noise level `sigma` by guidance: video and sound
 * each by their scale. `other`: without prompt; NULL: none. Changes `other` and the weakened
 * predictions. */
void weft_generator_combine_both(const weft_generator *p, const weft_guidance_params *params,
                                 const float *x, double sigma, float *prediction, float *other);
/* Decodes the sound of the item x for the sink. Does nothing without sound. */
weft_status weft_generator_decode_sound(weft_generator *p, int64_t prompt, const float *x,
                                        const weft_generator_sink *sink);

#endif
