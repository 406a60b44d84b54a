#include "serve/worker_process.h"

#include "base/config.h"
#include "base/fs.h"
#include "serve/child_arguments.h"
#include "serve/video_request.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* The threads of a video use every processor. At equal priority a request, which needs a fraction
 * of a millisecond, waits for the end of a time slice. */
enum { NICENESS = 5 };

enum { MOST_ARGUMENTS = 14 };

void weft_worker_lock_name(int64_t group, char name[WEFT_WORKER_LOCK])
{
    if (group == 0)
        snprintf(name, WEFT_WORKER_LOCK, "worker.lock");
    else
        snprintf(name, WEFT_WORKER_LOCK, "worker.%" PRId64 ".lock", group);
}

/* "CUDA_VISIBLE_DEVICES=0,3": the GPUs of a group, among the GPUs of the server. */
static weft_status list_gpus(unsigned places, weft_buf *text)
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    const bool given = at != NULL; /* an empty list hides all GPUs */
    const char *comma = "";
    weft_buf_printf(text, "CUDA_VISIBLE_DEVICES=");
    for (int i = 0; places; i++, places >>= 1) {
        const size_t length = given ? strcspn(at, ",") : 0;
        if (places & 1 && !given)
            weft_buf_printf(text, "%s%d", comma, i);
        else if (places & 1 && length)
            weft_buf_printf(text, "%s%.*s", comma, (int)length, at);
        comma = places & 1 ? "," : comma;
        at += given ? length + (at[length] == ',') : 0;
    }
    return weft_buf_check(text);
}

/* One rank is the child process itself. */
static void list_arguments(const weft_server *s, const char *ranks, const char *idle,
                           const char *lock, char *argv[MOST_ARGUMENTS])
{
    const bool alone = !strcmp(ranks, "1");
    const char *const all[MOST_ARGUMENTS] = {
        s->mpirun, "-n",     ranks, s->program,      "worker", "--ranks",
        ranks,     "--lock", lock,  "--idle-unload", idle};
    for (int i = 0; i < MOST_ARGUMENTS; i++)
        argv[i] = i < MOST_ARGUMENTS - 3 || !alone ? (char *)all[i + (alone ? 3 : 0)] : NULL;
}

weft_status weft_worker_start(weft_server *s, const weft_served_group *group, int lock,
                              weft_worker *w)
{
    char idle[32], ranks[32], threads[48], name[WEFT_WORKER_LOCK], *argv[MOST_ARGUMENTS];
    weft_buf gpus = {0};
    weft_status_code status = WEFT_OK;
    const int64_t count = group->ranks, all = s->options->ranks,
                  processors = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(idle, sizeof idle, "%.17g", s->options->idle_unload);
    snprintf(ranks, sizeof ranks, "%" PRId64, count);
    snprintf(threads, sizeof threads, "OMP_NUM_THREADS=%" PRId64,
             processors > all ? processors / all : 1);
    weft_worker_lock_name(group - s->groups, name);
    list_arguments(s, ranks, idle, name, argv);
    /* The ranks share the processors of the machine by threads. Open MPI would bind two ranks to
     * one core each, and refuses more ranks than cores, and the root of a container. */
    const char *const defaults[] = {threads, "OMPI_MCA_hwloc_base_binding_policy=none",
                                    "OMPI_MCA_rmaps_base_oversubscribe=1",
                                    "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
    weft_child_start_options options = {
        .argv = argv,
        .folder = s->state,
        .lock = lock,
        .with_input = true,
        .niceness = NICENESS,
        .starter = count == 1 ? &s->starter : NULL,
        .defaults = defaults,
        .default_count = all > 1 ? WEFT_COUNT(defaults) : 0,
        .last_signal = count > 1 ? SIGTERM : 0}; /* mpirun ends the ranks and removes its files */
    *w = (weft_worker){.ranks = count};
    if (s->shares)
        WEFT_GO(list_gpus(group->places, &gpus));
    if (count > 1 && flock(lock, LOCK_SH) != 0) /* the ranks lock the file, too */
        WEFT_GO(weft_error_errno(WEFT_NOWHERE, "cannot share the lock of the worker"));
    options.replaced = gpus.data;
    WEFT_GO(weft_child_start(&options, &w->child));
out:
    weft_buf_free(&gpus);
    return status;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* Appends the line of a request. `out`: path of the video, below the folder of all jobs; NULL: the
 * job has a folder of its own. */
static weft_status add_line(const char *request, const char *out, weft_buf *text)
{
    json_t *values = json_loads(request, 0, NULL);
    char *line = values ? weft_video_request_line(values) : NULL;
    json_t *json = line && out ? json_loads(line, 0, NULL) : NULL;
    if (json) {
        json_object_set_new(json, "out", json_string(out));
        weft_free(line);
        line = weft_json_line(json);
    }
    if (line)
        weft_buf_printf(text, "%s\n", line);
    const bool ok = line && !text->failed;
    json_decref(json);
    json_decref(values);
    weft_free(line);
    return WEFT_ALLOCATED(ok, "a request");
}

/* The queue has the requests, which are written at each start: no write waits for the disk. */
static weft_status write_lines(const char *folder, const char *name, const weft_buf *text)
{
    char *path = weft_path_join(folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "a request"));
    const weft_status_code status = weft_file_write_hasty(path, text->data, text->len);
    weft_free(path);
    return status;
}

static weft_status write_request(const char *folder, const weft_queue_job *job)
{
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(add_line(job->request, NULL, &text));
    WEFT_GO(write_lines(folder, "request.jsonl", &text));
out:
    weft_buf_free(&text);
    return status;
}

/* Writes the prompts of a batch to the folder of all jobs. */
static weft_status write_batch(const char *jobs_folder, const weft_queue_job *jobs, int count)
{
    char out[WEFT_QUEUE_ID + 16];
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < count; i++) {
        snprintf(out, sizeof out, "%s/video.mp4", jobs[i].id);
        WEFT_GO(add_line(jobs[i].request, out, &text));
    }
    WEFT_GO(write_lines(jobs_folder, WEFT_BATCH_LIST, &text));
out:
    weft_buf_free(&text);
    return status;
}

void weft_worker_remove_lists(const weft_server *s)
{
    static const char *const names[] = {WEFT_BATCH_LIST, "prompts.jsonl"};
    for (int i = 0; i < 2; i++) {
        char *path = weft_server_job_folder(s, names[i]);
        if (path)
            (void)unlink(path);
        weft_free(path);
    }
}

/* *taken: false if the worker has ended. */
static weft_status send_run(const weft_worker *w, json_t *command, bool *taken)
{
    char *line = command ? weft_json_line(command) : NULL;
    weft_buf text = {0};
    if (line)
        weft_buf_printf(&text, "%s\n", line);
    weft_status_code status = WEFT_OK;
    *taken = false;
    WEFT_GO(WEFT_ALLOCATED(line && !text.failed, "a command"));
    *taken = weft_child_write(&w->child, text.data, text.len) == WEFT_OK;
    if (!*taken)
        weft_error_clear(); /* the end of the worker is reported */
out:
    weft_buf_free(&text);
    weft_free(line);
    json_decref(command);
    return status;
}

/* The command for a job in its folder. */
static json_t *run_command(int64_t number, const char *folder, const json_t *request,
                           const weft_child_arguments *a)
{
    const char *lora = json_string_value(json_object_get(request, "lora"));
    json_t *list = json_array();
    for (int i = 0; list && i < a->count; i++)
        json_array_append_new(list, json_string(a->at[i]));
    return json_pack("{s:I, s:s, s:O, s:s, s:o}", "run", (json_int_t)number, "folder", folder,
                     "model", json_object_get(request, "model"), "lora", lora ? lora : "",
                     "arguments", list);
}

/* Makes the folders of the jobs with their requests. */
static weft_status prepare(const weft_server *s, const weft_queue_job *jobs, int count)
{
    weft_worker_remove_lists(s);
    for (int i = 0; i < count; i++) {
        char *folder = weft_server_job_folder(s, jobs[i].id);
        weft_status_code status = WEFT_ALLOCATED(folder, "a job");
        WEFT_GO(status);
        WEFT_GO(weft_make_dirs(folder));
        WEFT_GO(write_request(folder, &jobs[i]));
    out:
        weft_free(folder);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

weft_status weft_worker_run(weft_server *s, const weft_queue_job *jobs, int count, weft_worker *w,
                            bool *taken)
{
    json_t *request = json_loads(jobs->request, 0, NULL);
    const weft_served_model *m = weft_video_request_model(request, s->models, s->model_count);
    char *folder = weft_server_job_folder(s, count > 1 ? "" : jobs->id);
    weft_child_arguments a = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(request && folder, "a job"));
    if (!m)
        WEFT_GO(weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_NOWHERE,
                           "the model of the job is not served any more"));
    WEFT_GO(prepare(s, jobs, count));
    if (count > 1)
        WEFT_GO(write_batch(folder, jobs, count));
    WEFT_GO(weft_child_arguments_generate(s, m, request, count, &a));
    WEFT_GO(send_run(w, run_command(jobs->number, folder, request, &a), taken));
    w->job = *taken ? jobs->number : 0;
out:
    weft_child_arguments_free(&a);
    json_decref(request);
    weft_free(folder);
    return status;
}

bool weft_worker_stop(const weft_worker *w, bool saves)
{
    char line[64];
    const int length = weft_worker_stop_line(w->job, saves, line);
    if (weft_child_write(&w->child, line, length) == WEFT_OK)
        return true;
    weft_error_clear(); /* the end of the worker is reported */
    return false;
}

/* ---- reports -------------------------------------------------------------------------------- */

bool weft_worker_next(weft_worker *w, weft_worker_report *report)
{
    const weft_buf *text = &w->child.error_text;
    w->parsed = w->parsed < w->child.dropped ? w->child.dropped : w->parsed;
    const char *line = text->data ? text->data + w->parsed - w->child.dropped : NULL,
               *end = line ? strchr(line, '\n') : NULL;
    if (!end)
        return false;
    *report = weft_worker_report_read(line, end - line);
    w->parsed += end + 1 - line;
    return true;
}

/* Reads the last error of the job, and whether there is one. */
static bool read_error(weft_worker *w, int64_t bytes, weft_worker_end *end)
{
    char *text = w->child.error_text.data;
    if (!text)
        return false;
    const char kept = text[bytes];
    text[bytes] = '\0';
    const bool found = weft_last_error(text, end->code, end->field, end->text);
    text[bytes] = kept;
    return found;
}

void weft_worker_end_job(weft_worker *w, weft_queue_event event, weft_worker_end *end)
{
    const int64_t bytes = w->parsed - w->child.dropped;
    *end = (weft_worker_end){.event = event};
    if (event == WEFT_QUEUE_REFUSED && !read_error(w, bytes, end)) {
        end->event = WEFT_QUEUE_CRASHED;
        snprintf(end->code, sizeof end->code, "worker_crashed");
        snprintf(end->text, sizeof end->text, "the worker gave no reason");
    }
    w->job = 0;
    weft_child_drop(&w->child, bytes); /* the next job's error is another one */
}

/* mpirun exits with 128 and the signal of a rank that was killed. */
static int signal_of(const weft_worker *w, int status)
{
    if (!WIFEXITED(status))
        return WTERMSIG(status);
    return w->ranks > 1 && WEXITSTATUS(status) > 128 ? WEXITSTATUS(status) - 128 : 0;
}

void weft_worker_end_process(weft_worker *w, weft_worker_end *end)
{
    const int status = weft_child_wait(&w->child), number = signal_of(w, status);
    *end = (weft_worker_end){.event = WEFT_QUEUE_CRASHED, .signal = number};
    if (!number && read_error(w, w->child.error_text.len, end)) {
        end->event = WEFT_QUEUE_REFUSED;
    } else {
        snprintf(end->code, sizeof end->code, "worker_crashed");
        if (!number)
            snprintf(end->text, sizeof end->text, "the worker exited with status %d",
                     WEXITSTATUS(status));
        else
            snprintf(end->text, sizeof end->text, "%s was killed by signal %d (%s)",
                     w->ranks > 1 ? "a rank of the worker" : "the worker", number,
                     strsignal(number));
    }
    weft_child_close(&w->child);
    *w = (weft_worker){0};
}

/* Waits until the process has ended, at most a quarter of a second. */
static bool has_ended(const weft_child *child)
{
    siginfo_t info = {0};
    for (int i = 0; i < 50 && !info.si_pid; i++) {
        if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            return true;
        if (!info.si_pid)
            usleep(5000);
    }
    return info.si_pid != 0;
}

void weft_worker_abandon(weft_worker *w)
{
    w->job = 0;
    w->abandoned = true;
    if (w->ranks == 1)
        kill(w->child.pid, SIGKILL);
}

void weft_worker_retire(weft_worker *w)
{
    if (!w->child.pid)
        return;
    if (w->ranks == 1) {
        kill(w->child.pid, SIGKILL);
    } else if (w->child.input > 0) {
        close(w->child.input); /* the ranks end when their commands end */
        w->child.input = 0;
    }
}

void weft_worker_kill(weft_worker *w)
{
    if (!w->child.pid)
        return;
    weft_worker_retire(w);
    if (w->ranks == 1 || (!w->abandoned && has_ended(&w->child)))
        (void)weft_child_wait(&w->child);
    weft_child_close(&w->child);
    *w = (weft_worker){0};
}
