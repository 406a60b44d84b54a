/* The option --lora of several verbs: FILE[:WEIGHT]. */
#ifndef WEFT_CLI_OPTIONS_LORA_OPTION_H
#define WEFT_CLI_OPTIONS_LORA_OPTION_H

#include "cli/options/verb.h"
#include "generate/generator/adapters.h"

/* Splits "FILE:0.8" into *path (in `arena`) and *weight. A file with the whole text as name has
 * priority. Without a colon the weight is 1. WEFT_E_ARG: invalid weight. */
weft_status weft_args_weighted_file(const char *text, weft_arena *arena, const char **path,
                                    double *weight);
/* Reads all --lora options into `arena`; "transformer_2=FILE:0.8" is for one of two experts. */
weft_status weft_args_lora(const weft_args *args, weft_arena *arena,
                           const weft_adapter_choice **list, int *count);

/* clang-format off */
#define WEFT_LORA_OPTION \
    {.name = "--lora", .value_name = "FILE[:WEIGHT]", .repeated = true, \
     .help = "LoRA adapter to merge into the transformer; file or folder of PEFT, diffusers, " \
             "ComfyUI or kohya. Several adapters are added. transformer=FILE or " \
             "transformer_2=FILE selects one of two experts", \
     .group = "model", .copied = true}
/* clang-format on */

#endif
