/* The options --weights (a type, "stream", or both) and --precision of several verbs. */
#ifndef WEFT_CLI_OPTIONS_WEIGHTS_OPTION_H
#define WEFT_CLI_OPTIONS_WEIGHTS_OPTION_H

#include "cli/options/args.h"
#include "generate/generator/generator.h"

/* Sets weights and stream from "bf16", "stream" or "bf16,stream". WEFT_E_ARG: invalid value. */
weft_status weft_weights_option(const char *text, weft_generator_options *options);
/* Sets bf16, tf32 and precision_auto from "f32", "tf32", "bf16" or "auto".
 * WEFT_E_ARG: invalid value. */
weft_status weft_precision_option(const char *text, weft_generator_options *options);
/* Returns the products of the generator's programs, which may be bf16 if the precision is still to
 * be chosen. */
weft_products weft_generator_products(const weft_generator_options *options);
/* Both, from the arguments of a verb that has WEFT_WEIGHTS_OPTIONS. */
weft_status weft_args_weights(const weft_args *args, weft_generator_options *options);

/* clang-format off */
#define WEFT_WEIGHTS_OPTIONS \
    {.name = "--weights", .value_name = "TYPE", .fallback = "stored", \
     .help = "type of the weights in memory; stored: as in the files, f32, bf16 (rounded), gguf: " \
             "quantized matrices are dequantized at each use, int8: linear layers of the " \
             "transformer compute in int8. stream or TYPE,stream: weights stay in the files and " \
             "are read one block ahead of the computation", \
     .group = "memory"}, \
    {.name = "--precision", .value_name = "TYPE", .fallback = "f32", \
     .help = "type in which the transformer and the text encoders compute: f32, bf16 with sums " \
             "in f32, which is faster on processors and GPUs with units for bf16, tf32: f32 with " \
             "products rounded to 10 bits on GPUs, or auto: bf16 if a step is faster by a tenth", \
     .group = "memory"}
/* clang-format on */

#endif
