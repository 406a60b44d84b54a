#include "cli/options/args.h"
#include "cli/options/verb.h"
#include "data/shard_write.h"

#include <stdio.h>

static weft_status run_shard(const weft_args *args)
{
    int count;
    const char *const *files = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the data shards"));
    weft_shard_config config;
    weft_shard_report r;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_args_config(args, arena, count ? files[0] : NULL, &config));
    WEFT_GO(weft_shard_run(&config, weft_args_string(args, "--in"), weft_args_string(args, "--out"),
                           &r));
out:
    weft_arena_free(arena);
    WEFT_TRY(status);
    char bytes[32];
    printf("%" PRId64 " clips: %" PRId64 " for training, %" PRId64 " held out, in %" PRId64
           " shards of %s (%" PRId64 " already there)\n",
           r.clips, r.train, r.heldout, r.shards, weft_format_bytes(r.bytes, bytes),
           r.unchanged_shards);
    printf("used %" PRId64 " of %" PRId64 " clips, %" PRId64 " frames\n", r.written, r.clips,
           r.frames);
    if (r.without_caption)
        printf("without a caption: %" PRId64 " of %" PRId64 " clips; require_caption drops them\n",
               r.without_caption, r.written);
    for (int i = 0; i < WEFT_SHARD_REASONS; i++)
        if (r.dropped[i])
            printf("dropped %" PRId64 " of %" PRId64 " clips, %" PRId64
                   " frames: %s (listed in index.json)\n",
                   r.dropped[i], r.clips, r.dropped_frames[i],
                   weft_shard_reason_text((weft_shard_reason)i));
    return WEFT_OK;
}

static const weft_option options[] = {
    {"--in", "DIR", NULL, "output of `weft curate`, with clips/ and metas/, or s3://BUCKET/PREFIX",
     .required = true, .remote = true},
    {"--out", "DIR", NULL, "folder of the data shards, or s3://BUCKET/PREFIX", .required = true,
     .remote = true},
};

const weft_verb weft_verb_shard = {
    .name = "shard",
    .summary = "write curated clips as WebDataset tar files",
    .usage = "[CONFIG] --in DIR --out DIR [--set KEY=VALUE]...",
    .details = "A sample is <id>.mp4, <id>.json (metadata of curation) and <id>.txt (caption).\n"
               "webdataset, Megatron-Energon and GNU tar read the files. The order depends on\n"
               "the seed and the ids of the clips; the split on the seed, the source videos and\n"
               "split.json of earlier runs. The same clips give the same bytes again.\n"
               "A clip whose metadata has no caption gets the caption of its row in\n"
               "captions.csv of --in. Its columns are file (clips/ID.mp4 or ID.mp4) and caption.\n"
               "\n"
               "A data shard gets its name when it is complete. After an interruption the same\n"
               "command keeps the finished shards.\n"
               "The counts of used and dropped clips, with their frames, add up to all clips.\n"
               "index.json lists each dropped clip with the reason.\n",
    .files = "<out>/train-000000.tar, ..., <out>/heldout-000000.tar, ..., <out>/index.json",
    .see = "docs/explanation/data.md, docs/reference/formats.md",
    .examples = "weft shard --in curated --out shards\n"
                "weft shard --in curated --out shards --set heldout=0.1\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .config = &weft_shard_section,
    .min_positional = 0,
    .max_positional = 1,
    .copies_positional = true,
    .run = run_shard,
};
