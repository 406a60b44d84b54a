#include "cli/plan.h"
#include "base/fs.h"

#include <stdio.h>
#include <string.h>

typedef struct plan_command {
    const char *name;
    weft_status (*run)(const weft_args *args);
    const weft_section *config; /* for --keys */
} plan_command;

static const plan_command commands[] = {
    {"cascades", weft_plan_cascades_run, &weft_plan_config_section},
    {"compare", weft_plan_compare_run, &weft_plan_config_section},
    {"pipeline", weft_plan_pipeline_run, &weft_plan_pipeline_section},
    {"layout", weft_plan_layout_run, &weft_plan_layout_section},
    {"memory", weft_plan_memory_run, &weft_plan_memory_section},
    {"generate", weft_plan_generate_run, &weft_plan_generate_section},
};

static const weft_option options[] = {
    {"--costs", "FILE.json", NULL, "bare numbers instead of a config: solve just these"},
    {"--devices", "N", "0",
     "number of devices for --costs; pipeline: 0: as many as the stages can use; layout --for: "
     "ranks, 0: as many as the cluster has or the profile was measured with; generate: ranks, 0: "
     "as "
     "many as the cluster has"},
    {"--for", "RUN.yaml", NULL,
     "layout: of this run (a config of weft train), by its own graphs: --set then sets its keys"},
    {"--cluster", "SPEC", "local",
     "layout --for, generate: a profile of weft profile --out, a preset, a YAML file; local: "
     "OUT/profile.json "
     "if it is there, else this machine's figures; generate: local is this machine"},
    {"--memory", "BYTES", "0",
     "bytes per device; 0: no limit for --costs (80GiB is understood); layout --for: of a rank, "
     "where the run has no memory.limit, generate: of a rank; 0: what the cluster has for it"},
    {"--stages", "P", "0", "pipeline: number of stages"},
    {"--microbatches", "M", "0", "pipeline: per iteration; 0: as many as devices"},
    {"--skips", "MODE", "auto",
     "pipeline: collocate every skip, price (send what does not pay), ignore; auto: collocate "
     "where that is possible, else price"},
    {"--schedule", "KIND", "auto",
     "pipeline: gpipe, 1f1b, interleaved, wave, zero-bubble, greedy; auto: the fastest, then the "
     "one that holds least"},
    {"--blocking", NULL, NULL,
     "pipeline: a send occupies its device, as synchronised point-to-point does"},
    {"--seconds", "S", "0",
     "search so long; 0: a fixed amount of work, which gives the same plan on every machine"},
    {"--seed", "K", "1", "seed of the search; equal seeds give equal plans, whatever the threads"},
    {"--threads", "N", "0", "threads of the search; 0: OMP_NUM_THREADS or all cores"},
    {"--json", NULL, NULL, "print the plan as JSON on standard output instead of the table"},
    {"--out", "FILE.json", NULL, "write the plan as JSON to a file"},
    {"--svg", "FILE.svg", NULL, "draw the plan"},
    {"--explain", NULL, NULL, "show the candidates with their cost terms and why each lost"},
    {"--set", "KEY=VALUE", NULL, "override a key of the config", .repeated = true},
    {"--keys", NULL, NULL, "list the config's keys with defaults, and exit"},
};

static weft_status print_keys(const weft_section *config)
{
    weft_buf text = {0};
    weft_config_help(config, false, &text);
    const weft_status_code status = weft_buf_check(&text);
    if (status == WEFT_OK)
        fputs(text.data, stdout);
    weft_buf_free(&text);
    return status;
}

weft_status weft_plan_print_json(const json_t *json)
{
    if (!json)
        return weft_fail(WEFT_E_MEMORY, "out of memory for the plan as JSON");
    if (json_dumpf(json, stdout, JSON_INDENT(1)) != 0)
        return weft_fail(WEFT_E_IO, "standard output cannot be written");
    putchar('\n');
    return WEFT_OK;
}

weft_status weft_plan_ranks(const weft_args *args, int64_t all, int most, int *ranks)
{
    int64_t devices;
    WEFT_TRY(weft_args_i64(args, "--devices", 0, most, &devices));
    if (devices == 0 && all > most)
        return weft_fail(WEFT_E_ARG,
                         "--cluster %s: %lld ranks, and layouts of up to %d are priced: --devices "
                         "says for how many",
                         weft_args_string(args, "--cluster"), (long long)all, most);
    *ranks = (int)(devices ? devices : all);
    return WEFT_OK;
}

weft_status weft_plan_finish(const weft_args *args, json_t *json, weft_buf *text, weft_buf *svg)
{
    const char *picture = weft_args_string(args, "--svg"), *out = weft_args_string(args, "--out");
    weft_status_code status = WEFT_OK;
    if (!json)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "out of memory for the plan as JSON"));
    if (picture && !svg)
        WEFT_GO(weft_fail(
            WEFT_E_ARG, "--svg: (P, G, b) has no picture; weft plan pipeline draws the schedule"));
    WEFT_GO(weft_buf_check(text));
    if (picture) {
        WEFT_GO(weft_buf_check(svg));
        WEFT_GO(weft_file_write_atomic(picture, svg->data, svg->len));
    }
    if (out)
        WEFT_GO(weft_json_save(out, json));
    if (weft_args_flag(args, "--json"))
        WEFT_GO(weft_plan_print_json(json));
    else
        fputs(text->data, stdout);
out:
    weft_buf_free(text);
    if (svg)
        weft_buf_free(svg);
    json_decref(json);
    return status;
}

/* What each command reads, where it is given bare numbers or a run and where it is not. */
static const struct {
    const char *command, *beside, *options;
} reads[] = {
    {"cascades", "--costs",
     " --costs --devices --memory --seconds --seed --threads --json --out --svg --explain "},
    {"cascades", NULL, " --seconds --seed --threads --json --out --svg --explain --set "},
    {"compare", NULL, " --seconds --seed --threads --out --set "},
    {"pipeline", NULL,
     " --costs --devices --memory --stages --microbatches --skips --schedule --blocking --json "
     "--out --svg --explain --set "},
    {"layout", "--for", " --for --cluster --devices --memory --json --out --explain --set "},
    {"layout", NULL, " --json --out --svg --explain --set "},
    {"memory", NULL, " --costs --memory --json --out --svg --set "},
    {"generate", NULL, " --cluster --devices --memory --json --out --explain --set "},
};

/* Row `row` is of the command, as it is called. */
static bool is_called(const weft_args *args, const char *command, int row)
{
    return !strcmp(reads[row].command, command) &&
           (!reads[row].beside || weft_args_flag(args, reads[row].beside));
}

static bool reads_option(int row, const char *option)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", option);
    return strstr(reads[row].options, word) != NULL;
}

/* `row`: as it is called. */
static weft_status refuse(const plan_command *command, int row, const char *option)
{
    const char *beside = NULL;
    bool key = false;
    if (reads[row].beside)
        return weft_fail(WEFT_E_ARG, "%s does nothing in weft plan %s beside %s; leave it out",
                         option, command->name, reads[row].beside);
    for (int i = 0; i < WEFT_COUNT(reads); i++)
        if (!strcmp(reads[i].command, command->name) && reads_option(i, option))
            beside = reads[i].beside;
    for (int i = 0; i < command->config->key_count; i++)
        key |= !strcmp(command->config->keys[i].name, option + 2);
    if (key)
        return weft_fail(WEFT_E_ARG, "%s does nothing here: weft plan %s takes --set %s=...",
                         option, command->name, option + 2);
    if (beside)
        return weft_fail(WEFT_E_ARG, "%s goes with %s: give that, too, or leave it out", option,
                         beside);
    return weft_fail(WEFT_E_ARG, "%s does nothing in weft plan %s; leave it out", option,
                     command->name);
}

static weft_status refuse_idle(const weft_args *args, const plan_command *command)
{
    int row = 0;
    while (!is_called(args, command->name, row))
        row++;
    for (int i = 0; i < WEFT_COUNT(options); i++)
        if (strcmp(options[i].name, "--keys") && weft_args_flag(args, options[i].name) &&
            !reads_option(row, options[i].name))
            return refuse(command, row, options[i].name);
    return WEFT_OK;
}

static weft_status run_command(const weft_args *args, const plan_command *command)
{
    if (weft_args_flag(args, "--keys"))
        return print_keys(command->config);
    WEFT_TRY(refuse_idle(args, command));
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
        weft_fail(WEFT_E_ARG, "weft plan \"%s\": the first word must be one of %s%s%s%s", words[0],
                  list.data ? list.data : "?", near ? "; did you mean " : "", near ? near : "",
                  near ? "?" : "");
    weft_buf_free(&list);
    return code;
}

const weft_verb weft_verb_plan = {
    .name = "plan",
    .summary = "decide how a training job is laid over the devices, before renting one",
    .usage = "cascades|compare|pipeline|layout|memory|generate [CONFIG] [options]",
    .details =
        "cascades: lays the samples of one iteration over the devices (Arachne). Every (sample, "
        "module) is a cascade: text encoder, VAE, DiT forward and backward. The plan chooses each "
        "cascade's degree, its devices and its start so that the last one ends as early as "
        "possible, and prints the gap to a lower bound. With --costs it takes bare numbers:\n\n"
        "  {\"cascades\": [{\"id\": \"s0.vae\", \"after\": [\"s0.text\"],\n"
        "                 \"degrees\": {\"1\": {\"seconds\": 4.0, \"bytes\": 2e9}, \"3\": "
        "{...}}}, ...]}\n\n"
        "and prints {\"makespan\", \"lower_bound\", \"proved\", \"cascades\": [{\"id\", "
        "\"degree\", \"start\", \"end\", \"devices\"}, ...]}. \"proved\" means that no schedule "
        "is shorter.\n\n"
        "compare: plans many iterations and sets them beside the best static DP x CP, DP x "
        "Ulysses, a FlexSP-like and a KnapFormer-like system with the same costs.\n\n"
        "pipeline: cuts a sequence of operators into stages so that the slowest is as fast as "
        "possible while operators that a skip joins share a device (PULSE), and lays the stages "
        "on devices and microbatches on steps. Skips that cannot be collocated are sent. With "
        "--costs FILE.json and --stages P (seconds and bytes of one microbatch, operators count "
        "from 0):\n\n"
        "  {\"ops\": [{\"forward\": 0.01, \"backward\": 0.02, \"output_bytes\": 1e6, "
        "\"parameter_bytes\": 1e8,\n"
        "            \"activation_bytes\": 1e7}, ...],\n"
        "   \"skips\": [[0, 7], [1, 6]], \"lambda\": 1, \"bandwidth\": 1e10, \"latency\": "
        "1e-5}\n\n"
        "it prints {\"stages\": [[first, last], ...], \"bottleneck\", \"schedule\": [{\"device\", "
        "\"step\", \"stage\", \"microbatch\", \"kind\"}, ...], \"bytes_per_microbatch\", ...}: "
        "the bottleneck is the largest forward time of a stage plus lambda (latency + output "
        "bytes / bandwidth); the bytes are those of a forward pass between devices.\n\n"
        "layout: tensor, context, expert, pipeline and data parallel degrees, ZeRO stage, "
        "microbatch, recompute and offload for a model on a cluster: the best with its cost "
        "terms, the ten next best and why they lost. For models with long skips: pipeline and "
        "data parallel degree and microbatch (PULSE Eq. 14-17). With --for RUN.yaml it prices "
        "every layout of that run on --devices ranks: its own graphs through the passes of weft "
        "train, with the memory that a run tells and the seconds of a profile. `parallel: {plan: "
        "FILE.json}` in the run's config takes what --out wrote.\n\n"
        "memory: which activations to keep, recompute or offload so that they fit (Aquarius). "
        "With --costs FILE.json and --memory BYTES: {\"items\": [{\"name\", \"bytes\", "
        "\"recompute\", \"offload\", \"count\"}, ...], \"window\": seconds that transfers can "
        "hide behind}.\n\n"
        "generate: how ranks split the making of videos (weft generate --parallel): seconds of a "
        "step and of a video, the peak of a rank, the bytes that it sends, for every layout of "
        "--devices ranks, by the model's own programs and a profile's or a cluster's figures. "
        "Weights that do not fit are tried with --weights stream.\n\n"
        "Exit status 0: a plan was found. What does not fit is said with the numbers and the "
        "smallest degree that would.",
    .examples =
        "weft plan cascades --set stage=1080p --set cluster=h100:4 --svg plan.svg --explain\n"
        "weft plan compare --set stage=1080p --set iterations=10\n"
        "weft plan cascades --costs costs.json --devices 16 --memory 80GiB --json\n"
        "weft plan pipeline --costs costs.json --stages 8 --devices 4 --microbatches 8 --svg "
        "wave.svg --explain\n"
        "weft plan pipeline examples/plan-pipeline.yaml --set microbatch=16\n"
        "weft plan layout examples/plan-layout.yaml\n"
        "weft plan layout --for examples/dit.yaml --devices 2 --out layout.json --explain\n"
        "weft plan memory examples/plan-memory.yaml --set limit=40GiB\n"
        "weft plan generate --set model=Wan2.1-T2V-14B --set frames=81 --set height=720 --set "
        "width=1280 --devices 8 --cluster h100 --explain\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 2,
    .run = run_plan,
};
