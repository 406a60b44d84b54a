#include "cli/verb.h"
#include "generate/run_report.h"

#include <stdio.h>

static weft_status run_report(const weft_args *args)
{
    weft_report_sources s = {.title = weft_args_string(args, "--title"),
                             .vae_eval = weft_args_string(args, "--vae-eval"),
                             .prompt_eval = weft_args_string(args, "--prompt-eval"),
                             .videos = weft_args_string(args, "--videos"),
                             .truth = weft_args_string(args, "--truth"),
                             .times = weft_args_string(args, "--times")};
    s.runs = weft_args_list(args, "--run", &s.run_count);
    s.pictures = weft_args_list(args, "--picture", &s.picture_count);
    const char *out = weft_args_string(args, "--out");
    WEFT_TRY(weft_report_write(&s, out));
    printf("%s\n", out);
    return WEFT_OK;
}

static const weft_option options[] = {
    {.name = "--out", .value_name = "FILE.html", .fallback = "report.html", .help = "the page"},
    {.name = "--title", .value_name = "TEXT", .fallback = "weft report", .help = "its heading"},
    {.name = "--run",
     .value_name = "NAME=DIR",
     .help = "output folder of weft train: its curves are drawn",
     .repeated = true},
    {.name = "--vae-eval", .value_name = "FILE", .help = "JSON of weft eval vae"},
    {.name = "--prompt-eval", .value_name = "FILE", .help = "JSON of weft eval prompts"},
    {.name = "--videos", .value_name = "DIR", .help = "folder of weft generate"},
    {.name = "--truth",
     .value_name = "DIR",
     .help = "folder with <name>.mp4 and <name>.txt: shown beside videos of the same caption"},
    {.name = "--picture",
     .value_name = "TITLE=FILE",
     .help = "a PNG or JPEG to show",
     .repeated = true},
    {.name = "--times",
     .value_name = "FILE",
     .help = "JSON lines {\"step\": ..., \"seconds\": ...}"},
};

const weft_verb weft_verb_report = {
    .name = "report",
    .summary = "put curves, scores and samples of a run into one HTML page",
    .usage = "--out FILE.html [--run NAME=DIR ...] [options]",
    .details = "The page is self-contained: drawings, pictures and videos are inside, nothing is "
               "loaded from elsewhere. Only what\n"
               "is named appears in it.",
    .examples = "weft report --run vae=demo/vae --run dit=demo/dit --videos demo/samples --truth "
                "demo/raw --out demo/report.html\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 0,
    .max_positional = 0,
    .run = run_report,
};
