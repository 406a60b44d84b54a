#include "cli/estimate_run.h"
#include "cli/options/args.h"
#include "cli/options/help_families.h"
#include "cli/replaced_verb.h"
#include "train/trainer.h"

#include <string.h>

/* Rejects options that only a dry run uses. */
static weft_status refuse_dry_options(const weft_args *args)
{
    static const char *const dry[] = {"--ranks", "--iterations", "--svg"};
    for (int i = 0; i < WEFT_COUNT(dry) && !weft_args_flag(args, "--dry-run"); i++)
        if (weft_args_flag(args, dry[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = dry[i]),
                              "this option has an effect only with --dry-run. Add --dry-run, or "
                              "start ranks with mpirun -n N weft train CONFIG.");
    return WEFT_OK;
}

static weft_status run_train(const weft_args *args)
{
    int count;
    weft_run run;
    const char *path = weft_args_positional(args, &count)[0];
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "the training run"));
    weft_status_code status;
    WEFT_GO(refuse_dry_options(args));
    WEFT_GO(weft_args_config(args, arena, path, &run));
    run.metrics = weft_args_string(args, "--metrics");
    if (weft_args_flag(args, "--dry-run"))
        weft_print_replaced("weft train --dry-run", "weft estimate CONFIG");
    else if (!strcmp(run.backend, "virtual"))
        weft_print_replaced("weft train --set backend=virtual", "weft estimate CONFIG --execute");
    WEFT_GO(weft_args_flag(args, "--dry-run") ? weft_estimate_cascades(args, &run, path)
                                              : weft_train(&run, path));
out:
    weft_arena_free(arena);
    return status;
}

static const weft_option options[] = {
    {"--metrics", "ADDRESS:PORT", NULL,
     "serve loss, rates and remaining time to Prometheus at http://ADDRESS:PORT/metrics of rank 0, "
     "without a token; port 0: any free port"},
    {"--dry-run", NULL, NULL,
     "print the first plans of parallel.cascades and exit; replaced by weft estimate",
     .group = "dry-run"},
    {"--ranks", "N", "0", "ranks to plan for; 0 (default): all devices of the cluster",
     .group = "dry-run"},
    {"--iterations", "N", "3", "iterations per training stage", .group = "dry-run"},
    {"--svg", "FILE", NULL, "draw the first plan", .group = "dry-run", .result = WEFT_RESULT_FILE},
};
static const weft_option_group groups[] = {
    {"dry-run", "options that `weft estimate CONFIG` replaces: --dry-run, and its ranks, "
                "iterations and drawing"},
    {0},
};

const weft_verb weft_verb_train = {
    .name = "train",
    .summary = "train a video autoencoder or a diffusion transformer",
    .usage = "CONFIG [--set KEY=VALUE]...",
    .details = "Trains the transformer if CONFIG has one, otherwise the autoencoder. Reads the\n"
               "data shards of `weft shard` and writes the model in diffusers format. Resumes\n"
               "from the newest intact checkpoint in <out>/checkpoints. Ctrl-C finishes the\n"
               "step, writes a checkpoint and exits with status 130.\n"
               "`mpirun -n N weft train CONFIG` trains on N ranks; `parallel` sets the layout.\n"
               "\n"
               "The model is written to <out>/model, an autoencoder to <out>/model/vae. With\n"
               "transformer.lora, an adapter is written to <out>/adapter.\n"
               "With the same number of ranks, the resumed loss curve is bitwise identical.\n"
               "`weft estimate CONFIG` predicts memory and seconds. It replaces --dry-run and\n"
               "the backend `virtual`.\n",
    .files = "<out>/metrics.jsonl, events.out.tfevents.*, checkpoints/, latents/, and model/ or "
             "adapter/",
    .see = "docs/how-to/train.md, docs/explanation/training.md, docs/explanation/cascades.md",
    .examples = "weft train examples/demo/vae.yaml\n"
                "mpirun -n 2 weft train examples/demo/dit.yaml --set stages.0.steps=500\n",
    .groups = groups,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .config = &weft_run_section,
    .more = weft_help_families,
    .min_positional = 1,
    .max_positional = 1,
    .copies_positional = true,
    .stops_cleanly = true,
    .run = run_train,
};
