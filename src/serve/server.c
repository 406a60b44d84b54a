#include "serve/server.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/id_hash.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/path_stamp.h"
#include "plan/cluster/cluster.h"
#include "serve/device_check.h"
#include "serve/http_server.h"
#include "serve/learned_store.h"
#include "serve/served_files.h"
#include "serve/supervisor.h"
#include "serve/webhook.h"
#include "serve/webhook_sender.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PEM_BYTES = 1 << 20 };
/* The policy of jobs that share the ranks. */
#define SHARE "share"

/* The program that runs; a worker is the same program with another verb. */
static weft_status find_program(weft_server *s)
{
    const ssize_t length = readlink("/proc/self/exe", s->program, sizeof s->program - 1);
    if (length <= 0)
        return weft_error_errno(WEFT_AT(.file = "/proc/self/exe"), "cannot find the program");
    s->program[length] = '\0';
    return WEFT_OK;
}

/* Several ranks are started by mpirun. */
static weft_status find_launcher(weft_server *s)
{
    if (s->options->ranks == 1 || weft_program_find("mpirun", s->mpirun))
        return WEFT_OK;
    return weft_error(WEFT_MSG_LIBRARY_MISSING, WEFT_AT(.key = "--ranks"),
                      "no folder of PATH has mpirun, which starts several ranks; install Open MPI");
}

static weft_status open_models(weft_server *s)
{
    const weft_serve_options *o = s->options;
    weft_compute compute;
    WEFT_TRY(weft_compute_defaults(o->compute, &compute));
    WEFT_TRY(WEFT_NEW(s->models, o->model_count, "the models"));
    for (; s->model_count < o->model_count; s->model_count++) {
        WEFT_TRY(weft_served_model_open(o->models[s->model_count], &s->models[s->model_count]));
        s->models[s->model_count].compute = compute;
        for (int i = 0; i < s->model_count; i++)
            if (!strcmp(s->models[i].name, s->models[s->model_count].name)) {
                s->model_count++;
                return weft_error(WEFT_MSG_OPTION_CONFLICT,
                                  WEFT_AT(.key = "--model", .value = s->models[i].name),
                                  "two models have this name; give one as NAME=DIR");
            }
    }
    return WEFT_OK;
}

/* Reads the files of TLS. */
static weft_status read_certificate(weft_server *s)
{
    const weft_serve_options *o = s->options;
    int64_t bytes;
    if (!o->certificate && !o->key)
        return WEFT_OK;
    if (!o->certificate || !o->key)
        return weft_error(
            WEFT_MSG_OPTION_REQUIRED, WEFT_AT(.key = o->key ? "--tls-cert" : "--tls-key"),
            "TLS needs a certificate and its key; give both --tls-cert and --tls-key");
    WEFT_TRY(weft_file_read(o->certificate, PEM_BYTES, &s->certificate, &bytes));
    return weft_file_read(o->key, PEM_BYTES, &s->key, &bytes);
}

static weft_status check_parallel(const weft_serve_options *o)
{
    bool is_auto = false;
    for (int i = 0; i < o->parallel_count; i++)
        is_auto = is_auto || !strcmp(o->parallel[i], "auto");
    if (is_auto && o->parallel_count > 1)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--parallel", .value = "auto"),
                          "auto chooses all degrees and cannot be combined with another "
                          "--parallel; remove one option");
    if (is_auto && o->ranks == 1)
        return weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--parallel", .value = "auto"),
                          "one rank has one layout; give --ranks, or remove the option");
    return WEFT_OK;
}

/* Jobs that share the ranks have layouts and ranks that the server chooses. */
static weft_status check_share(const weft_serve_options *o)
{
    if (strcmp(o->policy, SHARE) != 0)
        return !o->elastic ? WEFT_OK
                           : weft_error(WEFT_MSG_OPTION_NO_EFFECT, WEFT_AT(.key = "--elastic"),
                                        "only jobs that share ranks change them; add --policy "
                                        "share, or remove the option");
    if (o->ranks < 2 || o->ranks > WEFT_SHARE_RANKS)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--ranks", WEFT_NUMBER(o->ranks)),
                          "the policy share needs 2 to %d ranks", WEFT_SHARE_RANKS);
    if (o->batch > 1)
        return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--batch"),
                          "the policy share gives each job ranks of its own; remove --batch");
    if (o->parallel_count && (o->parallel_count > 1 || strcmp(o->parallel[0], "auto") != 0))
        return weft_error(WEFT_MSG_OPTION_CONFLICT,
                          WEFT_AT(.key = "--parallel", .value = o->parallel[0]),
                          "the policy share chooses the layout of each job; remove --parallel");
    return WEFT_OK;
}

/* A child would report these options at the first job. */
static weft_status check_options(const weft_serve_options *o)
{
    int64_t bytes = 0;
    weft_cluster cluster;
    if (weft_queue_policy_find(o->policy) == WEFT_QUEUE_POLICIES && strcmp(o->policy, SHARE) != 0)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--policy", .value = o->policy),
                          "the policies are fifo, srpt, edf, fair and share");
    WEFT_TRY(check_share(o));
    if (o->memory && strcmp(o->memory, "auto") != 0 &&
        (!weft_parse_i64(o->memory, &bytes) || bytes < 1))
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--memory-limit", .value = o->memory),
            "'%.80s' is not auto or a size in bytes, such as 900MiB or 24GiB", o->memory);
    WEFT_TRY(check_parallel(o));
    for (int i = 0; i < o->webhook_count; i++)
        if (!weft_webhook_is_allowed(o->webhooks[i], o->webhooks, o->webhook_count))
            return weft_error(WEFT_MSG_OPTION_INVALID,
                              WEFT_AT(.key = "--webhook", .value = o->webhooks[i]),
                              "the value is not a URL of http or https without user, fragment and "
                              "spaces, such as https://example.org/hooks/");
    if (!o->cluster)
        return WEFT_OK;
    weft_arena *arena = weft_arena_create();
    WEFT_TRY(WEFT_ALLOCATED(arena, "a cluster"));
    weft_status_code status = weft_cluster_load(arena, o->cluster, &cluster);
    weft_arena_free(arena);
    if (status != WEFT_OK)
        status = weft_error_at(status, WEFT_AT(.key = "--on", .value = o->cluster));
    return status;
}

/* A hash of the conditions of learned seconds and prices: the program, the models, the
 * predictions' cluster, the ranks and the processors. */
static uint64_t conditions_of(const weft_server *s)
{
    const weft_serve_options *o = s->options;
    const int64_t numbers[] = {o->ranks, sysconf(_SC_NPROCESSORS_ONLN)};
    const char *const texts[] = {WEFT_VERSION, o->backend ? o->backend : "",
                                 s->cluster ? s->cluster : ""};
    uint64_t hash = weft_id_mix(WEFT_ID_BEGIN, numbers, sizeof numbers);
    for (int i = 0; i < WEFT_COUNT(texts); i++)
        hash = weft_id_mix(hash, texts[i], strlen(texts[i]) + 1);
    for (int i = 0; i < s->model_count; i++) {
        const uint64_t stamp = weft_served_model_stamp(&s->models[i]);
        hash = weft_id_mix(hash, &stamp, sizeof stamp);
    }
    return s->cluster ? weft_path_stamp(hash, s->cluster, 0) : hash;
}

static weft_status open_state(weft_server *s)
{
    WEFT_TRY(weft_queue_store_open(s->options->state, &s->store));
    char *path = realpath(s->options->state, NULL);
    s->state = path ? weft_strdup(path) : NULL;
    free(path);
    path = s->options->cluster ? realpath(s->options->cluster, NULL) : NULL;
    s->cluster = s->options->cluster ? weft_strdup(path ? path : s->options->cluster) : NULL;
    free(path);
    WEFT_TRY(WEFT_ALLOCATED(s->state && (s->cluster || !s->options->cluster), "the server"));
    if (pipe2(s->wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot create a pipe");
    s->conditions = conditions_of(s);
    WEFT_TRY(weft_learned_store_read(s->store, s->conditions, &s->learned));
    return weft_access_tokens_read(s->state, &s->tokens);
}

static weft_status serve(weft_server *s)
{
    int port;
    char address[128];
    WEFT_TRY(weft_served_files_recover(s));
    WEFT_TRY(weft_webhook_sender_start(s));
    WEFT_TRY(weft_http_server_start(s, &port));
    const char *listen = s->options->listen;
    snprintf(address, sizeof address, "%.*s", (int)(strrchr(listen, ':') - listen), listen);
    weft_notice(WEFT_MSG_SERVER_READY,
                WEFT_AT(.value = address, WEFT_DETAILS(WEFT_DETAIL("port", port))),
                "serving at %s://%s:%d", s->key ? "https" : "http", address, port);
    return weft_supervisor_run(s);
}

static void close_server(weft_server *s)
{
    weft_webhook_sender_stop(s);
    weft_http_server_stop(s);
    weft_child_starter_close(&s->starter);
    weft_queue_view_free(&s->view);
    weft_free(s->event_line);
    for (int i = 0; i < s->group_count; i++)
        weft_loaded_weights_clear(&s->groups[i].weights);
    weft_queue_store_close(s->store);
    for (int i = 0; i < s->model_count; i++)
        weft_served_model_close(&s->models[i]);
    weft_free(s->models);
    weft_served_loras_close(&s->loras);
    weft_free(s->certificate);
    weft_free(s->key);
    weft_access_tokens_free(&s->tokens);
    weft_free(s->state);
    weft_free(s->cluster);
    for (int i = 0; i < 2; i++)
        if (s->wake[i] > 0)
            close(s->wake[i]);
    pthread_cond_destroy(&s->job_ended);
    pthread_mutex_destroy(&s->lock);
}

weft_status weft_serve_run(const weft_serve_options *o)
{
    weft_server *s;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_NEW(s, 1, "the server"));
    *s = (weft_server){.options = o, .groups = {{.ranks = o->ranks}}, .group_count = 1};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->job_ended, NULL);
    signal(SIGPIPE, SIG_IGN);
    WEFT_GO(check_options(o));
    WEFT_GO(weft_serve_check_device(o->backend));
    s->shares = !strcmp(o->policy, SHARE);
    s->group_count = s->shares ? WEFT_SERVE_GROUPS : 1;
    s->rules =
        (weft_queue_rules){.policy = s->shares ? WEFT_QUEUE_EDF : weft_queue_policy_find(o->policy),
                           .ageing = WEFT_QUEUE_AGEING,
                           .workers = 1};
    WEFT_GO(read_certificate(s));
    WEFT_GO(find_program(s));
    WEFT_GO(find_launcher(s));
    s->starter = (weft_child_starter){.program = s->program, .folder = "/"};
    weft_child_starter_open(&s->starter); /* is linked while the models are read */
    WEFT_GO(open_models(s));
    WEFT_GO(weft_served_loras_open(o->loras, o->lora_count, &s->loras));
    WEFT_GO(open_state(s));
    WEFT_GO(serve(s));
out:
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    close_server(s);
    weft_free(s);
    return status;
}

weft_status weft_serve_webhook_secret(const char *state)
{
    char secret[WEFT_WEBHOOK_SECRET];
    WEFT_TRY(weft_make_dirs(state));
    WEFT_TRY(weft_webhook_secret(state, secret));
    printf("%s\n", secret);
    return WEFT_OK;
}

weft_status weft_serve_new_token(const char *state, const char *name,
                                 const weft_token_limits *limits)
{
    char token[64];
    WEFT_TRY(weft_access_tokens_create(state, name, limits, token));
    printf("%s\n", token);
    return WEFT_OK;
}
