/* The option --weights of several verbs: a type, "stream", or both. */
#ifndef WEFT_CLI_OPTIONS_WEIGHTS_OPTION_H
#define WEFT_CLI_OPTIONS_WEIGHTS_OPTION_H

#include "generate/generator/generator.h"

/* Sets weights and stream from "bf16", "stream" or "bf16,stream". WEFT_E_ARG: invalid value. */
weft_status weft_weights_option(const char *text, weft_generator_options *options);

/* clang-format off */
#define WEFT_WEIGHTS_OPTION \
    {.name = "--weights", .value_name = "TYPE", .fallback = "stored", \
     .help = "type of the weights in memory; stored: as in the files, f32, bf16 (rounded), gguf: " \
             "quantized matrices are dequantized at each use. stream or TYPE,stream: weights " \
             "stay in the files and are read one block ahead of the computation", \
     .group = "memory"}
/* clang-format on */

#endif
