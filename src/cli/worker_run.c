#include "cli/worker_run.h"

#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/generate_run.h"
#include "cli/options/print_once.h"
#include "cli/worker_commands.h"
#include "cli/worker_ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- jobs ----------------------------------------------------------------------------------- */

static weft_status generate(const weft_worker_state *w, const json_t *job)
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
    WEFT_GO(weft_generate_run(args, w->resident, w->comm, true));
out:
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

/* Waits for the next job of the server; NULL: no command comes any more. */
static json_t *take_job(weft_worker_state *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->job && !w->ended)
        pthread_cond_wait(&w->changed, &w->lock);
    json_t *job = w->job;
    w->job = NULL;
    pthread_mutex_unlock(&w->lock);
    return job;
}

/* The next job, on all ranks; NULL: the end. */
static weft_status next_job(weft_worker_state *w, json_t **job)
{
    if (!w->leads)
        return weft_worker_receive_job(w, job);
    *job = take_job(w);
    const weft_status_code status = weft_worker_send_job(w, *job);
    if (status != WEFT_OK)
        json_decref(*job);
    return status;
}

/* The job has ended, and the worker continues. */
static void end_job(weft_worker_state *w, const json_t *job, weft_status_code status)
{
    if (status != WEFT_OK && status != WEFT_E_CANCELLED && weft_error_message()[0])
        weft_print_own("generate");
    weft_error_clear();
    pthread_mutex_lock(&w->lock);
    w->running = 0;
    if (!w->ended)
        weft_interrupt_request(false);
    if (w->leads)
        report_end(job, status);
    pthread_mutex_unlock(&w->lock);
    (void)!write(w->wake[1], "", 1);
}

/* Runs jobs until no command comes any more, or until the job of several ranks fails. */
static weft_status run_jobs(weft_worker_state *w)
{
    for (;;) {
        json_t *job;
        WEFT_TRY(next_job(w, &job));
        if (!job)
            return WEFT_OK;
        const weft_status_code status = generate(w, job);
        if (weft_comm_ranks(w->comm) == 1 || status == WEFT_OK || status == WEFT_E_CANCELLED)
            end_job(w, job, status);
        json_decref(job);
        if (weft_comm_ranks(w->comm) > 1 && status != WEFT_OK && status != WEFT_E_CANCELLED)
            return status;
    }
}

/* Runs the jobs, with a thread that reads the commands. */
static weft_status lead(weft_worker_state *w)
{
    pthread_t listener;
    if (pthread_create(&listener, NULL, weft_worker_listen, w) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot start a thread");
    const weft_status_code status = run_jobs(w);
    if (status == WEFT_OK) /* else the thread waits for a command */
        pthread_join(listener, NULL);
    return status;
}

weft_status weft_worker_generate(double idle, int64_t ranks, const char *lock)
{
    static weft_worker_state w = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                  .changed = PTHREAD_COND_INITIALIZER};
    weft_resident_options o = {.idle = idle};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_worker_open_ranks(&w, ranks, lock));
    o.changed = w.leads ? on_weights : NULL;
    if (pipe2(w.wake, O_CLOEXEC | O_NONBLOCK) != 0)
        WEFT_GO(weft_error_errno(WEFT_NOWHERE, "cannot create a pipe"));
    WEFT_GO(weft_resident_create(&o, &w.resident));
    WEFT_GO(w.leads ? lead(&w) : run_jobs(&w));
    weft_resident_free(w.resident);
out:
    if (status != WEFT_OK)
        weft_comm_abort(w.comm);
    weft_comm_free(w.comm);
    return status != WEFT_OK || ranks > 1 ? status : weft_interrupt_check();
}
