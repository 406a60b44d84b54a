/* weft estimate: prints what a training run or a generation needs, before it starts. */
#include "cli/estimate_model.h"
#include "cli/estimate_run.h"
#include "cli/options/args.h"
#include "cli/options/method_options.h"
#include "train/config/train_config.h"

static const weft_option options[] = {
    {"--model", "PATH", NULL,
     "generation with this model folder, or one model: its folder, config.json or name",
     .copied = true},
    {"--on", "CLUSTER", "local",
     "profile of weft profile, preset (h100:2) or YAML file; local: <out>/profile.json, or this "
     "machine without one",
     WEFT_ALSO("--cluster"), .copied = true},
    {"--ranks", "N", "0", "number of ranks; 0: product of the degrees"},
    {"--execute", NULL, NULL, "also execute a step on virtual devices of the cluster"},
    {"--json", NULL, NULL, "print one JSON object"},
    {"--iterations", "N", "3", "iterations to plan per training stage", .group = "cascades"},
    {"--svg", "FILE", NULL, "draw the first iteration", .group = "cascades",
     .result = WEFT_RESULT_FILE},
    {"--frames", "N", "0", "frames of the video; 0 (default): as trained", .group = "model"},
    {"--height", "N", "0", "rows of the video; 0 (default): as trained", .group = "model"},
    {"--width", "N", "0", "columns of the video; 0 (default): as trained", .group = "model"},
    {"--steps", "N", "0", "denoising steps. 0: of a distilled model, or 30", .group = "model"},
    {"--batch-size", "N", "1", "prompts denoised together, or samples of a step", .group = "model"},
    {"--guidance-scale", "G", NULL,
     "guidance scale; 1: no guidance. By default the model's own, or 4", .group = "model"},
    {"--parallel", "KEY=VALUE", NULL,
     "a degree, as in weft generate (tp=2), or auto: the layout of --ranks with the fewest seconds",
     .repeated = true, .group = "model"},
    {"--weights", "TYPE", "stored", "storage of the weights, as in weft generate",
     .group = "model"},
    {"--precision", "TYPE", "f32", "type in which the model computes, as in weft generate",
     .group = "model"},
    {"--vae-precision", "TYPE", "f32", "type in which the VAE computes, as in weft generate",
     .group = "model"},
    {"--memory-limit", "BYTES", "0", "memory limit of a rank; 0 (default): no limit",
     .group = "model"},
    {"--image", "FILE", NULL, "first frame or images to edit, for a model with image conditioning",
     .repeated = true, .group = "model", .copied = true},
    {"--last-image", "FILE", NULL, "last frame, as in weft generate", .group = "model",
     .copied = true},
    {"--video", "FILE", NULL, "video or image to change, as in weft generate", .group = "model",
     .copied = true},
    {"--strength", "S", "0", "share of the steps to run on --video, as in weft generate",
     .group = "model"},
    {"--control", "FILE", NULL, "control video or image (weft generate)", .group = "model",
     .copied = true},
    {"--face", "FILE", NULL, "video of a face (weft generate)", .group = "model", .copied = true},
    {"--refine", "FILE", NULL, "coarse video to refine (weft generate)", .group = "model",
     .copied = true},
    {"--mask", "FILE", NULL, "part of --video or --control to generate", .group = "model",
     .copied = true},
    WEFT_METHOD_CONDITIONING,
    WEFT_METHOD_SIZE,
    WEFT_METHOD_SAMPLING,
    WEFT_METHOD_GUIDANCE,
    {"--training-step", NULL, NULL, "estimate a training step of one model", .group = "model"},
};
static const weft_option_group groups[] = {
    {"model", "options of --model: size, steps, batch, guidance, layout, memory"},
    {"conditioning", "options of --model: prompts and images, as in weft generate"},
    {"size", "options of --model: windows and sections, as in weft generate"},
    {"sampling", "options of --model: sampler and schedule, as in weft generate"},
    {"guidance", "options of --model: guidance, as in weft generate"},
    {"cascades", "options of a run with parallel.cascades"},
    {0},
};

/* Rejects options of the other subject. */
static weft_status check_options(const weft_args *args, bool model)
{
    static const char *const of_models[] = {
        "--frames",         "--height",    "--width",         "--steps",        "--batch-size",
        "--guidance-scale", "--parallel",  "--weights",       "--memory-limit", "--image",
        "--last-image",     "--video",     "--strength",      "--control",      "--mask",
        "--training-step",  "--precision", "--vae-precision", "--face",         "--refine"};
    static const char *const of_runs[] = {"--iterations", "--svg", "--set"};
    const char *const *list = model ? of_runs : of_models;
    const int count = model ? WEFT_COUNT(of_runs) : WEFT_COUNT(of_models);
    const char *idle = NULL;
    for (int i = 0; i < count && !idle; i++)
        idle = weft_args_flag(args, list[i]) ? list[i] : NULL;
    if (!idle && !model)
        idle = weft_args_method_given(args, options, WEFT_COUNT(options));
    if (idle)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = idle),
                          "this option has an effect only %s; remove it",
                          model ? "with a config of weft train" : "with --model");
    return WEFT_OK;
}

static weft_status run_estimate(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    const char *model = weft_args_string(args, "--model");
    if (!model == !count)
        return weft_error(model ? WEFT_MSG_OPTION_CONFLICT : WEFT_MSG_OPTION_REQUIRED,
                          WEFT_AT(.key = "--model", .value = model),
                          "give a config of weft train or --model PATH%s",
                          model ? ", not both" : "");
    WEFT_TRY(check_options(args, model != NULL));
    return model ? weft_estimate_model(args, model) : weft_estimate_run(args, words[0]);
}

const weft_verb weft_verb_estimate = {
    .name = "estimate",
    .summary = "predict memory, FLOPs, seconds and bytes sent of a run or generation",
    .usage = "CONFIG [--ranks N] [--on CLUSTER] [--execute] [options]\n"
             "--model PATH [--ranks N] [--on CLUSTER] [options]",
    .details = "CONFIG is a config of `weft train`. For each training stage, prints parameters,\n"
               "FLOPs, seconds per step by part, and bytes sent by axis. Then prints the highest\n"
               "predicted peak memory of a rank, by part. --model PATH is a generation with a\n"
               "complete model folder, or a forward pass of one model.\n"
               "\n"
               "With parallel.cascades, prints the plans of the first iterations instead.\n"
               "With --model and --training-step, estimates a training step of one model.\n"
               "\n"
               "Estimates come from the programs of the run. Nothing is trained, generated or\n"
               "reserved. Seconds come from the measured kernels of a profile, or from the\n"
               "figures of the cluster. --execute runs one step of all ranks as threads on\n"
               "virtual devices and links.\n",
    .see = "docs/explanation/planning.md, docs/how-to/limit-memory.md",
    .examples = "weft estimate examples/dit.yaml\n"
                "weft estimate run.yaml --set parallel.tp=8 --ranks 64 --on h100:8\n"
                "weft estimate run.yaml --set parallel.pp=4 --on h100 --execute --json\n"
                "weft estimate --model Wan2.1-T2V-14B --parallel tp=8 --ranks 8 --on h100",
    .config = &weft_run_section,
    .groups = groups,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 0,
    .max_positional = 1,
    .copies_positional = true,
    .run = run_estimate,
};
