#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_DENOISE_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_DENOISE_H

#include "generate/generator/generator.h"

/* Generates a video for each prompt. The noise of prompt i depends only on seeds[i] and the
 * position in the video. The same seed and batch size give bitwise identical results, whatever else
 * is generated in the batch. Another batch size sums in another order and agrees to rounding. */
weft_status weft_generator_run(weft_generator *generator, const char *const *prompts,
                               const uint64_t *seeds, int64_t count,
                               const weft_generator_sink *sink);

/* Clears the feature caches before new prompts. */
void weft_generator_begin_caches(weft_generator *p);

#endif
