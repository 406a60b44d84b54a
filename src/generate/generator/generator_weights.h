/* Weights of a generator: its own, or resident ones of options.resident. */
#ifndef WEFT_GENERATE_GENERATOR_GENERATOR_WEIGHTS_H
#define WEFT_GENERATE_GENERATOR_GENERATOR_WEIGHTS_H

#include "generate/generator/generator_parts.h"

/* Takes loaded weights from options.resident, and unloads others until the generator fits into its
 * memory limit. Call before the generator reserves memory. */
weft_status weft_generator_take_weights(weft_generator *p);
/* Puts the weights of the text encoders and the denoisers into parts.store, as aliases of
 * resident ones. */
weft_status weft_generator_load_weights(weft_generator *p);
/* Binds the decoder to its weights. */
weft_status weft_generator_bind_decoder(weft_generator *p);
/* Returns resident weights, which no program uses any more. */
void weft_generator_return_weights(weft_generator *p);

#endif
