#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_PREVIEW_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_PREVIEW_H

#include "generate/generator/generator.h"

/* options.preview: decodes and shows the predicted video after each due step. */
weft_status weft_generator_open_preview(weft_generator *p);
int64_t weft_generator_preview_bytes(const weft_generator *p);
weft_status weft_generator_bind_preview(weft_generator *p);
void weft_generator_see(weft_generator *p, int64_t step, const float *x,
                        const weft_noise_level *level, const float *prediction);
weft_status weft_generator_show(weft_generator *p, int64_t step, const weft_generator_sink *sink);

#endif
