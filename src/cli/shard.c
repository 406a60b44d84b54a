#include "cli/verb.h"
#include "data/shard_write.h"

#include <stdio.h>

static weft_status run_shard(const weft_args *args)
{
    int count;
    const char *const *files = weft_args_positional(args, &count);
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_shard_config config;
    weft_shard_report r;
    weft_status_code status = weft_args_config(args, arena, count ? files[0] : NULL, &config);
    if (status == WEFT_OK)
        status = weft_shard_run(&config, weft_args_string(args, "--in"),
                                weft_args_string(args, "--out"), &r);
    weft_arena_free(arena);
    WEFT_TRY(status);
    char bytes[32];
    printf(
        "%lld clips: %lld for training, %lld held out, in %lld shards of %s (%lld already there)\n",
        (long long)r.clips, (long long)r.train, (long long)r.heldout, (long long)r.shards,
        weft_format_bytes(r.bytes, bytes), (long long)r.kept_shards);
    printf("used %lld of %lld clips, %lld frames\n", (long long)r.written, (long long)r.clips,
           (long long)r.frames);
    if (r.without_caption)
        printf("without a caption: %lld of %lld clips; need_caption drops them\n",
               (long long)r.without_caption, (long long)r.written);
    for (int i = 0; i < WEFT_SHARD_REASONS; i++)
        if (r.dropped[i])
            printf("dropped %lld of %lld clips, %lld frames: %s (listed in index.json)\n",
                   (long long)r.dropped[i], (long long)r.clips, (long long)r.dropped_frames[i],
                   weft_shard_reason_text((weft_shard_reason)i));
    return WEFT_OK;
}

static const weft_option options[] = {
    {.name = "--in",
     .value_name = "DIR",
     .help = "folder that weft curate made: clips/ and metas/",
     .required = true},
    {.name = "--out", .value_name = "DIR", .help = "folder for the shards", .required = true},
};

const weft_verb weft_verb_shard = {
    .name = "shard",
    .summary = "put curated clips into WebDataset tar shards",
    .usage = "[CONFIG] --in DIR --out DIR",
    .details = "Writes <out>/train-000000.tar ..., <out>/heldout-000000.tar ... and "
               "<out>/index.json. A sample is\n"
               "<id>.mp4, <id>.json (what curation found out) and <id>.txt (the caption); "
               "webdataset, Megatron-Energon\n"
               "and GNU tar read it. Split and order depend on the clips' ids alone: the same "
               "clips give the same bytes.\n"
               "Shards appear under their names only when they are whole; run again after an "
               "interruption, finished\n"
               "shards are kept. Used and dropped clips are counted, together all of them, with "
               "their frames; those that\n"
               "are dropped are listed with the reason in index.json.",
    .examples = "weft shard --in curated --out shards\nweft shard --in curated --out shards --set "
                "heldout=0.1\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .config = &weft_shard_section,
    .min_positional = 0,
    .max_positional = 1,
    .run = run_shard,
};
