#include "serve/supervisor.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/hex.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "serve/event_stream.h"
#include "serve/job_ranks.h"
#include "serve/price_estimate.h"
#include "serve/video_images.h"
#include "serve/worker_process.h"
#include "video/image.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 200, STOP_POLL_MS = 20, HEARTBEAT_SECONDS = 15, FULL_DISK_SECONDS = 5 };
/* Seconds of a stopping server for the step that runs. */
#define STOP_SECONDS 0.5

/* One per group; lives as long as the main thread serves. */
typedef struct weft_supervisor {
    weft_server *server;
    weft_served_group *group;
    weft_worker worker;
    bool used;           /* the worker has had a job */
    bool cold;           /* the running job is the first of its worker */
    double start;        /* measured seconds of the running job's start; negative: unknown */
    double denoised;     /* weft_now() of the end of its steps; 0: they have not ended */
    bool signalled;      /* the worker was asked to stop its job */
    bool discards;       /* without saving it */
    double stopped;      /* weft_now() of that request */
    int64_t next;        /* number of the job for which another was stopped; 0: none */
    bool retired;        /* the worker, which has no job, was asked to end */
    double retry;        /* weft_now() from which jobs start again: the disk was full */
    int64_t versions[2]; /* of the queue and of the progress at the last choice */
    /* how the job ended, until it is stored */
    bool ended;
    weft_worker_end end;
    weft_queue_change change;
} supervisor;

/* ---- worker --------------------------------------------------------------------------------- */

/* The lock of a group is held by a worker alone, so that two servers in sequence never have two
 * workers. *fd: the locked file; -1: a process of an earlier worker has the lock. */
static weft_status try_lock(const weft_server *s, int64_t group, int *fd)
{
    char name[WEFT_WORKER_LOCK];
    weft_worker_lock_name(group, name);
    char *path = weft_path_join(s->state, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "a lock"));
    weft_status_code status = WEFT_OK;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot open the lock of the worker");
    else if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            status = weft_error_errno(WEFT_AT(.file = path), "cannot lock");
        close(file);
        file = -1;
    }
    *fd = file;
    weft_free(path);
    return status;
}

/* Whether a worker of an earlier server may run in a group. */
static bool has_lock(const weft_server *s, int64_t group)
{
    char name[WEFT_WORKER_LOCK];
    weft_worker_lock_name(group, name);
    char *path = weft_path_join(s->state, name);
    const bool found = !path || weft_path_exists(path);
    weft_free(path);
    return found;
}

/* Waits until no worker of an earlier server runs in a group. */
static weft_status wait_for_worker(const weft_server *s, int64_t group)
{
    int fd = has_lock(s, group) ? -1 : 0;
    while (fd < 0) {
        WEFT_TRY(try_lock(s, group, &fd));
        if (fd < 0)
            usleep(10000);
        WEFT_TRY(weft_interrupt_check());
    }
    if (fd > 0)
        close(fd);
    return WEFT_OK;
}

/* Predicted seconds of each running job after its finished steps, without the pace; 0: not
 * known. */
static double remaining_of(const supervisor *v)
{
    const weft_server *s = v->server;
    const weft_served_group *g = v->group;
    const double pace = s->pace > 0 ? s->pace : 1, scale = g->scale > 0 ? g->scale : 1,
                 left = fmax(0, weft_job_seconds_left(&g->progress, pace * g->decode));
    return scale * left / pace / g->batch.count;
}

/* Seconds that the running jobs were expected to take, by the pace. */
static double expected_of(const supervisor *v)
{
    const double pace = v->server->pace;
    return v->group->batch.seconds * (pace > 0 ? pace : 1);
}

/* Compares the measured seconds of finished jobs with the predicted ones. The steps have a pace,
 * and the end has seconds that hardly depend on the number of steps. Only a run with all steps,
 * which has a measured start, is compared. The first job of a worker is slower, and counts only
 * while no other one is measured. */
static void measure_pace(const supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    const double now = weft_now(), decode = (s->pace > 0 ? s->pace : 1) * g->decode;
    if (v->start < 0 || g->progress.first != 1 || v->denoised <= 0 || decode <= 0 ||
        (v->cold && s->paced))
        return;
    s->pace = weft_job_pace(s->pace, expected_of(v) - decode, v->denoised - g->since - v->start,
                            s->paced);
    if (s->pace > 0)
        s->finish = weft_job_finish(
            s->finish, (now - v->denoised - s->pace * g->decode) / g->batch.count, s->paced);
    s->paced += !v->cold;
}

/* The event streams of the running jobs show their progress. */
static void show_progress(const supervisor *v)
{
    const weft_served_group *g = v->group;
    for (int i = 0; i < g->batch.count; i++)
        weft_event_streams_changed(v->server, g->batch.id[i]);
}

/* Records how the job ended, for apply_end. */
static void end_job(supervisor *v, const weft_worker_end *end)
{
    const weft_queue_event event = end->event;
    v->ended = true;
    v->end = *end;
    v->change = (weft_queue_change){.spent = (weft_now() - v->group->since) / v->group->batch.count,
                                    .remaining = v->discards ? 0 : remaining_of(v)};
    if (event == WEFT_QUEUE_FINISHED)
        measure_pace(v);
    if (event == WEFT_QUEUE_STOPPED && v->signalled)
        v->server->freed = weft_now() - v->stopped;
    if (event == WEFT_QUEUE_STOPPED && v->signalled && !v->discards)
        v->server->rules.stop = v->server->freed;
    if (event == WEFT_QUEUE_REFUSED || event == WEFT_QUEUE_CRASHED) {
        v->change.error_code = v->end.code;
        v->change.error = v->end.text;
    }
}

static weft_status start_process(supervisor *v, int lock)
{
    weft_server *s = v->server;
    if (v->worker.child.pid)
        return WEFT_OK;
    WEFT_TRY(weft_worker_start(s, v->group, lock, &v->worker));
    v->used = false;
    s->workers++;
    v->group->worker = v->worker.child.pid;
    return WEFT_OK;
}

/* Gives the jobs to the worker, which is started if there is none. */
static void give(supervisor *v, const weft_queue_job *jobs, int count, int lock)
{
    weft_worker_end end = {.event = WEFT_QUEUE_STOPPED};
    bool taken = false;
    weft_status_code status = WEFT_OK;
    WEFT_GO(start_process(v, lock));
    v->used = true;
    WEFT_GO(weft_worker_run(v->server, jobs, count, &v->worker, &taken));
out:
    if (status != WEFT_OK)
        weft_warn_error(WEFT_MSG_WORKER_ENDED, "job %s has no worker", jobs->id);
    if (status != WEFT_OK && weft_error_class() == WEFT_MSG_DISK_FULL) {
        v->retry = weft_now() + FULL_DISK_SECONDS; /* every waiting job would fail */
    } else if (status != WEFT_OK) {                /* fails the job alone */
        end.event = WEFT_QUEUE_REFUSED;
        snprintf(end.code, sizeof end.code, "%s", weft_message_id(weft_error_class()));
        snprintf(end.text, sizeof end.text, "%s", weft_message_cause(weft_error_class()));
    }
    if (!taken)
        end_job(v, &end);
}

/* Predicted seconds of the decoding of `count` equal jobs; 0: the server has not estimated such a
 * request. */
static double decode_of(const weft_server *s, const weft_queue_job *job, int count)
{
    json_t *request = json_loads(job->request, 0, NULL);
    if (request && count > 1)
        json_object_set_new(request, "batch", json_integer(count));
    const weft_price *price = request ? weft_prices_find(&s->prices, request) : NULL;
    json_decref(request);
    return price ? count * price->decode : 0;
}

/* Starts jobs[0], and the others of its batch. */
static weft_status start(supervisor *v, const weft_queue_job *jobs, int count, double seconds,
                         int lock)
{
    weft_server *s = v->server;
    weft_served_group *g = v->group;
    weft_queue_state next;
    const weft_queue_change change = {.now = weft_server_time()};
    int started = 0;
    weft_status_code status = WEFT_OK;
    for (; started < count && status == WEFT_OK; started += status == WEFT_OK) {
        status =
            weft_queue_store_apply(s->store, jobs[started].id, WEFT_QUEUE_START, &change, &next);
        memcpy(g->batch.id[started], jobs[started].id, sizeof g->batch.id[started]);
        g->batch.ended[started] = false;
    }
    if (!started)
        return status;
    g->batch.count = started; /* further ones stay in the queue */
    g->batch.seconds = seconds;
    snprintf(g->running, sizeof g->running, "%s", jobs->id);
    g->number = jobs->number;
    g->progress = (weft_worker_progress){.seconds_left = -1};
    g->decode = decode_of(s, jobs, started);
    g->since = weft_now();
    v->cold = !v->worker.child.pid || !v->used;
    g->start = v->cold ? s->cold : s->rules.start;
    v->start = -1;
    v->denoised = 0;
    v->signalled = v->discards = false;
    v->next = 0;
    give(v, jobs, started, lock);
    weft_server_changed(s, NULL);
    return status;
}

/* The job that starts next: the one for which a worker was stopped, if it still waits. */
static weft_status find_next(const supervisor *v, weft_queue_job *job, bool *found)
{
    weft_server *s = v->server;
    const weft_queue_view *queue;
    int64_t number = 0;
    WEFT_TRY(weft_server_queue(s, &queue));
    if (v->next && weft_queue_view_find(queue, v->next))
        number = v->next;
    else
        WEFT_TRY(weft_queue_view_choose(queue, &number));
    *found = false;
    return number ? weft_queue_store_at(s->store, number, job, found) : WEFT_OK;
}

/* Starts the next job. A job whose worker cannot start yet stays queued until the next call: the
 * server's lock is held here, so this function never waits. */
static weft_status claim(supervisor *v)
{
    weft_server *s = v->server;
    weft_queue_job jobs[WEFT_BATCH_JOBS];
    bool found;
    int lock = -1, count = 1;
    double seconds = 0;
    if (weft_now() < v->retry)
        return WEFT_OK;
    WEFT_TRY(find_next(v, &jobs[0], &found));
    if (!found)
        return WEFT_OK;
    const bool alive = v->worker.child.pid != 0; /* it has the lock */
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_batch_choose(s, (int)s->options->batch, jobs, &count, &seconds));
    if (!alive && count)
        WEFT_GO(try_lock(s, v->group - s->groups, &lock));
    if (count && (alive || lock >= 0))
        WEFT_GO(start(v, jobs, count, seconds, lock));
out:
    if (lock >= 0)
        close(lock);
    for (int i = 0; i < (count ? count : 1); i++)
        weft_queue_job_free(&jobs[i]);
    return status;
}

/* Starts the worker while a price is estimated: a job probably follows, whose start would
 * report a failure again. */
static void start_early(supervisor *v)
{
    int lock = -1;
    if (v->server->shares || v->worker.child.pid || v->group->running[0])
        return;
    if (try_lock(v->server, v->group - v->server->groups, &lock) != WEFT_OK ||
        (lock >= 0 && start_process(v, lock) != WEFT_OK))
        weft_error_clear();
    if (lock >= 0)
        close(lock);
}

/* The time of the running job's preview in ms; 0: none. */
static int64_t preview_time(const supervisor *v)
{
    char *folder = weft_server_job_folder(v->server, v->group->running),
         *path = folder ? weft_path_join(folder, WEFT_JOB_PREVIEW) : NULL;
    struct stat facts;
    const bool found = path && stat(path, &facts) == 0;
    weft_free(folder);
    weft_free(path);
    return found ? (int64_t)facts.st_mtim.tv_sec * 1000 + facts.st_mtim.tv_nsec / 1000000 : 0;
}

/* Seconds from the start of a job to its first step, as the mean of this start and the ones before.
 * The first job of a worker also waits for the process and the weights: its seconds count only
 * while no other start is known. */
static void measure_start(supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    if (g->progress.total <= 0)
        return;
    const double found =
        weft_job_start_seconds(&g->progress, weft_now() - g->since, expected_of(v), g->decode);
    v->start = found;
    if (!v->cold)
        s->rules.start = s->starts++ ? 0.5 * (s->rules.start + found) : found;
    else if (!s->starts)
        s->rules.start = found;
    if (v->cold)
        s->cold = s->cold > 0 ? 0.5 * (s->cold + found) : found;
}

static void take_progress(supervisor *v, const weft_worker_report *r)
{
    weft_served_group *g = v->group;
    const bool started = g->progress.total > 0;
    g->told = weft_now();
    g->progress = (weft_worker_progress){.done = r->done,
                                         .total = r->total,
                                         .videos = g->batch.count,
                                         .first = started ? g->progress.first : r->done,
                                         .seconds_left = r->seconds_left,
                                         .preview = g->progress.preview};
    if (!started)
        measure_start(v);
    if (v->denoised <= 0 && r->done >= weft_job_steps(&g->progress))
        v->denoised = weft_now();
}

static void warn_of_end(const weft_served_group *g, const weft_worker_end *end)
{
    if (end->event == WEFT_QUEUE_CRASHED || end->event == WEFT_QUEUE_REFUSED)
        weft_warning(WEFT_MSG_WORKER_ENDED,
                     WEFT_AT(.key = g->running, .value = end->code, WEFT_NUMBER(end->signal)), "%s",
                     end->text);
}

/* Reads the complete lines that the worker has written, up to the end of its job. */
static void read_reports(supervisor *v)
{
    weft_server *s = v->server;
    weft_served_group *g = v->group;
    weft_worker_report r;
    bool changed = false;
    while (!v->ended && weft_worker_next(&v->worker, &r)) {
        if (r.kind == WEFT_WORKER_PROGRESS && v->worker.job) {
            take_progress(v, &r);
            changed = true;
        } else if (r.kind == WEFT_WORKER_WEIGHTS) {
            weft_loaded_weights_set(&g->weights, r.weights);
        } else if (r.kind == WEFT_WORKER_END && r.number == v->worker.job) {
            weft_worker_end end;
            weft_worker_end_job(&v->worker, r.event, &end);
            warn_of_end(v->group, &end);
            end_job(v, &end);
        }
    }
    s->progress_version += changed;
    if (changed)
        g->progress.preview = preview_time(v);
    if (changed)
        show_progress(v);
}

/* The worker's streams have ended. Its job, if it has one, was not finished. */
static void judge_end(supervisor *v)
{
    weft_server *s = v->server;
    const bool had_job = v->worker.job != 0;
    weft_worker_end end;
    weft_worker_end_process(&v->worker, &end);
    v->group->worker = 0;
    weft_loaded_weights_clear(&v->group->weights);
    if (v->retired || (v->signalled && end.signal == SIGTERM))
        end.event = WEFT_QUEUE_STOPPED;
    v->retired = false;
    v->group->places = 0;
    warn_of_end(v->group, &end);
    if (had_job)
        end_job(v, &end);
    else
        s->crashes += end.event == WEFT_QUEUE_CRASHED;
}

/* The server stops, and the step of its job lasts longer than the server may wait. The job resumes
 * at its last saved step. */
static void abandon_step(supervisor *v)
{
    const weft_worker_end end = {.event = WEFT_QUEUE_STOPPED};
    weft_worker_abandon(&v->worker);
    end_job(v, &end);
}

static weft_status remove_files(const weft_server *s, const char *id)
{
    char *folder = weft_server_job_folder(s, id);
    WEFT_TRY(WEFT_ALLOCATED(folder, "a job"));
    const weft_status_code status = weft_path_exists(folder) ? weft_remove_tree(folder) : WEFT_OK;
    weft_free(folder);
    return status;
}

/* The error of a batch may be one job's: all run again, each alone. */
static void forgive_batch(supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    weft_queue_job job;
    bool found = false;
    if (g->batch.count < 2 || v->end.event != WEFT_QUEUE_REFUSED)
        return;
    for (int i = 0; i < g->batch.count; i++)
        if (weft_queue_store_find(s->store, g->batch.id[i], &job, &found) == WEFT_OK && found) {
            s->unbatched = job.number > s->unbatched ? job.number : s->unbatched;
            weft_queue_job_free(&job);
        }
    v->end.event = WEFT_QUEUE_STOPPED;
    v->change.error_code = v->change.error = NULL;
}

/* Records the seconds of jobs that ran from the first step to the last one. */
static void measure_jobs(const supervisor *v)
{
    weft_server *s = v->server;
    const weft_served_group *g = v->group;
    weft_queue_job job;
    bool found = false;
    if (v->end.event != WEFT_QUEUE_FINISHED || g->progress.first != 1 || v->start < 0 ||
        weft_queue_store_find(s->store, g->running, &job, &found) != WEFT_OK || !found)
        return;
    json_t *request = json_loads(job.request, 0, NULL);
    if (request)
        weft_batch_measured(s, request, g->batch.count,
                            v->change.spent * g->batch.count - v->start);
    json_decref(request);
    weft_queue_job_free(&job);
}

static weft_status apply_end(supervisor *v)
{
    weft_server *s = v->server;
    weft_job_set *b = &v->group->batch;
    weft_queue_state next;
    forgive_batch(v);
    v->change.now = weft_server_time();
    v->change.unsynced = true; /* the next job starts before the disk has the end of this one */
    for (int i = 0; i < b->count; i++) {
        if (b->ended[i])
            continue;
        WEFT_TRY(weft_queue_store_apply(s->store, b->id[i], v->end.event, &v->change, &next));
        b->ended[i] = true;
        if (next == WEFT_QUEUE_CANCELLED && remove_files(s, b->id[i]) != WEFT_OK)
            weft_warn_error(weft_error_class(), "the next start removes the files");
    }
    s->crashes += v->end.event == WEFT_QUEUE_CRASHED;
    measure_jobs(v);
    if (b->count > 1)
        weft_worker_remove_lists(s);
    v->ended = false;
    v->group->running[0] = '\0';
    for (int i = 0; i < b->count; i++)
        weft_server_changed(s, b->id[i]);
    b->count = 0;
    b->seconds = 0;
    return WEFT_OK;
}

/* *other: `number`, or 0 if it is a job of the worker: each job of a batch represents the batch. */
static weft_status find_other(weft_server *s, int64_t number, int64_t *other)
{
    weft_queue_job job;
    bool found = false;
    *other = 0;
    WEFT_TRY(weft_queue_store_at(s->store, number, &job, &found));
    if (!found)
        return WEFT_OK;
    *other = weft_server_group(s, job.id) ? 0 : number;
    weft_queue_job_free(&job);
    return WEFT_OK;
}

/* Whether a worker stops to change the ranks of its job. */
static bool is_resizing(const weft_server *s)
{
    const supervisor *v = s->supervisor;
    for (int i = 0; v && i < s->group_count; i++)
        if (v[i].worker.job && v[i].signalled && v[i].next)
            return true;
    return false;
}

/* Sets `next` if the ranks of the job should change after its step. One job at a time: two jobs
 * would both stop for the same idle ranks. */
static weft_status choose_ranks(supervisor *v)
{
    weft_server *s = v->server;
    const weft_queue_view *queue;
    int64_t ranks;
    if (!s->options->elastic || is_resizing(s))
        return WEFT_OK;
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_share_resize(queue, v->group->number, &ranks));
    v->next = ranks != v->group->ranks ? v->group->number : 0;
    s->stops += v->next != 0;
    return WEFT_OK;
}

/* Sets `next` if another job should run instead of the worker's. The first message is written after
 * a step: a job that is stopped has made progress, and the seconds of a start are known. */
static weft_status choose_other(supervisor *v)
{
    weft_server *s = v->server;
    const weft_queue_view *queue;
    int64_t number;
    const int64_t versions[2] = {weft_queue_store_version(s->store), s->progress_version};
    const weft_worker_progress *p = &v->group->progress;
    if (s->rules.policy == WEFT_QUEUE_FIFO || p->total == 0 || p->done + 1 >= p->total ||
        !memcmp(versions, v->versions, sizeof versions))
        return WEFT_OK;
    memcpy(v->versions, versions, sizeof versions);
    if (s->shares)
        return choose_ranks(v);
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_queue_view_choose(queue, &number));
    WEFT_TRY(find_other(s, number, &v->next));
    s->stops += v->next != 0;
    return WEFT_OK;
}

static void signal_stop(supervisor *v, bool saves)
{
    v->stopped = weft_now();
    v->signalled = weft_worker_stop(&v->worker, saves);
    v->discards = v->signalled && !saves;
}

void weft_supervisor_hasten(weft_server *s, const char *id, weft_queue_event event)
{
    const weft_served_group *g = weft_server_group(s, id);
    const bool ends = event == WEFT_QUEUE_CANCEL || event == WEFT_QUEUE_DELETE;
    if (!g || !s->supervisor || (!ends && event != WEFT_QUEUE_PAUSE))
        return;
    supervisor *v = s->supervisor + (g - s->groups);
    if (v->worker.job && !v->ended && !v->signalled)
        signal_stop(v, !ends || g->batch.count > 1);
}

/* Asks the worker to stop its jobs if one of the jobs is not to run. The others resume at their
 * step. */
static weft_status stop_job(supervisor *v)
{
    weft_server *s = v->server;
    weft_queue_job job;
    bool found, stops = s->stopping;
    if (v->signalled)
        return WEFT_OK;
    for (int i = v->group->batch.count - 1; i >= 0 && !stops; i--) {
        WEFT_TRY(weft_queue_store_find(s->store, v->group->batch.id[i], &job, &found));
        if (!found)
            continue;
        stops = job.state != WEFT_QUEUE_RUNNING;
        const weft_status_code status = i || stops ? WEFT_OK : choose_other(v);
        weft_queue_job_free(&job);
        WEFT_TRY(status);
    }
    if (stops || v->next)
        signal_stop(v, true);
    return WEFT_OK;
}

static weft_status remove_job(weft_server *s, const char *id)
{
    WEFT_TRY(remove_files(s, id));
    WEFT_TRY(weft_queue_store_remove(s->store, id, weft_server_time() - WEFT_QUEUE_DAY));
    weft_server_changed(s, id);
    return WEFT_OK;
}

/* Removes the deleted jobs that no worker has. */
static weft_status remove_deleted(weft_server *s)
{
    weft_queue_job job;
    bool found;
    for (int64_t after = 0;;) {
        WEFT_TRY(weft_queue_store_next(s->store, WEFT_QUEUE_DELETING, after, &job, &found));
        if (!found)
            return WEFT_OK;
        after = job.number;
        const weft_status_code status =
            weft_server_group(s, job.id) ? WEFT_OK : remove_job(s, job.id);
        weft_queue_job_free(&job);
        WEFT_TRY(status);
    }
}

/* ---- shared ranks --------------------------------------------------------------------------- */

static int count_bits(unsigned mask)
{
    int count = 0;
    for (; mask; mask &= mask - 1)
        count++;
    return count;
}

/* The first `count` ones of a mask. */
static unsigned first_bits(unsigned mask, int64_t count)
{
    unsigned found = 0;
    for (; count > 0 && mask; count--, mask &= mask - 1)
        found |= mask & (~mask + 1);
    return found;
}

static bool is_idle(const supervisor *v)
{
    return v->worker.child.pid && !v->retired && !v->group->running[0];
}

/* Ranks that no worker has. */
static unsigned free_places(const weft_server *s)
{
    unsigned taken = 0;
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        taken |= g->places;
    return ((1u << s->options->ranks) - 1) & ~taken;
}

/* A group without a worker whose lock is free, for a worker with `ranks` ranks; NULL: none. */
static weft_status open_group(supervisor *groups, int64_t ranks, supervisor **found, int *lock)
{
    weft_server *s = groups->server;
    const unsigned free = free_places(s);
    for (supervisor *v = groups; count_bits(free) >= ranks && v < groups + s->group_count; v++) {
        if (v->worker.child.pid || v->group->running[0])
            continue;
        WEFT_TRY(try_lock(s, v->group - s->groups, lock));
        if (*lock < 0)
            continue;
        v->group->ranks = ranks;
        v->group->places = first_bits(free, ranks);
        *found = v;
        return WEFT_OK;
    }
    return WEFT_OK;
}

/* Ends workers without jobs until their ranks suffice for another worker. */
static void retire(supervisor *groups, int64_t ranks)
{
    const weft_server *s = groups->server;
    int64_t have = count_bits(free_places(s));
    for (supervisor *v = groups; v < groups + s->group_count; v++)
        have += v->retired ? v->group->ranks : 0;
    for (supervisor *v = groups; have < ranks && v < groups + s->group_count; v++)
        if (is_idle(v)) {
            weft_worker_retire(&v->worker);
            v->retired = true;
            have += v->group->ranks;
        }
}

/* A worker with `ranks` ranks and no job, or a group for one, with its lock; NULL: none yet. */
static weft_status find_group(supervisor *groups, int64_t ranks, supervisor **found, int *lock)
{
    *found = NULL;
    *lock = -1;
    for (supervisor *v = groups; v < groups + groups->server->group_count; v++)
        if (is_idle(v) && v->group->ranks == ranks) {
            *found = v;
            return WEFT_OK;
        }
    WEFT_TRY(open_group(groups, ranks, found, lock));
    if (!*found)
        retire(groups, ranks);
    return WEFT_OK;
}

/* Starts a job on the ranks of a group. */
static weft_status start_on(supervisor *v, weft_queue_job *job, int lock)
{
    const double left = job->remaining > 0 ? job->remaining : job->seconds;
    double seconds = job->seconds;
    WEFT_TRY(weft_job_set_ranks(v->server->store, job, v->group->ranks, &seconds));
    v->group->scale = seconds > 0 ? job->seconds / seconds : 1;
    return start(v, job, 1, left / v->group->scale, lock);
}

static weft_status start_choice(supervisor *groups, const weft_share_choice *c)
{
    weft_queue_job job;
    supervisor *v = NULL;
    bool found;
    int lock = -1;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_queue_store_at(groups->server->store, c->number, &job, &found));
    if (!found)
        return WEFT_OK;
    if (job.state == WEFT_QUEUE_QUEUED)
        WEFT_GO(find_group(groups, c->ranks, &v, &lock));
    if (v)
        WEFT_GO(start_on(v, &job, lock));
out:
    if (v && !v->worker.child.pid)
        v->group->places = 0;
    if (lock >= 0)
        close(lock);
    weft_queue_job_free(&job);
    return status;
}

/* Whether a job could not start because the disk was full, a moment ago. */
static bool waits_for_space(const supervisor *groups)
{
    const double now = weft_now();
    for (const supervisor *v = groups; v < groups + groups->server->group_count; v++)
        if (now < v->retry)
            return true;
    return false;
}

/* Starts waiting jobs on ranks that no job has. */
static weft_status claim_ranks(supervisor *groups)
{
    weft_server *s = groups->server;
    const weft_queue_view *queue;
    weft_share_choice choices[WEFT_SHARE_RANKS];
    int count;
    int64_t idle = s->options->ranks;
    for (const weft_served_group *g = s->groups; g < s->groups + s->group_count; g++)
        idle -= g->running[0] ? g->ranks : 0;
    if (idle <= 0 || waits_for_space(groups))
        return WEFT_OK;
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_share_choose(queue, choices, &count));
    for (int i = 0; i < count; i++)
        WEFT_TRY(start_choice(groups, &choices[i]));
    return WEFT_OK;
}

/* ---- loop ----------------------------------------------------------------------------------- */

/* Lives as long as the main thread serves. */
typedef struct serving {
    weft_server *server;
    supervisor groups[WEFT_SERVE_GROUPS];
    weft_price_estimate estimate;
    bool warned;     /* a write of the queue has failed and is tried again */
    double stopping; /* weft_now() of the request to stop */
} serving;

static void wait_for_events(const serving *m)
{
    const weft_child *images = &m->server->images.child, *estimate = &m->estimate.child;
    struct pollfd fds[4 + WEFT_SERVE_GROUPS] = {{m->server->wake[0], POLLIN, 0},
                                                {estimate->pid ? estimate->output : -1, POLLIN, 0},
                                                {estimate->pid ? estimate->error : -1, POLLIN, 0},
                                                {images->pid ? images->error : -1, POLLIN, 0}};
    char bytes[64];
    for (int i = 0; i < WEFT_SERVE_GROUPS; i++) {
        const weft_child *child = &m->groups[i].worker.child;
        fds[4 + i] = (struct pollfd){child->pid ? child->error : -1, POLLIN, 0};
    }
    (void)poll(fds, WEFT_COUNT(fds), m->server->stopping ? STOP_POLL_MS : POLL_MS);
    while (read(m->server->wake[0], bytes, sizeof bytes) > 0)
        continue;
}

/* Whether no process of an ended worker is left. mpirun may be killed before its ranks, and the job
 * could start on other ranks while they write its files. */
static weft_status has_left(const supervisor *v, bool *left)
{
    int lock = -1;
    *left = true;
    if (v->worker.child.pid)
        return WEFT_OK;
    WEFT_TRY(try_lock(v->server, v->group - v->server->groups, &lock));
    *left = lock >= 0;
    if (lock >= 0)
        close(lock);
    return WEFT_OK;
}

/* Writes the ends of jobs to the queue and starts the next job. */
static weft_status advance(supervisor *v)
{
    bool ends = v->ended;
    if (ends && v->server->shares && !v->server->stopping)
        WEFT_TRY(has_left(v, &ends));
    if (ends)
        WEFT_TRY(apply_end(v));
    if (v->worker.job)
        WEFT_TRY(stop_job(v));
    if (!v->server->stopping && !v->server->shares && !v->group->running[0])
        WEFT_TRY(claim(v));
    return WEFT_OK;
}

static void read_worker(supervisor *v)
{
    if (!v->worker.child.pid)
        return;
    const bool runs = weft_child_read(&v->worker.child);
    read_reports(v);
    if (!runs) /* also of a worker that took no job any more */
        judge_end(v);
}

static weft_status advance_all(serving *m)
{
    weft_server *s = m->server;
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < s->group_count; i++)
        WEFT_GO(advance(&m->groups[i]));
    if (s->shares && !s->stopping)
        WEFT_GO(claim_ranks(m->groups));
out:
    WEFT_TRY(weft_status_first(status, weft_queue_store_sync(s->store)));
    return remove_deleted(s); /* last: files that cannot be removed stop nothing else */
}

/* A failed write of the queue is reported once and tried again. */
static void work(serving *m)
{
    weft_server *s = m->server;
    for (int i = 0; i < s->group_count; i++)
        read_worker(&m->groups[i]);
    weft_price_estimate_advance(&m->estimate, s);
    weft_video_images_advance(s);
    const weft_status_code status = advance_all(m);
    if (!s->stopping && weft_price_estimate_begin(&m->estimate, s))
        start_early(&m->groups[0]);
    if (status != WEFT_OK && !m->warned)
        weft_warn_error(WEFT_MSG_QUEUE_DATABASE, "trying again");
    m->warned = status != WEFT_OK;
}

static void begin_stopping(serving *m)
{
    m->server->stopping = true;
    m->stopping = weft_now();
    weft_server_changed(m->server, NULL);
}

/* The server stops, and no worker has a job whose end can be stored. */
static bool has_stopped(const serving *m)
{
    bool done = m->server->stopping;
    for (const supervisor *v = m->groups; v < m->groups + m->server->group_count; v++)
        done = done && !v->worker.job && (!v->group->running[0] || m->warned);
    return done;
}

static void abandon_long_steps(serving *m)
{
    for (supervisor *v = m->groups; v < m->groups + m->server->group_count; v++)
        if (v->worker.job && !v->ended && weft_now() - m->stopping > STOP_SECONDS)
            abandon_step(v);
}

/* All workers end at the same time: the launcher of several ranks needs a tenth of a second. */
static void end_children(serving *m)
{
    for (int i = 0; i < m->server->group_count; i++)
        weft_worker_retire(&m->groups[i].worker);
    for (int i = 0; i < m->server->group_count; i++)
        weft_worker_kill(&m->groups[i].worker);
    weft_video_images_stop(m->server);
    weft_price_estimate_stop(&m->estimate);
}

weft_status weft_supervisor_run(weft_server *s)
{
    serving m = {.server = s};
    bool done = false;
    double heartbeat = weft_now();
    for (int i = 0; i < s->group_count; i++)
        m.groups[i] = (supervisor){.server = s, .group = &s->groups[i]};
    while (!done) {
        wait_for_events(&m);
        pthread_mutex_lock(&s->lock);
        if (weft_interrupted() && !s->stopping)
            begin_stopping(&m);
        if (s->stopping)
            abandon_long_steps(&m);
        if (weft_now() - heartbeat > HEARTBEAT_SECONDS) {
            heartbeat = weft_now();
            weft_event_streams_beat(s);
        }
        work(&m);
        done = has_stopped(&m);
        s->supervisor = done ? NULL : m.groups;
        pthread_mutex_unlock(&s->lock);
    }
    end_children(&m);
    return weft_interrupt_check();
}

/* ---- recovery ------------------------------------------------------------------------------- */

static weft_status clean_folder(weft_server *s, const char *id)
{
    weft_queue_job job;
    bool found;
    WEFT_TRY(weft_queue_store_find(s->store, id, &job, &found));
    const bool keep =
        found && job.state != WEFT_QUEUE_CANCELLED && job.state != WEFT_QUEUE_DELETING;
    if (found)
        weft_queue_job_free(&job);
    return keep ? WEFT_OK : remove_files(s, id);
}

static weft_status write_price_image(const weft_server *s)
{
    static const uint8_t grey[16 * 16 * 3];
    char *path = weft_path_join(s->state, WEFT_PRICE_IMAGE);
    WEFT_TRY(WEFT_ALLOCATED(path, "an image"));
    const weft_status_code status =
        !weft_path_exists(path) ? weft_png_write(path, grey, 16, 16) : WEFT_OK;
    weft_free(path);
    return status;
}

/* Only folders with names of jobs are removed. */
static bool is_job_name(const char *name)
{
    return !strncmp(name, "video_", 6) && weft_hex_starts(name + 6, 24) && name[30] == '\0';
}

weft_status weft_supervisor_recover(weft_server *s)
{
    char *jobs = weft_path_join(s->state, "jobs");
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(jobs, "the jobs"));
    WEFT_GO(weft_make_dirs(jobs));
    for (int i = 0; i < WEFT_SERVE_GROUPS; i++)
        WEFT_GO(wait_for_worker(s, i));
    WEFT_GO(write_price_image(s));
    WEFT_GO(weft_queue_store_recover(s->store, weft_server_time()));
    WEFT_GO(weft_list_dir(jobs, false, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (is_job_name(names.name[i]))
            WEFT_GO(clean_folder(s, names.name[i]));
    if (remove_deleted(s) != WEFT_OK)
        weft_warn_error(WEFT_MSG_QUEUE_DATABASE, "trying again");
out:
    weft_names_free(&names);
    weft_free(jobs);
    return status;
}
