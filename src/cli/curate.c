#include "curate/curate.h"
#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/curate_engine.h"
#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "curate/curate_config.h"
#include "curate/curate_summary.h"
#include "curate/model_copies.h"
#include "curate/shard_option.h"

#include <stdio.h>
#include <string.h>

static const weft_option options[] = {
    {"--in", "DIR", NULL, "folder of source videos, with its subfolders, or s3://BUCKET/PREFIX",
     .required = true, .remote = true},
    {"--out", "DIR", NULL,
     "folder of the clips, or s3://BUCKET/PREFIX; a stopped run continues there", .required = true,
     .remote = true},
    {"--prune-missing", NULL, NULL, "also remove clips whose source folder is missing or empty",
     WEFT_ALSO("--forget")},
    {"--report", "FILE", NULL, "write an HTML page: funnel, operators, histograms of scores",
     .result = WEFT_RESULT_FILE},
    {"--metrics", "ADDRESS:PORT", NULL,
     "serve figures of the running stages to Prometheus at http://ADDRESS:PORT/metrics, without a "
     "token; port 0: any free port"},
    {"--shard", "I/N", NULL,
     "analyse the videos of shard I only, 0 to N - 1; auto/N takes I from the Slurm array or the "
     "Kubernetes job, auto also N from the array",
     .group = "machines"},
    {"--finish", NULL, NULL, "analyse nothing: select from the records of all shards and publish",
     .group = "machines"},
    {"--worker", NULL, NULL,
     "run tasks of standard input, one JSON object per line, and print a result for each",
     .group = "machines"},
    {"--wait", NULL, NULL, "wait while another run works on the folder or the shard",
     .group = "machines"},
    {"--engine", "NAME", NULL,
     "slurm: write OUT/slurm/curate.sh, whose jobs run the shards and the last pass, and run "
     "nothing here",
     .group = "machines", .choices = "slurm"},
    {"--shards", "N", "8", "tasks of the array with --engine", .group = "machines"},
    {"--sbatch", "OPTION", NULL,
     "option of sbatch in the script, e.g. --sbatch=--partition=long (repeatable)",
     .repeated = true, .group = "machines"},
    {"--submit", NULL, NULL, "submit the jobs with sbatch", .group = "machines"},
};

static const weft_option_group groups[] = {
    {"machines", "shards of the footage, and jobs of a cluster"}, {0}};

/* Result of a run of one shard. */
static void print_shard(const char *out, const weft_curate_config *config,
                        const weft_curate_report *r)
{
    printf("shard %" PRId64 " of %" PRId64 "   %8" PRId64 "  videos, all analysed\n", config->shard,
           config->shards, r->videos);
    if (r->remaining.videos)
        printf("remaining        %8" PRId64 "  videos, in shard%s %s\n", r->remaining.videos,
               strpbrk(r->remaining.shards, ",") ? "s" : "", r->remaining.shards);
    else
        printf("clips            %8" PRId64
               "  written; no video remains. Next: weft curate --finish --out %s\n",
               r->clips, out);
}

/* Reads --shard and --finish. */
static weft_status read_shard(const weft_args *args, weft_curate_config *config)
{
    const char *shard = weft_args_string(args, "--shard");
    config->finish = weft_args_flag(args, "--finish");
    config->wait = weft_args_flag(args, "--wait");
    config->shard = config->shards = 0;
    config->page = weft_args_string(args, "--report");
    config->metrics = weft_args_string(args, "--metrics");
    if (config->page)
        WEFT_TRY(weft_file_try(config->page));
    if (shard && (config->finish || config->forget))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--shard"),
                          "a run of a shard does not publish. Use %s without --shard.",
                          config->finish ? "--finish" : "--prune-missing");
    return shard ? weft_shard_option_parse(shard, &config->shard, &config->shards) : WEFT_OK;
}

static weft_status run(const weft_args *args)
{
    int count;
    const char *const *paths = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the curation"));
    weft_curate_config config;
    weft_curate_report report = {0};
    const char *out = weft_args_string(args, "--out");
    weft_model_copies *models = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_args_config(args, arena, count ? paths[0] : NULL, &config));
    weft_interrupt_catch();
    WEFT_GO(weft_model_copies_open(&config, &models));
    config.forget = weft_args_flag(args, "--prune-missing");
    WEFT_GO(read_shard(args, &config));
    if (weft_args_string(args, "--engine") || weft_args_flag(args, "--worker")) {
        status = weft_curate_engine_run(args, weft_args_positional_given(args, 0), &config);
        goto out;
    }
    WEFT_GO(weft_curate_run(weft_args_string(args, "--in"), out, &config, &report));
    if (config.shards)
        print_shard(out, &config, &report);
    else
        weft_curate_summary_print(out, &report);
    if (report.videos == 0 && !config.shards)
        weft_warning(WEFT_MSG_FOOTAGE_SKIPPED, WEFT_AT(.file = weft_args_string(args, "--in")),
                     "no video found; rejects.jsonl lists each file");
out:
    weft_model_copies_close(models);
    json_decref(report.operators);
    weft_arena_free(arena);
    return status;
}

const weft_verb weft_verb_curate = {
    .name = "curate",
    .summary = "turn source videos into clips with metadata",
    .usage = "--in DIR --out DIR [CONFIG] [--set KEY=VALUE]...",
    .details =
        "Cuts each video into shots, rejects shots that are damaged, small, short, still,\n"
        "fast, blurred, dark, bright or near-duplicates, crops borders of one colour, and\n"
        "writes the rest as H.264 without sound. The same command continues a stopped\n"
        "run.\n"
        "\n"
        "Files in --out:\n"
        "  clips/ID.mp4     one clip\n"
        "  metas/ID.json    source, span (frames, inclusive, and seconds), sizes, scores,\n"
        "                   caption\n"
        "  manifest.jsonl   all clips\n"
        "  rejects.jsonl    each rejected video, shot and transition: operator (the\n"
        "                   filter), value, threshold, reason; also missing ends\n"
        "                   (truncated) or gaps (missing), further video streams\n"
        "                   (stream), and caption files without a video or that cannot\n"
        "                   be read (sidecar)\n"
        "  summary.json     counts; files = videos + sidecars + others, and shots =\n"
        "                   clips + rejected shots\n"
        "\n"
        "Symbolic links to files and folders are followed, wherever they lead. Each\n"
        "folder is read once, so links may form cycles. A link to nothing or to a folder\n"
        "that was already read is in rejects.jsonl (operator type), and so is everything\n"
        "that is not a file.\n"
        "\n"
        "The caption of a video is, in this order, of NAME.json with \"caption\" or with\n"
        "\"shots\": [{\"start\", \"end\", \"caption\"}] in frames, NAME.vtt, NAME.txt, or the row\n"
        "of the video in captions.csv (columns file and caption) in its folder or above.\n"
        "A shot gets the caption that covers most of its frames, and of NAME.vtt the cues\n"
        "in its time, joined by blanks.\n"
        "\n"
        "`operators` adds scores and limits: expressions over scores, measures of frames,\n"
        "external processes, ONNX models, text area, and LAION's aesthetics heads. They\n"
        "run in the order of their prices, so that cheap and strict ones see most shots;\n"
        "operators.json has the figures. `embeddings` computes image embeddings (CLIP, an\n"
        "ONNX file, a server), which join over-split shots, find near-duplicates by\n"
        "meaning and limit the shots of a cluster; clusters.json has the clusters.\n"
        "`captions.url` requests missing captions from an OpenAI-compatible server.\n"
        "\n"
        "Of near-duplicates the one with the highest product of pixels per frame, bit\n"
        "rate^0.3 and duration^0.5 is kept, then the first by name. The order of work\n"
        "does not matter. A long shot is not rejected because of a short excerpt.\n"
        "\n"
        "Each video is decoded by a separate process. A crash or a stall of the decoder\n"
        "gives a line in rejects.jsonl. A run that was killed continues with the same\n"
        "command and ends with the same files. Other values of `video`, `shots` and\n"
        "clips.max_seconds need another folder; other keys may change.\n"
        "\n"
        "A clip of an earlier run is removed when its source was removed or a better copy\n"
        "exists. Files that no run of this folder wrote are kept. So are clips whose\n"
        "source folder is missing or empty (a disk that is not mounted), without\n"
        "--prune-missing.\n"
        "\n"
        "Several machines share the work on one --out: each runs --shard I/N, which\n"
        "analyses the videos whose hash of the name is I modulo N, and lists what remains.\n"
        "When no video remains, the same command writes the clips of its videos. --finish\n"
        "then finds near-duplicates over all records and publishes. The result is the same\n"
        "as on one machine. Records are the state: killed shards run again without loss.\n",
    .see = "docs/how-to/curate.md, docs/how-to/curate-on-several-machines.md, "
           "docs/explanation/curation.md",
    .examples = "weft curate --in footage --out curated\n"
                "weft curate --in footage --out curated --set clips.max_side=256\n"
                "weft curate --in footage --out curated --shard 3/8\n"
                "weft curate --in footage --out curated --finish\n"
                "weft curate --in footage --out curated --engine slurm --shards 64 --submit\n",
    .groups = groups,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .config = &weft_curate_section,
    .max_positional = 1,
    .copies_positional = true,
    .run = run,
};
