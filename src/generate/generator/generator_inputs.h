/* Images, videos and masks that condition a generator, the same for every batch. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_INPUTS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_INPUTS_H

#include "generate/conditioning/preceding_frames.h"
#include "generate/generator/generator.h"

/* Lives as long as the generator. Zero-initialise; close with weft_generator_inputs_close. */
typedef struct weft_generator_inputs {
    weft_visual_condition_setup setup; /* its pointers are into the generator */
    weft_visual_condition visual;
    weft_preceding_frames preceding; /* models whose inputs precede the video */
    weft_identity_condition identity;
} weft_generator_inputs;

/* Opens the visual and identity conditioning of the options, and determines the first step to run
 * on a given video. Reserves no large memory. */
weft_status weft_generator_inputs_open(weft_generator *p);
/* Reads and encodes the inputs. */
weft_status weft_generator_inputs_read(weft_generator_inputs *inputs);
void weft_generator_inputs_close(weft_generator_inputs *inputs);

#endif
