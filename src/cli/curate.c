#include "curate/curate.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/verb.h"

#include <stdio.h>

static const weft_option options[] = {
    {"--in", "DIR", NULL, "folder of raw footage, with all its folders", .required = true},
    {"--out", "DIR", NULL, "folder of the clips; a run that was stopped goes on there",
     .required = true},
    {"--forget", NULL, NULL, "remove also clips whose source's folder is gone or empty"},
};

static void print_report(const char *out, const weft_curate_report *r)
{
    printf("files            %8lld  (%lld videos, %lld sidecars, %lld others)\n",
           (long long)r->files, (long long)r->videos, (long long)r->sidecars,
           (long long)r->other_files);
    if (r->sidecars_unused > 0)
        printf("sidecars unused  %8lld\n", (long long)r->sidecars_unused);
    printf("videos rejected  %8lld\n", (long long)r->videos_rejected);
    printf("shots            %8lld\n", (long long)r->shots);
    printf("shots rejected   %8lld\n", (long long)r->shots_rejected);
    printf("clips            %8lld  (%.1f s of %.1f s)\n", (long long)r->clips, r->seconds_out,
           r->seconds_in);
    if (r->clips_without_caption > 0)
        printf("without caption  %8lld  clips; a caption is VIDEO.txt or VIDEO.json beside the "
               "video\n",
               (long long)r->clips_without_caption);
    if (r->rejects[0])
        printf("rejects.jsonl             %s\n", r->rejects);
    printf("%s: clips/, metas/, manifest.jsonl, rejects.jsonl, summary.json\n", out);
}

static weft_status run(const weft_args *args)
{
    int count;
    const char *const *paths = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "curate: out of memory");
    weft_curate_config config;
    weft_curate_report report;
    const char *out = weft_args_string(args, "--out");
    weft_status_code status = weft_args_config(args, arena, count ? paths[0] : NULL, &config);
    weft_interrupt_catch();
    config.forget = weft_args_flag(args, "--forget");
    if (status == WEFT_OK)
        status = weft_curate_run(weft_args_string(args, "--in"), out, &config, &report);
    if (status == WEFT_OK)
        print_report(out, &report);
    if (status == WEFT_OK && report.videos == 0)
        weft_warn("%s: no video in it; each of its files is a line of rejects.jsonl",
                  weft_args_string(args, "--in"));
    weft_arena_free(arena);
    return status;
}

const weft_verb weft_verb_curate = {
    .name = "curate",
    .summary = "turn raw footage into clips with metadata",
    .usage = "--in DIR --out DIR [CONFIG] [options]",
    .details =
        "Cuts every video below --in into shots, drops what is damaged, too small, too short,\n"
        "still, too fast, blurred, too dark or bright, or shown already, cuts off bars of one\n"
        "colour, and writes the rest as H.264:\n"
        "  clips/ID.mp4     one clip\n"
        "  metas/ID.json    its source, span (frames, inclusive, and seconds), sizes, scores,\n"
        "                   caption\n"
        "  manifest.jsonl   all clips\n"
        "  rejects.jsonl    every video, shot and transition that was left out: operator, value,\n"
        "                   threshold, reason; also the missing end of a file that is cut off\n"
        "                   (truncated), what is missing amid it (missing), further video streams\n"
        "                   of a file (stream), and caption files of no video or that cannot be\n"
        "                   read (sidecar)\n"
        "  summary.json     the counts; files = videos + sidecars + others, and shots = clips +\n"
        "                   rejected shots\n"
        "\n"
        "Symbolic links below --in are followed, to files and to folders, wherever they lead;\n"
        "every folder is taken once, so links may go round in circles. Links that lead to nothing\n"
        "or to a folder that is taken already stand in rejects.jsonl (operator type), as does all\n"
        "that is no file.\n"
        "\n"
        "Clips have no sound.\n"
        "\n"
        "Captions come from a file beside the video: name.txt, or name.json with \"caption\" or\n"
        "with \"shots\": [{\"start\",\"end\",\"caption\"}] in frames, of which the one that\n"
        "covers most of a shot is taken. Of near-duplicates the one with most pixels in all its\n"
        "frames is kept, then the one with more bits, then the first by name, whatever the order\n"
        "of work; a long shot is not left out for a short excerpt of it.\n"
        "\n"
        "Each video is decoded by a process of its own, so that one that crashes or stalls the\n"
        "decoder is a line in rejects.jsonl. A run that was killed goes on when the same command\n"
        "is given again, and ends with the same files. With other settings it asks for another\n"
        "folder.\n"
        "\n"
        "Clips of an earlier run go when their source was removed or a better copy came. Files\n"
        "that no run of this folder wrote stay, and so do clips whose source's folder is gone or\n"
        "empty (a disk that is not mounted), unless --forget is given.",
    .examples =
        "weft curate --in footage --out clips\n"
        "weft curate --in footage --out clips --set clips.max_side=256 --set clips.min_frames=33",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .config = &weft_curate_section,
    .max_positional = 1,
    .run = run,
};
