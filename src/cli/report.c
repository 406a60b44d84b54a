#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "report/report_page.h"

#include <stdio.h>

static weft_status run_report(const weft_args *args)
{
    weft_report_sources s = {.title = weft_args_string(args, "--title"),
                             .vae_eval = weft_args_string(args, "--vae-eval"),
                             .prompt_eval = weft_args_string(args, "--prompt-eval"),
                             .videos = weft_args_string(args, "--videos"),
                             .truth = weft_args_string(args, "--reference-videos"),
                             .times = weft_args_string(args, "--step-times")};
    s.runs = weft_args_list(args, "--run", &s.run_count);
    s.images = weft_args_list(args, "--picture", &s.image_count);
    const char *out = weft_args_string(args, "--out");
    WEFT_TRY(weft_report_write(&s, out));
    printf("%s\n", weft_args_given(args, "--out"));
    return WEFT_OK;
}

static const weft_option options[] = {
    {"--out", "FILE.html", "report.html", "page to write", .result = WEFT_RESULT_FILE},
    {"--title", "TEXT", "weft report", "heading of the page"},
    {"--run", "NAME=DIR", NULL, "output folder of `weft train`, drawn as curves", .repeated = true,
     .copied = true, .copied_configs = true},
    {"--vae-eval", "FILE", NULL, "JSON of `weft eval vae`", .copied = true},
    {"--prompt-eval", "FILE", NULL, "JSON of `weft eval prompts`", .copied = true},
    {"--videos", "DIR", NULL, "output folder of `weft generate`", .copied = true,
     .copied_configs = true},
    {"--reference-videos", "DIR", NULL,
     "folder with NAME.mp4 and NAME.txt, shown next to videos of the same caption",
     WEFT_ALSO("--truth"), .copied = true},
    {"--picture", "TITLE=FILE", NULL, "PNG, JPEG or GIF to show", .repeated = true, .copied = true},
    {"--step-times", "FILE", NULL, "JSON lines {\"step\": ..., \"seconds\": ...} to draw",
     WEFT_ALSO("--times"), .copied = true},
};

const weft_verb weft_verb_report = {
    .name = "report",
    .summary = "write curves, scores and samples of a run as one HTML page",
    .usage = "--out FILE.html [--run NAME=DIR]... [options]",
    .details = "The page contains its drawings, images and videos and loads no other file.\n"
               "It has a section for each input option of the command line.\n",
    .see = "docs/tutorials/first-model.md, docs/reference/verbs/report.md",
    .examples = "weft report --run vae=demo/vae --run dit=demo/dit --out report.html\n"
                "weft report --videos demo/samples --reference-videos demo/raw\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 0,
    .max_positional = 0,
    .run = run_report,
};
