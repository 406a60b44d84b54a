/* `weft eval videos`, and the end of every evaluation. */
#ifndef WEFT_CLI_EVAL_VIDEOS_H
#define WEFT_CLI_EVAL_VIDEOS_H

#include "base/json.h"
#include "cli/options/args.h"

weft_status weft_eval_videos(const weft_args *args);
/* Writes the result to the file of --json, if that was given. Takes ownership of `result`. */
weft_status weft_eval_finish(const weft_args *args, json_t *result);

#endif
