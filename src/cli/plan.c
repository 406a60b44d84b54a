#include "cli/plan.h"
#include "base/config_text.h"
#include "cli/options/args.h"
#include "cli/options/plan_options.h"
#include "cli/plan_cascades.h"
#include "cli/plan_compare.h"
#include "cli/plan_config.h"
#include "cli/plan_generate.h"
#include "cli/plan_layout.h"
#include "cli/plan_memory.h"
#include "cli/plan_pipeline.h"
#include "cli/text_output.h"

#include <stdio.h>
#include <string.h>

static const weft_plan_command commands[] = {
    {"cascades", weft_plan_cascades_run, &weft_plan_config_section},
    {"compare", weft_plan_compare_run, &weft_plan_config_section},
    {"pipeline", weft_plan_pipeline_run, &weft_plan_pipeline_section},
    {"layout", weft_plan_layout_run, &weft_plan_layout_section},
    {"memory", weft_plan_memory_run, &weft_plan_memory_section},
    {"generate", weft_plan_generate_run, &weft_plan_generate_section},
};

static weft_status print_keys(const weft_section *config)
{
    weft_buf text = {0};
    weft_config_help(config, false, &text);
    return weft_text_output(&text);
}

static weft_status run_command(const weft_args *args, const weft_plan_command *command)
{
    if (weft_args_flag(args, "--list-keys"))
        return print_keys(command->config);
    WEFT_TRY(weft_plan_refuse_idle(args, command));
    return command->run(args);
}

static weft_status run_plan(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    const char *names[WEFT_COUNT(commands)];
    for (int i = 0; i < WEFT_COUNT(commands); i++) {
        names[i] = commands[i].name;
        if (count > 0 && !strcmp(words[0], commands[i].name))
            return run_command(args, &commands[i]);
    }
    weft_buf list = {0};
    for (int i = 0; i < WEFT_COUNT(commands); i++)
        weft_buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const char *near = weft_nearest_name(words[0], names, WEFT_COUNT(names));
    const weft_status_code code =
        weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.value = words[0]),
                   "the first word after weft plan must be one of %s, not '%.80s'%s%s%s",
                   list.data ? list.data : "?", words[0], near ? "; did you mean '" : "",
                   near ? near : "", near ? "'?" : "");
    weft_buf_free(&list);
    return code;
}

const weft_verb weft_verb_plan = {
    .name = "plan",
    .summary = "plan how a job uses the devices of a cluster",
    .usage = "cascades|compare|pipeline|layout|memory|generate [CONFIG] [options]",
    .details =
        "cascades   placement of the samples of one iteration (Arachne)\n"
        "compare    cascades and the best static layouts over many iterations\n"
        "pipeline   pipeline stages and schedule of a model with skips (PULSE)\n"
        "layout     parallel degrees of a training run, sorted by estimated time\n"
        "memory     activations to keep, recompute or offload (Aquarius)\n"
        "generate   parallel degrees of `weft generate`, sorted by estimated time\n"
        "\n"
        "cascades: each module of a sample (text encoder, VAE, DiT forward and backward)\n"
        "is a cascade. The plan has the degree, devices and start of each, so that the\n"
        "last one ends as early as possible. The gap to a lower bound is printed. --costs\n"
        "FILE has\n"
        "  {\"cascades\": [{\"id\": \"s0.vae\", \"after\": [\"s0.text\"],\n"
        "    \"degrees\": {\"1\": {\"seconds\": 4.0, \"bytes\": 2e9}, \"3\": {...}}}, ...]}\n"
        "and the result is {\"makespan\", \"lower_bound\", \"proved\", \"cascades\": [{\"id\",\n"
        "\"degree\", \"start\", \"end\", \"devices\"}, ...]}. \"proved\": no schedule is shorter.\n"
        "\n"
        "compare: the same costs for the best static DP x CP, DP x Ulysses, a system like\n"
        "FlexSP and one like KnapFormer.\n"
        "\n"
        "pipeline: cuts a sequence of operators into stages with the fastest bottleneck.\n"
        "Operators that a skip joins share a device, or the skip is sent. --costs FILE\n"
        "with --stages P has seconds and bytes of one microbatch; operators count from 0:\n"
        "  {\"ops\": [{\"forward\": 0.01, \"backward\": 0.02, \"output_bytes\": 1e6,\n"
        "    \"parameter_bytes\": 1e8, \"activation_bytes\": 1e7}, ...],\n"
        "   \"skips\": [[0, 7], [1, 6]], \"lambda\": 1, \"bandwidth\": 1e10, \"latency\": 1e-5}\n"
        "The result is {\"stages\": [[first, last], ...], \"bottleneck\", \"schedule\":\n"
        "[{\"device\", \"step\", \"stage\", \"microbatch\", \"kind\"}, ...],\n"
        "\"bytes_per_microbatch\", ...}. The bottleneck is the largest forward time of a\n"
        "stage plus lambda (latency + output bytes / bandwidth). Bytes are those between\n"
        "devices in a forward pass.\n"
        "\n"
        "layout: tensor, context, expert, pipeline and data parallel degrees, ZeRO stage,\n"
        "microbatch, recompute and offload. Prints the best layout with its costs, and\n"
        "the next ten with the reason. Models with long skips have pipeline and data\n"
        "parallel degree and microbatch (PULSE Eq. 14-17). With --run-config RUN.yaml\n"
        "every layout of that run on --devices ranks is estimated from its own graphs and\n"
        "a profile. `parallel: {layout_file: FILE.json}` in the run's config uses the\n"
        "result of --out.\n"
        "\n"
        "memory: --costs FILE.json with --memory-limit BYTES has {\"items\": [{\"name\",\n"
        "\"bytes\", \"recompute\", \"offload\", \"count\"}, ...], \"window\": seconds that hide\n"
        "transfers}.\n"
        "\n"
        "generate: seconds per step and video, peak memory of a rank and bytes sent, for\n"
        "every layout of --devices ranks, from the model's own programs. If the weights\n"
        "do not fit, --weights stream is tried.\n"
        "\n"
        "Exit status 0: a plan was found. Otherwise the message has the memory that is\n"
        "missing and the smallest degree that fits.\n",
    .see = "docs/explanation/planning.md, docs/explanation/planning-pipelines.md",
    .examples = "weft plan cascades --set stage=1080p --set cluster=h100:4 --svg plan.svg\n"
                "weft plan layout --run-config examples/dit.yaml --devices 2 --explain\n"
                "weft plan generate --set model=Wan2.1-T2V-14B --devices 8 --on h100\n",
    .groups = weft_plan_groups,
    .options = weft_plan_options,
    .option_count = WEFT_PLAN_OPTIONS,
    .min_positional = 1,
    .max_positional = 2,
    .copies_positional = true,
    .run = run_plan,
};
