/* The option --weights of several verbs: a type, "stream", or both. */
#ifndef WEFT_CLI_WEIGHTS_OPTION_H
#define WEFT_CLI_WEIGHTS_OPTION_H

#include "generate/generator.h"

/* "bf16", "stream", "bf16,stream": sets weights and stream. WEFT_E_ARG. */
weft_status weft_weights_option(const char *text, weft_generator_options *options);

/* clang-format off */
#define WEFT_WEIGHTS_OPTION \
    {.name = "--weights", .value_name = "TYPE", .fallback = "stored", \
     .help = "how the model's matrices are kept in memory: stored (as in its files), f32, bf16, " \
             "which halves those of f32 files and rounds them, or gguf: quantised ones stay so " \
             "and are expanded one at a time where they are used; stream, or TYPE,stream: not in " \
             "memory but read from the files for each use, a block ahead of the work"}
/* clang-format on */

#endif
