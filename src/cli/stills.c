/* weft stills: the process of `weft serve` that reads a finished or an uploaded video. */
#include "cli/options/args.h"
#include "generate/conditioning/refinement.h"
#include "video/video_stills.h"

#include <stdio.h>

static weft_status run_stills(const weft_args *args)
{
    int count;
    double fps = 0;
    const char *file = weft_args_positional(args, &count)[0];
    if (!weft_args_flag(args, "--rate"))
        return weft_video_stills_write(file);
    const weft_coarse_video video = {.file = file, .same_frames = true};
    WEFT_TRY(weft_refinement_rate(&video, &fps));
    printf("%.17g\n", fps);
    return WEFT_OK;
}

static const weft_option options[] = {
    {"--rate", NULL, NULL, "print the frame rate of a coarse video in place of images"},
};

const weft_verb weft_verb_stills = {
    .name = "stills",
    .summary = "write images of a finished video for `weft serve`, which starts this verb",
    .usage = "VIDEO\n"
             "VIDEO --rate",
    .details = "Writes NAME.thumbnail.webp and NAME.spritesheet.jpg to the folder of the video.\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 1,
    .copies_positional = true,
    .hidden = true,
    .run = run_stills,
};
