/* Options of the videos for verbs that generate or time generation: --frames, --height, --width,
 * --batch-size, --window, --guidance-scale, --weights. */
#ifndef WEFT_CLI_OPTIONS_VIDEOS_OPTION_H
#define WEFT_CLI_OPTIONS_VIDEOS_OPTION_H

#include "cli/options/verb.h"
#include "generate/generator/generator.h"

/* Reads --guidance-scale. Below 0: not given. */
weft_status weft_args_guidance(const weft_args *args, double *scale);
/* Reads the options of a verb that has all of them. Sizes 0: the sizes of training. WEFT_E_ARG:
 * invalid value. */
weft_status weft_args_videos(const weft_args *args, weft_generator_options *options);

#endif
