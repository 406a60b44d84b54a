/* The option --lora of several verbs: FILE[:WEIGHT]. */
#ifndef WEFT_CLI_LORA_OPTION_H
#define WEFT_CLI_LORA_OPTION_H

#include "cli/verb.h"
#include "generate/adapters.h"

/* "FILE:0.8" into *path (in `arena`) and *weight; a file of the whole name goes first, and without
 * a colon the weight is 1. WEFT_E_ARG. */
weft_status weft_args_weighted_file(const char *text, weft_arena *arena, const char **path,
                                    double *weight);
/* All that were given, "transformer_2=FILE:0.8" for one of two experts; in `arena`. */
weft_status weft_args_lora(const weft_args *args, weft_arena *arena,
                           const weft_adapter_choice **list, int *count);

/* clang-format off */
#define WEFT_LORA_OPTION \
    {.name = "--lora", .value_name = "FILE[:WEIGHT]", .repeated = true, \
     .help = "merges an adapter into the transformer's weights (LoRA of PEFT, diffusers, ComfyUI " \
             "or kohya; PEFT's folder), at a weight; several are added; transformer=FILE or " \
             "transformer_2=FILE: into one of two experts"}
/* clang-format on */

#endif
