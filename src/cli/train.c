#include "base/fs.h"
#include "cli/verb.h"
#include "train/cascade_dry.h"
#include "train/trainer.h"

#include <stdio.h>

static weft_status dry_run(const weft_args *args, const weft_run *run, const char *path)
{
    int64_t ranks, iterations;
    weft_buf svg = {0}, text = {0};
    const char *to = weft_args_string(args, "--svg");
    WEFT_TRY(weft_args_i64(args, "--ranks", 0, 1 << 16, &ranks));
    WEFT_TRY(weft_args_i64(args, "--iterations", 1, 1000, &iterations));
    weft_status_code status =
        weft_cascade_dry_run(run, path, (int)ranks, (int)iterations, to ? &svg : NULL, &text);
    if (status == WEFT_OK && to)
        status = weft_file_write_atomic(to, svg.data, svg.len);
    if (status == WEFT_OK)
        fwrite(text.data, 1, (size_t)text.len, stdout);
    weft_buf_free(&svg);
    weft_buf_free(&text);
    return status;
}

/* Options that only a dry run reads. */
static weft_status refuse_dry_options(const weft_args *args)
{
    static const char *const dry[] = {"--ranks", "--iterations", "--svg"};
    for (int i = 0; i < WEFT_COUNT(dry) && !weft_args_flag(args, "--dry-run"); i++)
        if (weft_args_flag(args, dry[i]))
            return weft_fail(WEFT_E_ARG,
                             "%s has an effect only with --dry-run. Add --dry-run, or start ranks "
                             "with mpirun -n N weft train CONFIG.",
                             dry[i]);
    return WEFT_OK;
}

static weft_status run_train(const weft_args *args)
{
    int count;
    weft_run run;
    const char *path = weft_args_positional(args, &count)[0];
    weft_arena *arena = weft_arena_create();
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    weft_status_code status = refuse_dry_options(args);
    if (status == WEFT_OK)
        status = weft_args_config(args, arena, path, &run);
    if (status == WEFT_OK)
        status =
            weft_args_flag(args, "--dry-run") ? dry_run(args, &run, path) : weft_train(&run, path);
    weft_arena_free(arena);
    return status;
}

static const weft_option options[] = {
    {.name = "--dry-run",
     .help = "print the first iterations' plans of parallel.cascades, and start nothing"},
    {.name = "--ranks",
     .value_name = "N",
     .fallback = "0",
     .help = "with --dry-run: that it would be started with; 0: devices of the cluster"},
    {.name = "--iterations",
     .value_name = "N",
     .fallback = "3",
     .help = "with --dry-run: so many of each stage"},
    {.name = "--svg", .value_name = "FILE", .help = "with --dry-run: chart of the first one"},
};

const weft_verb weft_verb_train = {
    .name = "train",
    .summary = "train the video autoencoder or the diffusion transformer",
    .usage = "CONFIG [--set KEY=VALUE]... [--dry-run [--ranks N]]",
    .details =
        "Trains what the config describes, stage after stage, on shards that `weft shard` wrote, "
        "and writes the\n"
        "finished model in the diffusers layout to <out>/model (an autoencoder: <out>/model/vae). "
        "Forward, loss, backward, clipping, AdamW and the\n"
        "moving average are one graph, compiled once per stage.\n\n"
        "Under mpirun the same command trains data-parallel: `batch` is the batch over all ranks, "
        "and the losses are\n"
        "those of one rank. All randomness is keyed by (seed, step, sample).\n\n"
        "Checkpoints are written beside the training to <out>/checkpoints/step-N, atomically and "
        "with checksums. The\n"
        "same command after a kill goes on from the newest whole one; with the same number of "
        "ranks the loss curve is\n"
        "then bitwise the one of an uninterrupted run. Ctrl-C writes a checkpoint and stops.\n\n"
        "What is trained follows from what is given: with a `transformer` that, else the "
        "`autoencoder`. A model is\n"
        "{class, config}, from nothing, or {weights: FOLDER}, a trained one to go on with. Beside "
        "a transformer the\n"
        "autoencoder's weights encode the clips once, and the latents are kept in <out>/latents. "
        "A text encoder from nothing\n"
        "is trained together with the transformer; one with weights stays as it is, and its "
        "embeddings of captions are kept\n"
        "there too (`train: true` goes on training it).\n\n"
        "transformer.lora trains low-rank matrices beside the layers of a transformer with weights "
        "(LoRA) and writes them to\n"
        "<out>/adapter, for `weft generate --lora`; transformer.train and freeze choose among its "
        "own weights.\n\n"
        "A stage has one clip size, or `buckets`: several that take turns, single images (frames: "
        "1) among them. Their\n"
        "programs share one piece of memory.\n\n"
        "<out>/metrics.jsonl has one line a step (loss, grad_norm before clipping, lr, "
        "step_seconds, samples_per_second,\n"
        "gflops, skipped), and TensorBoard shows the same folder. A step whose loss or gradient "
        "norm is not finite or far out of the\n"
        "ordinary changes nothing and is counted; guard.patience of them in a row end the run.\n\n"
        "With parallel.cascades each step is an iteration of cascades: samples of several sizes, "
        "each on a group of ranks of its own\n"
        "size (docs/cascades.md). --dry-run prints the first plans with predicted times and peaks "
        "and starts nothing.\n",
    .examples = "weft train examples/demo/vae.yaml\n"
                "mpirun -n 2 weft train examples/demo/dit.yaml --set stages.0.steps=500\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .config = &weft_run_section,
    .more = weft_help_families,
    .min_positional = 1,
    .max_positional = 1,
    .stops_cleanly = true,
    .run = run_train,
};
