/* weft serve: a queue of videos over HTTP. */
#include "serve/server.h"

#include "cli/options/args.h"
#include "cli/options/backend_option.h"

#include <string.h>

/* src/serve is not part of a build without libmicrohttpd or SQLite, and never of libweft. */
#pragma weak weft_serve_run
#pragma weak weft_serve_new_token
#pragma weak weft_serve_webhook_secret

static const weft_option options[] = {
    {"--model", "[NAME=]DIR", NULL,
     "model folder in diffusers format, as for `weft generate`; the first is the default model. "
     "Requests name it by NAME, or by the name of the folder",
     .repeated = true, .copied = true},
    {"--lora", "NAME=FILE", NULL,
     "LoRA adapter, as for `weft generate`, that requests choose by NAME (field `lora`)",
     .repeated = true, .copied = true},
    {"--listen", "ADDRESS:PORT", "127.0.0.1:8080",
     "address of digits; port 0: any free port. Other addresses than the loopback need a token"},
    {"--tls-cert", "FILE", NULL, "certificate in PEM, with its chain: the server speaks HTTPS"},
    {"--tls-key", "FILE", NULL, "private key of the certificate in PEM, without a password"},
    {"--state", "DIR", "serve", "folder of the queue, the videos and the hashes of the tokens"},
    {"--on", "CLUSTER", NULL,
     "profile of `weft profile`, preset or YAML file, from which seconds are predicted; by default "
     "this machine",
     .copied = true},
    WEFT_BACKEND_OPTION,
    {"--precision", "TYPE", NULL,
     "default of the field `precision`: f32, tf32, bf16 or auto, as in `weft generate`; by "
     "default f32",
     .choices = "f32 tf32 bf16 auto"},
    {"--vae-precision", "TYPE", NULL,
     "default of the field `vae_precision`: f32, tf32 or bf16, as in `weft generate`; by default "
     "f32",
     .choices = "f32 tf32 bf16"},
    {"--weights", "TYPE", NULL,
     "default of the field `weights`: stored, f32, bf16, int8, gguf or stream, as in `weft "
     "generate`; by default stored",
     .choices = "stored f32 bf16 int8 gguf stream"},
    {"--ranks", "N", "1",
     "processes that generate each video together, started by mpirun on this machine; a crash of "
     "one ends all, and the job resumes at its step"},
    {"--parallel", "KEY=VALUE", NULL,
     "how the ranks split the work, as in `weft generate`, e.g. cp=2. auto: for each job the "
     "layout "
     "with the fewest predicted seconds",
     .repeated = true},
    {"--memory-limit", "SIZE", NULL,
     "memory limit of the worker, or of each rank, as in `weft generate`, with the models and "
     "LoRAs that stay "
     "loaded: the least recently used are unloaded; by default the free memory"},
    {"--idle-unload", "SECONDS", "0",
     "unload models and LoRAs that no job has used for this time; 0: never"},
    {"--batch", "N", "1",
     "generate up to N equal jobs (all fields but prompts and seed) together where this is faster; "
     "1 to 16. Above 1, videos are close to the ones of `weft generate`, not bitwise equal"},
    {"--policy", "NAME", "fifo",
     "order of jobs of equal priority: fifo, srpt (shortest first), edf (deadlines first, then "
     "srpt) or fair (equal seconds per token). share: with --ranks, jobs run at the same time on "
     "ranks of their own, whose number is chosen for each job",
     .choices = "fifo srpt edf fair share"},
    {"--elastic", NULL, NULL,
     "with --policy share: the number of ranks of a running job can change between two steps. "
     "Videos are then close to the ones of unchanged ranks, not bitwise equal"},
    {"--webhook", "URL", NULL,
     "URL below which requests may have a `webhook`, e.g. https://example.org/hooks/; by default "
     "none",
     .repeated = true},
    {"--webhook-secret", NULL, NULL,
     "print the secret that signs webhooks, create it in --state if it is missing, and exit"},
    {"--new-token", "NAME", NULL,
     "create a token in --state, print it, and exit; requests then need a token"},
    {"--token-jobs", "N", "0",
     "with --new-token: jobs of the token that may wait or run at a time. 0 (default): no limit"},
    {"--token-seconds", "S", "0",
     "with --new-token: seconds of generation in 24 hours, used and predicted. 0 (default): no "
     "limit"},
};

static weft_status make_token(const weft_args *args, const char *state, const char *name)
{
    weft_token_limits limits;
    WEFT_TRY(weft_args_i64(args, "--token-jobs", 0, 1000000000, &limits.jobs));
    WEFT_TRY(weft_args_f64(args, "--token-seconds", 0, 1e12, &limits.seconds));
    return weft_serve_new_token(state, name, &limits);
}

static weft_status check_token_options(const weft_args *args)
{
    static const char *const limits[] = {"--token-jobs", "--token-seconds"};
    for (int i = 0; i < WEFT_COUNT(limits) && !weft_args_string(args, "--new-token"); i++)
        if (weft_args_flag(args, limits[i]))
            return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = limits[i]),
                              "this option is for --new-token; remove it");
    return WEFT_OK;
}

static weft_status run_serve(const weft_args *args)
{
    const char *name = weft_args_string(args, "--new-token");
    const char *backend = weft_args_string(args, "--backend");
    const weft_backend *known;
    double idle;
    int64_t ranks, batch;
    if (strcmp(backend, "auto")) /* the worker chooses; this process does not use a GPU */
        WEFT_TRY(weft_args_backend(args, &known));
    WEFT_TRY(weft_args_f64(args, "--idle-unload", 0, 1e9, &idle));
    WEFT_TRY(weft_args_i64(args, "--ranks", 1, WEFT_SERVE_RANKS, &ranks));
    WEFT_TRY(weft_args_i64(args, "--batch", 1, 16, &batch));
    weft_serve_options o = {.listen = weft_args_string(args, "--listen"),
                            .state = weft_args_string(args, "--state"),
                            .cluster = weft_args_string(args, "--on"),
                            .certificate = weft_args_string(args, "--tls-cert"),
                            .key = weft_args_string(args, "--tls-key"),
                            .policy = weft_args_string(args, "--policy"),
                            .backend = backend,
                            .compute = {weft_args_string(args, "--precision"),
                                        weft_args_string(args, "--vae-precision"),
                                        weft_args_string(args, "--weights")},
                            .memory = weft_args_string(args, "--memory-limit"),
                            .ranks = ranks,
                            .elastic = weft_args_flag(args, "--elastic"),
                            .batch = batch,
                            .idle_unload = idle};
    o.parallel = weft_args_list(args, "--parallel", &o.parallel_count);
    o.models = weft_args_list(args, "--model", &o.model_count);
    o.loras = weft_args_list(args, "--lora", &o.lora_count);
    o.webhooks = weft_args_list(args, "--webhook", &o.webhook_count);
    if (!weft_serve_run || !weft_serve_new_token || !weft_serve_webhook_secret)
        return weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_NOWHERE,
                          "this build of weft has no server. Install libmicrohttpd-dev and "
                          "libsqlite3-dev, and build weft again.");
    WEFT_TRY(check_token_options(args));
    if (name)
        return make_token(args, o.state, name);
    if (weft_args_flag(args, "--webhook-secret"))
        return weft_serve_webhook_secret(o.state);
    if (!o.model_count)
        return weft_error(WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = "--model"),
                          "give at least one --model DIR");
    return weft_serve_run(&o);
}

const weft_verb weft_verb_serve = {
    .name = "serve",
    .summary = "generate videos for HTTP requests, from a queue that survives a kill",
    .usage = "--model [NAME=]DIR [--listen 127.0.0.1:8080] [--state DIR]",
    .details = "Accepts requests for videos, and generates one at a time in a child process,\n"
               "the worker, which keeps models and LoRAs in memory between jobs.\n"
               "Predicts seconds, bytes and the wait of a request before it is accepted.\n"
               "\n"
               "The address shows a page for the browser.\n"
               "/v1/videos has the shape that the Python client `openai` speaks. /v1/jobs has\n"
               "prices, edits, order, cancel, pause, resume and events. /health, /ready,\n"
               "/metrics, /v1/machine and /capabilities describe the server.\n"
               "\n"
               "Every accepted job is on the disk before the answer. After a kill of the server\n"
               "or of a worker, the same command finishes each job once, without --batch bitwise\n"
               "identical to an undisturbed run. A job whose worker was killed twice is parked\n"
               "with the reason. SIGTERM saves the running job and exits.\n",
    .files = "STATE/queue.sqlite, STATE/jobs/ID/video.mp4, STATE/tokens",
    .see = "docs/how-to/serve.md",
    .examples = "weft serve --model runs/dit/model\n"
                "weft serve --state serve --new-token laptop\n"
                "weft serve --model wan=Wan2.1-T2V-1.3B --listen 0.0.0.0:8080 --on profile.json\n",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .stops_cleanly = true,
    .run = run_serve,
};
