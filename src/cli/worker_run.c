#include "cli/worker_run.h"

#include "base/interrupt.h"
#include "base/json.h"
#include "base/launcher.h"
#include "base/log.h"
#include "cli/generate_run.h"
#include "cli/options/print_once.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "generate/generator/resident_weights.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Lives as long as the process. */
typedef struct worker {
    weft_resident_weights *resident;
    weft_comm *comm;
    int leader;  /* rank that reads the commands */
    bool leads;  /* this rank is the leader */
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
    WEFT_GO(weft_generate_run(args, w->resident, w->comm));
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
static json_t *take_job(worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->job && !w->ended)
        pthread_cond_wait(&w->changed, &w->lock);
    json_t *job = w->job;
    w->job = NULL;
    pthread_mutex_unlock(&w->lock);
    return job;
}

/* The leader's side of receive_job. `job` NULL: the end. */
static weft_status send_job(const worker *w, const json_t *job)
{
    char *line = job ? weft_json_line(job) : NULL;
    int64_t bytes = line ? (int64_t)strlen(line) : 0;
    weft_status_code status = WEFT_OK;
    if (job)
        WEFT_TRY(WEFT_ALLOCATED(line, "a job"));
    WEFT_GO(weft_comm_broadcast(w->comm, &bytes, sizeof bytes, w->leader));
    if (bytes)
        WEFT_GO(weft_comm_broadcast(w->comm, line, bytes, w->leader));
out:
    weft_free(line);
    return status;
}

static void unload_idle(void *user)
{
    (void)weft_resident_unload_idle(user);
}

/* *job: NULL at the end. */
static weft_status receive_job(const worker *w, json_t **job)
{
    int64_t bytes;
    char *line;
    weft_status_code status = WEFT_OK;
    *job = NULL;
    WEFT_TRY(weft_comm_await_broadcast(w->comm, &bytes, sizeof bytes, w->leader, unload_idle,
                                       w->resident));
    if (!bytes)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(line, bytes, "a job"));
    WEFT_GO(weft_comm_broadcast(w->comm, line, bytes, w->leader));
    *job = json_loadb(line, (size_t)bytes, 0, NULL);
    WEFT_GO(WEFT_ALLOCATED(*job, "a job"));
out:
    weft_free(line);
    return status;
}

/* The next job, on all ranks; NULL: the end. */
static weft_status next_job(worker *w, json_t **job)
{
    if (!w->leads)
        return receive_job(w, job);
    *job = take_job(w);
    const weft_status_code status = send_job(w, *job);
    if (status != WEFT_OK)
        json_decref(*job);
    return status;
}

/* The job has ended, and the worker continues. */
static void end_job(worker *w, const json_t *job, weft_status_code status)
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
static weft_status run_jobs(worker *w)
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

/* ---- ranks ---------------------------------------------------------------------------------- */

/* A launcher that was killed leaves no rank, and a later server starts its worker after the end of
 * every rank: each has the lock of the worker. The working folder is the server's state. */
static weft_status bind_to_launcher(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int lock = open("worker.lock", O_RDWR | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_SH) != 0)
        return weft_error_errno(WEFT_AT(.file = "worker.lock"), "cannot lock");
    return WEFT_OK; /* locked until the process ends */
}

/* Opens the communicator of `ranks` ranks, and finds the leader. */
static weft_status open_ranks(worker *w, int64_t ranks)
{
    if (ranks > 1)
        WEFT_TRY(bind_to_launcher());
    WEFT_TRY(weft_comm_open_mpi(&w->comm));
    if (weft_comm_ranks(w->comm) != ranks)
        return weft_error(WEFT_MSG_COMM_UNSUPPORTED, WEFT_AT(WEFT_NUMBER(ranks)),
                          "%" PRId64 " processes were started and %d ranks found each other; use "
                          "the mpirun of the MPI library with which weft was built",
                          ranks, weft_comm_ranks(w->comm));
    double leader = weft_launcher_rank() <= 0 ? weft_comm_rank(w->comm) : 0;
    WEFT_TRY(weft_comm_sum(w->comm, &leader, 1));
    w->leader = (int)leader;
    w->leads = w->leader == weft_comm_rank(w->comm);
    return WEFT_OK;
}

/* Runs the jobs, with a thread that reads the commands. */
static weft_status lead(worker *w)
{
    pthread_t listener;
    if (pthread_create(&listener, NULL, listen_for_commands, w) != 0)
        return weft_error_errno(WEFT_NOWHERE, "cannot start a thread");
    const weft_status_code status = run_jobs(w);
    if (status == WEFT_OK) /* else the thread waits for a command */
        pthread_join(listener, NULL);
    return status;
}

weft_status weft_worker_generate(double idle, int64_t ranks)
{
    static worker w = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    weft_resident_options o = {.idle = idle};
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_ranks(&w, ranks));
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
