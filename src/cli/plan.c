#include "cli/plan.h"

#include <string.h>

typedef struct plan_command {
    const char *name;
    weft_status (*run)(const weft_args *args);
} plan_command;

static const plan_command commands[] = {
    {"cascades", weft_plan_cascades_run},
};

static const weft_option options[] = {
    {"--costs", "FILE.json", NULL, "bare numbers instead of a config: solve just these"},
    {"--devices", "N", "0", "number of devices for --costs"},
    {"--memory", "BYTES", "0", "cascades: bytes per device for --costs; 0: no limit (80GiB is understood)"},
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

static weft_status run_plan(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    const char *names[WEFT_COUNT(commands)];
    for (int i = 0; i < WEFT_COUNT(commands); i++) {
        names[i] = commands[i].name;
        if (count > 0 && !strcmp(words[0], commands[i].name))
            return commands[i].run(args);
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
    .usage = "cascades [CONFIG] [options]",
    .details =
        "cascades: lays the samples of one iteration over the devices (Arachne). Every (sample, module) is a "
        "cascade: text encoder, VAE, DiT forward and backward. The plan chooses each cascade's degree, its "
        "devices and its start so that the last one ends as early as possible, and prints the gap to a lower "
        "bound. With --costs it takes bare numbers:\n\n"
        "  {\"cascades\": [{\"id\": \"s0.vae\", \"after\": [\"s0.text\"],\n"
        "                 \"degrees\": {\"1\": {\"seconds\": 4.0, \"bytes\": 2e9}, \"3\": {...}}}, ...]}\n\n"
        "and prints {\"makespan\", \"lower_bound\", \"proved\", \"cascades\": [{\"id\", \"degree\", \"start\", "
        "\"end\", \"devices\"}, ...]}. \"proved\" means that no schedule is shorter.\n\n"
        "Exit status 0: a plan was found. What does not fit is said with the numbers and the smallest degree that "
        "would.",
    .examples = "weft plan cascades --costs costs.json --devices 16 --memory 80GiB --json\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 2,
    .run = run_plan,
};
