/* What videos are asked for, of the verbs that make them or time their making: --frames, --height,
 * --width, --batch, --window, --guidance, --weights. */
#ifndef WEFT_CLI_VIDEOS_OPTION_H
#define WEFT_CLI_VIDEOS_OPTION_H

#include "cli/verb.h"
#include "generate/generator.h"

/* Of a verb that has all of them; sizes 0: as the model was trained. WEFT_E_ARG. */
weft_status weft_args_videos(const weft_args *args, weft_generator_options *options);

#endif
