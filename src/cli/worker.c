/* weft worker: the process of `weft serve` that generates. serve/worker_messages.h has its commands
 * and reports. The worker and the weights that it has loaded stay between jobs. */
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/generate_run.h"
#include "cli/options/print_once.h"
#include "generate/generator/resident_weights.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Lives as long as the process. */
typedef struct worker {
    weft_resident_weights *resident;
    int wake[2]; /* a job has ended: weights may become due */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* members that need the lock */
    json_t *job;     /* the next one; NULL: none */
    int64_t running; /* number of the running job; 0: none */
    bool ended;      /* no further command comes */
} worker;

static void put_line(json_t *json)
{
    char *line = json ? weft_json_line(json) : NULL;
    if (line)
        weft_log_last(line);
    weft_free(line);
}

static void on_weights(void *user, json_t *state)
{
    (void)user;
    json_object_set_new(state, "level", json_string("weights"));
    put_line(state);
}

/* ---- commands: a thread of their own -------------------------------------------------------- */

static void take_command(worker *w, json_t *command)
{
    const int64_t stops = json_integer_value(json_object_get(command, "stop"));
    pthread_mutex_lock(&w->lock);
    if (stops && stops == w->running) {
        weft_interrupt_request(true);
    } else if (json_object_get(command, "run")) {
        json_decref(w->job);
        w->job = json_incref(command);
        w->running = json_integer_value(json_object_get(command, "run"));
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Takes the complete lines out of `text`. */
static void take_lines(worker *w, weft_buf *text)
{
    int64_t taken = 0;
    for (char *end; (end = memchr(text->data + taken, '\n', (size_t)(text->len - taken)));
         taken = end + 1 - text->data) {
        json_t *command =
            json_loadb(text->data + taken, (size_t)(end - text->data - taken), 0, NULL);
        if (command)
            take_command(w, command);
        json_decref(command);
    }
    text->len -= taken;
    memmove(text->data, text->data + taken, (size_t)text->len);
}

static void *listen_for_commands(void *user)
{
    worker *w = user;
    weft_buf text = {0};
    char bytes[4096];
    ssize_t count = 1;
    while (count > 0) {
        struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {w->wake[0], POLLIN, 0}};
        const double wait = weft_resident_unload_idle(w->resident);
        (void)poll(fds, 2, wait < 0 ? -1 : (int)fmin(ceil(1000 * wait), 1e9));
        while (read(w->wake[0], bytes, sizeof bytes) > 0)
            continue;
        if (fds[0].revents && (count = read(STDIN_FILENO, bytes, sizeof bytes)) > 0) {
            weft_buf_append(&text, bytes, count);
            take_lines(w, &text);
        }
    }
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    weft_interrupt_request(true); /* the server has ended */
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    weft_buf_free(&text);
    return NULL;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static weft_status generate(const worker *w, const json_t *job)
{
    const weft_verb *verb = weft_verb_find("generate");
    const json_t *list = json_object_get(job, "arguments");
    const char *folder = json_string_value(json_object_get(job, "folder")),
               *model = json_string_value(json_object_get(job, "model")),
               *lora = json_string_value(json_object_get(job, "lora"));
    const int count = (int)json_array_size(list);
    char **argv;
    weft_args *args = NULL;
    weft_status_code status = WEFT_OK;
    if (!folder || chdir(folder) != 0)
        return weft_error_errno(WEFT_AT(.file = folder), "cannot enter the folder");
    WEFT_TRY(WEFT_NEW(argv, count + 1, "the arguments"));
    for (int i = 0; i < count; i++)
        argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(list, (size_t)i));
    WEFT_GO(weft_resident_set_names(w->resident, model ? model : "", lora ? lora : ""));
    WEFT_GO(weft_args_parse(verb, count, argv, &args));
    WEFT_GO(weft_generate_run(args, w->resident));
out:
    if (status != WEFT_OK && status != WEFT_E_CANCELLED && weft_error_message()[0])
        weft_print_own(verb->name);
    weft_error_clear();
    weft_args_free(args);
    weft_free(argv);
    return status;
}

static void report_end(const json_t *job, weft_status_code status)
{
    const char *word = status == WEFT_OK            ? "finished"
                       : status == WEFT_E_CANCELLED ? "stopped"
                                                    : "refused";
    json_t *end = json_pack("{s:s, s:O, s:s}", "level", "job", "number",
                            json_object_get(job, "run"), "status", word);
    put_line(end);
    json_decref(end);
}

/* Runs jobs until no command comes any more. Lock held, except while a job runs. */
static void run_jobs(worker *w)
{
    while (!w->ended) {
        json_t *job = w->job;
        w->job = NULL;
        if (!job) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        const weft_status_code status = generate(w, job);
        pthread_mutex_lock(&w->lock);
        w->running = 0;
        if (!w->ended)
            weft_interrupt_request(false);
        report_end(job, status);
        json_decref(job);
        (void)!write(w->wake[1], "", 1);
    }
}

static const weft_option options[] = {
    {"--idle-unload", "SECONDS", "0", "time without a use after which weights are unloaded"},
};

static weft_status run_worker(const weft_args *args)
{
    worker w = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    weft_resident_options o = {.changed = on_weights};
    pthread_t listener;
    WEFT_TRY(weft_args_f64(args, "--idle-unload", 0, 1e9, &o.idle));
    if (pipe2(w.wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot create a pipe");
    WEFT_TRY(weft_resident_create(&o, &w.resident));
    if (pthread_create(&listener, NULL, listen_for_commands, &w) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot start a thread");
    pthread_mutex_lock(&w.lock);
    run_jobs(&w);
    pthread_mutex_unlock(&w.lock);
    pthread_join(listener, NULL);
    weft_resident_free(w.resident);
    return weft_interrupt_check();
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
