/* weft stills: the process of `weft serve` that reads a finished video. */
#include "cli/options/args.h"
#include "video/video_stills.h"

static weft_status run_stills(const weft_args *args)
{
    int count;
    return weft_video_stills_write(weft_args_positional(args, &count)[0]);
}

const weft_verb weft_verb_stills = {
    .name = "stills",
    .summary = "write images of a finished video for `weft serve`, which starts this verb",
    .usage = "VIDEO",
    .details = "Writes NAME.thumbnail.webp and NAME.spritesheet.jpg to the folder of the video.\n",
    .min_positional = 1,
    .max_positional = 1,
    .copies_positional = true,
    .hidden = true,
    .run = run_stills,
};
