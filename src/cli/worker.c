/* weft worker: the process of `weft serve` that generates. */
#include "cli/options/args.h"
#include "cli/worker_run.h"
#include "serve/server.h"

static const weft_option options[] = {
    {"--idle-unload", "SECONDS", "0", "time without a use after which weights are unloaded"},
    {"--ranks", "N", "1", "ranks that mpirun starts"},
    {"--lock", "FILE", "worker.lock", "file of the working folder that several ranks lock"},
};

static weft_status run_worker(const weft_args *args)
{
    double idle;
    int64_t ranks;
    WEFT_TRY(weft_args_f64(args, "--idle-unload", 0, 1e9, &idle));
    WEFT_TRY(weft_args_i64(args, "--ranks", 1, WEFT_SERVE_RANKS, &ranks));
    return weft_worker_generate(idle, ranks, weft_args_string(args, "--lock"));
}

const weft_verb weft_verb_worker = {
    .name = "worker",
    .summary = "generate the jobs of `weft serve`, which starts this verb",
    .usage = "[options]",
    .details = "Reads jobs as lines of JSON from standard input.\n",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .hidden = true,
    .stops_cleanly = true,
    .run = run_worker,
};
