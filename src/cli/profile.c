/* weft profile: measures the kernels of weft at the shapes of a run or of a few small models. */
#include "profile/profile_run.h"

#include "cli/options/args.h"
#include "cli/options/backend_option.h"
#include "cli/options/tile_option.h"
#include "cli/options/weights_option.h"
#include "train/config/train_config.h"

static const weft_option options[] = {
    {"--seconds", "S", "20", "approximate duration of the measurement"},
    {"--hidden-size", "H", "256",
     "width of the transformer block that is timed at several lengths; a multiple of 64",
     WEFT_ALSO("--hidden")},
    {"--prompt-tokens", "N", "64",
     "tokens of a prompt or caption; the rows of its text after them are padding, which is "
     "computed "
     "once. 0: no padding"},
    WEFT_BACKEND_OPTION,
    {"--out", "FILE.json", NULL,
     "write the profile; plan, simulate, topology, inspect and generate read it as a cluster",
     .result = WEFT_RESULT_FILE},
    {"--compare", "FILE.json", NULL,
     "compare the predictions of an earlier profile with the measured times",
     WEFT_ALSO("--against"), .copied = true},
    {"--yaml", "FILE.yaml", NULL, "write a cluster file of this machine with the mean rates",
     .result = WEFT_RESULT_FILE},
    {"--model", "DIR", NULL, "time generation with this model folder", .group = "generation",
     .common = true, .copied = true},
    {"--frames", "N", "0", "frames of the videos; 0: the model's own", .group = "generation"},
    {"--height", "N", "0", "height in pixels; 0: the model's own", .group = "generation"},
    {"--width", "N", "0", "width in pixels; 0: the model's own", .group = "generation"},
    {"--batch-size", "N", "1", "prompts denoised together", WEFT_ALSO("--batch"),
     .group = "generation"},
    {"--guidance-scale", "G", NULL,
     "guidance scale; 1: only the conditional branch. By default the model's own, or 4",
     WEFT_ALSO("--guidance"), .group = "generation"},
    {"--window", "N", "0", "frames of a temporal window; 0: one window", .group = "generation"},
    {"--parallel", "KEY=VALUE", NULL,
     "layout to time with --model, as for `weft generate`; by default every layout of the ranks",
     .repeated = true, .group = "generation"},
    WEFT_WEIGHTS_OPTIONS,
    WEFT_TILE_OPTIONS,
};
static const weft_option_group groups[] = {
    {"generation", "options of --model: sizes, batch, guidance, layout"},
    {0},
};

static weft_status refuse_idle(const weft_args *args, bool small_models)
{
    static const char *const of_model[] = {"--frames",     "--height",         "--width",
                                           "--batch-size", "--guidance-scale", "--window",
                                           "--parallel",   "--weights",        "--precision",
                                           "--vae-tile",   "--vae-precision",  "--memory-limit"};
    for (int i = 0; i < WEFT_COUNT(of_model); i++)
        if (weft_args_flag(args, of_model[i]) && !weft_args_flag(args, "--model"))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = of_model[i]),
                              "this option has an effect only with --model DIR, which profiles the "
                              "generation of that model; add that or remove this");
    if (small_models && weft_args_flag(args, "--prompt-tokens"))
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--prompt-tokens"),
                          "the small models that are timed without CONFIG and --model have no "
                          "prompts; add one of both or remove this option");
    return WEFT_OK;
}

static weft_status run_profile(const weft_args *args)
{
    double seconds;
    int64_t hidden;
    int count;
    const char *const *words = weft_args_positional(args, &count);
    WEFT_TRY(weft_args_f64(args, "--seconds", 0.1, 3600, &seconds));
    WEFT_TRY(weft_args_i64(args, "--hidden-size", 64, 4096, &hidden));
    if (hidden % 64)
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--hidden-size", WEFT_NUMBER(hidden)),
                          "%" PRId64 " is not a multiple of 64, the size of a head", hidden);
    WEFT_TRY(refuse_idle(args, !count && !weft_args_flag(args, "--model")));
    if (count && weft_args_flag(args, "--model"))
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--model", .value = words[0]),
                          "a profile is of the training of %s or of the generation with --model; "
                          "remove one of them",
                          words[0]);
    return weft_profile_run(args, count ? words[0] : NULL, hidden, seconds);
}

const weft_verb weft_verb_profile = {
    .name = "profile",
    .summary = "measure this machine for plan, simulate, inspect and generate",
    .usage = "[CONFIG] [options]\n--model DIR [options]",
    .details = "Times training steps of small models, a transformer block and 3x3x3\n"
               "convolutions in f32 and bf16, or the programs of CONFIG (a config of `weft train`) "
               "or of --model\n"
               "at their shapes. Measure with the ranks and OMP_NUM_THREADS of the run, on an\n"
               "idle machine.\n"
               "\n"
               "Each node is timed inside its program. Times are stored by op and shapes. A node\n"
               "with the same shapes gets the measured seconds, other nodes are scaled from the\n"
               "nearest shapes.\n"
               "\n"
               "--model times the text encoders, the denoiser in every layout of the ranks (or\n"
               "that of --parallel), and the decoder: without tiles if that fits, and with the\n"
               "tiles of --vae-tile (by default the reference's; off: only without tiles). Each\n"
               "program runs as a whole, and node by node for new shapes. The weights of one\n"
               "layout at a time are in memory. With --on FILE.json `weft generate`\n"
               "predicts its seconds, and `weft plan generate` and --parallel auto use them. The\n"
               "times do not depend on the number of steps.\n"
               "\n"
               "Kernels compute equal rows of padding once. A prompt has --prompt-tokens tokens,\n"
               "so a step with more tokens takes longer than predicted, and with fewer shorter.\n"
               "\n"
               "Under mpirun all ranks measure at the same time, because ranks share caches and\n"
               "memory. CONFIG: programs of as few layouts as have the nodes of all layouts,\n"
               "every collective between the ranks over sizes, and the slowdown of concurrent\n"
               "kernels.\n"
               "\n"
               "The profile of --out is a cluster of this machine: `weft plan --set\n"
               "cluster=FILE.json`, `weft plan layout --run-config CONFIG --on FILE.json`,\n"
               "`weft topology FILE.json`, `weft inspect graph CONFIG --on FILE.json`.\n"
               "`--on local` and `context: auto` of a run read profile.json in its folder.\n",
    .see = "docs/explanation/planning.md, docs/reference/verbs/train.md (keys)",
    .examples = "weft profile --out here.json\n"
                "mpirun -n 2 weft profile --model runs/dit/model --out two.json\n"
                "mpirun -n 2 weft profile examples/dit.yaml --out runs/dit/profile.json\n",
    .config = &weft_run_section,
    .groups = groups,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .max_positional = 1,
    .copies_positional = true,
    .run = run_profile,
};
