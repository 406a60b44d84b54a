/* weft simulate: simulates the time of a plan, of the steps that ranks executed, or of a queue. */
#include "base/fs.h"
#include "cli/options/args.h"
#include "cli/simulate_run.h"
#include "cli/simulate_serve.h"
#include "cli/simulate_traces.h"
#include "estimate/plan_simulation.h"

#include <string.h>

static const weft_option options[] = {
    {"--on", "CLUSTER", NULL, "preset or YAML file; for a plan, the cluster that it was made for",
     WEFT_ALSO("--cluster"), .copied = true},
    {"--chrome", "FILE.json", NULL, "write a trace for Perfetto", .result = WEFT_RESULT_FILE},
    {"--svg", "FILE.svg", NULL, "draw a Gantt chart of the devices", .result = WEFT_RESULT_FILE},
    {"--out", "FILE.json", NULL, "write the figures as JSON", .result = WEFT_RESULT_FILE},
    {"--links", "N", "8", "number of busiest links to print"},
    {"--pass-splits", "N", "0",
     "parts per pass over the layers; 0 (default): chosen by the number of devices",
     WEFT_ALSO("--folds")},
    {"--set", "KEY=VALUE", NULL, "set a key of the config", .repeated = true, .group = "run"},
    {"--costs", "FILE.json", NULL, "write costs for weft plan pipeline --costs", .group = "run",
     .result = WEFT_RESULT_FILE},
    {"--execute", NULL, NULL, "always execute the step, with a thread per rank", .group = "run"},
    {"--no-execute", NULL, NULL, "only estimate the programs", .group = "run"},
    {"--policy", "NAME", NULL, "fifo, srpt, edf or fair, as of `weft serve`; by default all",
     .repeated = true, .group = "serve", .choices = "fifo srpt edf fair"},
    {"--workers", "N", "1", "equal workers, 1 to 4096", .group = "serve"},
    {"--start-seconds", "S", "0", "seconds from the start of a worker to its first step",
     .group = "serve"},
    {"--stop-seconds", "S", "0", "seconds until a worker has stopped", .group = "serve"},
    {"--ageing", "X", "0.02",
     "srpt, edf: seconds by which a second of waiting shortens a job, 0 to 1", .group = "serve"},
    {"--predictions", NULL, NULL, "also predict ends; refused for queues that would take hours",
     .group = "serve"},
    {"--degrees", "FILE.json", NULL,
     "videos share up to 8 devices (--workers): seconds of a step on 1, 2, 4 and 8 devices, of "
     "each size; compares fixed degrees, ddit, tetriserve, genserve, weft and weft-start. The "
     "trace is poisson, or a file whose jobs name a size and can have a measured end",
     .group = "serve", .copied = true},
    {"--round-seconds", "S", "0.05", "--degrees: seconds of a round of tetriserve",
     .group = "serve"},
    {"--save", "FILE.jsonl", NULL, "write the trace", .group = "serve", .result = WEFT_RESULT_FILE},
    {"--jobs", "N", "1000", "poisson: number of jobs", .group = "serve"},
    {"--load", "X", "0.8", "poisson: seconds of work that arrive per second of all workers",
     .group = "serve"},
    {"--sizes", "S,...", "10,30,60,240", "poisson: seconds of a job, equally likely",
     .group = "serve"},
    {"--deadlines", "X,...", "1.5,2,3,5",
     "poisson: deadlines as multiples of a job's seconds, equally likely; \"\": none",
     .group = "serve"},
    {"--steps", "N", "30", "poisson: steps of a job", .group = "serve"},
    {"--owners", "N", "1", "poisson: owners, equally likely", .group = "serve"},
    {"--error", "X", "0", "poisson: standard deviation of log(actual / predicted seconds), 0 to 5",
     .group = "serve"},
    {"--seed", "K", "1", "poisson: random seed", .group = "serve"},
};
static const weft_option_group groups[] = {
    {"run", "options of RUN.yaml, which `weft estimate RUN.yaml --execute` replaces"},
    {"serve", "options of `weft simulate serve`"},
    {0},
};

static weft_status read_options(const weft_args *args, weft_simulation_options *o)
{
    *o = (weft_simulation_options){.cluster = weft_args_string(args, "--on"),
                                   .chrome = weft_args_string(args, "--chrome"),
                                   .svg = weft_args_string(args, "--svg"),
                                   .out = weft_args_string(args, "--out"),
                                   .splits_set = weft_args_flag(args, "--pass-splits")};
    WEFT_TRY(weft_args_i64(args, "--links", 0, 1 << 20, &o->links));
    return weft_args_i64(args, "--pass-splits", 0, 1000, &o->pass_splits);
}

/* Simulates the executed steps of ranks with the links of a cluster. */
static weft_status run_traces(const weft_args *args, const weft_simulation_options *o,
                              const char *const *paths, int count)
{
    weft_cluster cluster = {0};
    weft_trace trace = {0};
    weft_simulation result = {0};
    weft_simulated_plan made = {.cluster = &cluster, .executed = true};
    weft_status_code status = WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(arena, "the simulation"));
    WEFT_GO(weft_simulation_refuse_splits(o, paths[0], "a trace of executed steps"));
    WEFT_GO(weft_simulate_traces(args, paths, count, arena, &trace, &cluster, &made.seconds));
    WEFT_GO(weft_simulate(&trace, &cluster, &result));
    WEFT_GO(weft_simulation_report(o, &made, &trace, &result, paths[0]));
out:
    weft_simulation_free(&result);
    weft_trace_free(&trace);
    weft_arena_free(arena);
    return status;
}

/* Rejects options of the table that have no effect on `path`. */
static weft_status refuse_options(const weft_args *args, const char *path, bool is_queue)
{
    for (int i = 0; i < WEFT_COUNT(options); i++) {
        const weft_option *o = &options[i];
        const bool of_queue = o->group && !strcmp(o->group, "serve");
        if (of_queue != is_queue && strcmp(o->name, "--out") != 0 && weft_args_flag(args, o->name))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = o->name),
                              "this option has no effect on %s; remove it", path);
    }
    return WEFT_OK;
}

/* Rejects options and file types that are not for a plan. */
static weft_status refuse_for_plan(const weft_args *args, const char *path)
{
    static const char *const of_runs[] = {"--set", "--costs", "--execute", "--no-execute"};
    for (int i = 0; i < WEFT_COUNT(of_runs); i++)
        if (weft_args_flag(args, of_runs[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = of_runs[i]),
                              "this option is for a run (.yaml), and %s is a plan; remove it",
                              path);
    if (!strcmp(weft_path_extension(path), "jsonl"))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = path),
                          "the file has a line for every iteration, which weft report draws; "
                          "simulate a plan of weft plan or a trace of a run");
    return WEFT_OK;
}

static weft_status run_simulate(const weft_args *args)
{
    int count;
    const char *const *paths = weft_args_positional(args, &count), *path = paths[0];
    const char *extension = weft_path_extension(path);
    const bool run = !strcmp(extension, "yaml") || !strcmp(extension, "yml");
    weft_simulation_options o;
    json_t *json;
    const bool queue = !strcmp(path, "serve");
    WEFT_TRY(refuse_options(args, path, queue));
    if (queue)
        return weft_simulate_serve(args);
    WEFT_TRY(read_options(args, &o));
    if (run && count == 1)
        return weft_simulate_run(args, path);
    if (!run)
        WEFT_TRY(refuse_for_plan(args, path));
    if (!run)
        WEFT_TRY(weft_json_load(path, &json));
    if (!run && weft_simulate_is_trace(json)) {
        json_decref(json);
        return run_traces(args, &o, paths, count);
    }
    weft_status_code status = count > 1
                                  ? weft_error(WEFT_MSG_OPTION_UNKNOWN, WEFT_AT(.value = paths[1]),
                                               "%s is a %s, which is simulated alone; remove %s",
                                               path, run ? "run" : "plan", paths[1])
                                  : weft_plan_simulate(&o, path, json);
    if (!run)
        json_decref(json);
    return status;
}

const weft_verb weft_verb_simulate = {
    .name = "simulate",
    .summary = "simulate a plan, executed steps on another cluster, or the queue of a server",
    .usage = "PLAN.json | TRACE.json... [options]\n"
             "serve TRACE.jsonl|poisson [--policy NAME] [options]",
    .details = "PLAN.json is a plan of `weft plan cascades --out` or `weft plan pipeline --out`.\n"
               "TRACE.json... are the traces of all ranks of a run. Prints the iteration time,\n"
               "the idle share, exposed communication, peak memory and the busiest links.\n"
               "\n"
               "PLAN.json: an event simulator runs the steps of the plan over the cluster.\n"
               "Collectives follow their algorithms, messages share links fairly, and compute\n"
               "and communication have separate streams. A plan from --costs is simulated\n"
               "without communication. A plan for another cluster is rejected.\n"
               "\n"
               "TRACE.json...: `weft generate --trace` and `trace: true` of `weft train` write\n"
               "traces. Kernels and pauses keep their measured times. The time of a collective\n"
               "follows from bytes and links of --on. Prints simulated and executed seconds.\n"
               "\n"
               "serve: replays a queue of `weft serve` with its policies, and prints the share\n"
               "of deadlines that were met, the seconds from arrival to end, and on one worker\n"
               "their distance to a bound. The trace has a line of JSON per job:\n"
               "  {\"arrival\": 0, \"seconds\": 12.5, \"deadline\": 40, \"owner\": \"a\",\n"
               "   \"priority\": 0, \"steps\": 30, \"actual\": 13.1}\n"
               "Only arrival and predicted seconds are required. poisson: a random trace.\n"
               "\n"
               "RUN.yaml, a config of `weft train`, is also accepted. `weft estimate RUN.yaml\n"
               "--execute` replaces it.\n",
    .see = "docs/explanation/planning.md, docs/explanation/cascades.md, docs/how-to/serve.md",
    .examples = "weft plan cascades --set stage=1080p --out plan.json\n"
                "weft simulate plan.json --svg gantt.svg --chrome trace.json\n"
                "weft plan pipeline examples/plan-pipeline.yaml --out wave.json\n"
                "weft simulate wave.json --chrome trace.json\n"
                "weft simulate traced/trace-*.json --on two.yaml --svg executed.svg\n"
                "weft simulate serve poisson --load 0.9 --start-seconds 2 --out queue.json\n",
    .groups = groups,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 1,
    .max_positional = 4096,
    .copies_positional = true,
    .run = run_simulate,
};
