#include "cli/options/plan_options.h"

#include "cli/options/args.h"

#include <stdio.h>
#include <string.h>

const weft_option weft_plan_options[] = {
    {"--costs", "FILE.json", NULL,
     "plan from costs in JSON, not from a config; cascades, pipeline, memory", .copied = true},
    {"--devices", "N", "0",
     "number of devices or ranks. 0: all of the cluster. pipeline: as many as the stages can use. "
     "layout --run-config: also the ranks of the profile"},
    {"--run-config", "RUN.yaml", NULL,
     "layout: plan for the run of this config of `weft train`; --set then sets keys of this config",
     WEFT_ALSO("--for")},
    {"--on", "CLUSTER", "local",
     "machine; a profile of `weft profile`, a preset or a YAML file. local: this machine. layout "
     "--run-config: OUT/profile.json, if it exists",
     WEFT_ALSO("--cluster"), .copied = true},
    {"--memory-limit", "BYTES", "0",
     "memory of a device, e.g. 80GiB. 0: no limit for --costs, otherwise the limit of the cluster. "
     "layout --run-config, generate: of a rank; the run's memory.limit has priority",
     WEFT_ALSO("--memory")},
    {"--stages", "P", "0", "number of pipeline stages", .group = "pipeline"},
    {"--microbatches", "M", "0", "microbatches per iteration. 0: as many as devices",
     .group = "pipeline"},
    {"--skips", "MODE", "auto",
     "operators joined by a skip; collocate: on one device, price: send where this is faster, "
     "ignore. auto: collocate if possible, otherwise price",
     .group = "pipeline"},
    {"--schedule", "KIND", "auto",
     "pipeline schedule; gpipe, 1f1b, interleaved, wave, zero-bubble, greedy. auto: the fastest, "
     "then the one with the least memory",
     .group = "pipeline"},
    {"--blocking-sends", NULL, NULL,
     "count a send as work of its device, as synchronous point-to-point does",
     WEFT_ALSO("--blocking"), .group = "pipeline"},
    {"--seconds", "S", "0",
     "time limit of the search; 0: a fixed amount of work, with the same plan on every machine",
     .group = "search"},
    {"--seed", "K", "1",
     "random seed of the search; equal seeds give equal plans with any number of threads",
     .group = "search"},
    {"--threads", "N", "0", "threads of the search; 0: OMP_NUM_THREADS, or all cores",
     .group = "search"},
    {"--json", NULL, NULL, "print the plan as JSON", .group = "output", .common = true},
    {"--out", "FILE.json", NULL, "write the plan as JSON to a file", .group = "output",
     .common = true, .result = WEFT_RESULT_FILE},
    {"--svg", "FILE.svg", NULL, "draw the plan", .group = "output", .result = WEFT_RESULT_FILE},
    {"--explain", NULL, NULL, "print the candidates with their costs and why each lost",
     .group = "output", .common = true},
    {"--set", "KEY=VALUE", NULL, "set a config key, e.g. --set stage=1080p", .repeated = true},
    {"--list-keys", NULL, NULL, "list the config keys of a subcommand with defaults and exit",
     WEFT_ALSO("--keys")},
};
_Static_assert(WEFT_COUNT(weft_plan_options) == WEFT_PLAN_OPTIONS, "count of options");

const weft_option_group weft_plan_groups[] = {
    {"pipeline", "stages, microbatches, skips and schedule of `weft plan pipeline`"},
    {"search", "time, seed and threads of the search"},
    {"output", "table, JSON, drawing, candidates"},
    {0},
};

/* Options that each command reads. A command with `beside` is called with bare numbers or a run. */
static const struct {
    const char *command, *beside, *options;
} reads[] = {
    {"cascades", "--costs",
     " --costs --devices --memory-limit --seconds --seed --threads --json --out --svg --explain "},
    {"cascades", NULL, " --seconds --seed --threads --json --out --svg --explain --set "},
    {"compare", NULL, " --seconds --seed --threads --out --set "},
    {"pipeline", NULL,
     " --costs --devices --memory-limit --stages --microbatches --skips --schedule "
     "--blocking-sends --json "
     "--out --svg --explain --set "},
    {"layout", "--run-config",
     " --run-config --on --devices --memory-limit --json --out --explain --set "},
    {"layout", NULL, " --json --out --svg --explain --set "},
    {"memory", NULL, " --costs --memory-limit --json --out --svg --set "},
    {"generate", NULL, " --on --devices --memory-limit --json --out --explain --set "},
};

/* Returns true if row `row` applies to the command with the given options. */
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

/* Returns true if a config key has the option's name or an earlier name. */
static bool is_option_of_key(const weft_option *option, const char *key)
{
    bool is = !strcmp(key, option->name + 2);
    for (const char *const *also = option->also; also && *also; also++)
        is = is || !strcmp(key, *also + 2);
    return is;
}

/* `row`: the row that applies to this call. */
static weft_status refuse(const weft_plan_command *command, int row, const weft_option *refused)
{
    const char *option = refused->name, *required = NULL;
    const char *key = NULL;
    if (reads[row].beside)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = option),
                          "this option has no effect in weft plan %s with %s; remove it",
                          command->name, reads[row].beside);
    for (int i = 0; i < WEFT_COUNT(reads); i++)
        if (!strcmp(reads[i].command, command->name) && reads_option(i, option))
            required = reads[i].beside;
    for (int i = 0; i < command->config->key_count; i++)
        if (is_option_of_key(refused, command->config->keys[i].name))
            key = command->config->keys[i].name;
    if (key)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = option),
                          "this option has no effect here; weft plan %s takes --set %s=...",
                          command->name, key);
    if (required)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = option),
                          "this option has an effect only with %s; add that or remove this",
                          required);
    return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = option),
                      "this option has no effect in weft plan %s; remove it", command->name);
}

weft_status weft_plan_refuse_idle(const weft_args *args, const weft_plan_command *command)
{
    int row = 0;
    while (!is_called(args, command->name, row))
        row++;
    for (int i = 0; i < WEFT_PLAN_OPTIONS; i++)
        if (strcmp(weft_plan_options[i].name, "--list-keys") &&
            weft_args_flag(args, weft_plan_options[i].name) &&
            !reads_option(row, weft_plan_options[i].name))
            return refuse(command, row, &weft_plan_options[i]);
    return WEFT_OK;
}
