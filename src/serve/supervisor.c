#include "serve/supervisor.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "serve/event_stream.h"
#include "serve/job_measures.h"
#include "serve/job_run.h"
#include "serve/learned_store.h"
#include "serve/price_estimate.h"
#include "serve/served_files.h"
#include "serve/shared_ranks.h"
#include "serve/video_images.h"
#include "serve/worker_lock.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 200, STOP_POLL_MS = 20, HEARTBEAT_SECONDS = 15 };
/* Seconds of a stopping server for the step that runs. */
#define STOP_SECONDS 0.5

/* ---- worker --------------------------------------------------------------------------------- */

/* The event streams of the running jobs show their progress. */
static void show_progress(const weft_supervisor *v)
{
    const weft_served_group *g = v->group;
    for (int i = 0; i < g->batch.count; i++)
        weft_event_streams_changed(v->server, g->batch.id[i]);
}

/* The job that starts next: the one for which a worker was stopped, if it still waits. */
static weft_status find_next(const weft_supervisor *v, weft_queue_job *job, bool *found)
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
static weft_status claim(weft_supervisor *v)
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
        WEFT_GO(weft_worker_try_lock(s, v->group - s->groups, &lock));
    if (count && (alive || lock >= 0))
        WEFT_GO(weft_job_run_start(v, jobs, count, seconds, lock));
out:
    if (lock >= 0)
        close(lock);
    for (int i = 0; i < (count ? count : 1); i++)
        weft_queue_job_free(&jobs[i]);
    return status;
}

/* Starts the worker while a price is estimated: a job probably follows, whose start would
 * report a failure again. */
static void start_early(weft_supervisor *v)
{
    int lock = -1;
    if (v->server->shares || v->worker.child.pid || v->group->running[0])
        return;
    if (weft_worker_try_lock(v->server, v->group - v->server->groups, &lock) != WEFT_OK ||
        (lock >= 0 && weft_job_run_open(v, lock) != WEFT_OK))
        weft_error_clear();
    if (lock >= 0)
        close(lock);
}

/* The time of the running job's preview in ms; 0: none. */
static int64_t preview_time(const weft_supervisor *v)
{
    char *folder = weft_server_job_folder(v->server, v->group->running),
         *path = folder ? weft_path_join(folder, WEFT_JOB_PREVIEW) : NULL;
    struct stat facts;
    const bool found = path && stat(path, &facts) == 0;
    weft_free(folder);
    weft_free(path);
    return found ? (int64_t)facts.st_mtim.tv_sec * 1000 + facts.st_mtim.tv_nsec / 1000000 : 0;
}

static void take_progress(weft_supervisor *v, const weft_worker_report *r)
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
        weft_job_measure_start(v);
    if (v->server->shares)
        weft_job_measure_steps(v);
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
static void read_reports(weft_supervisor *v)
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
            weft_job_run_end(v, &end);
        }
    }
    s->progress_version += changed;
    if (changed)
        g->progress.preview = preview_time(v);
    if (changed)
        show_progress(v);
}

/* The worker's streams have ended. Its job, if it has one, was not finished. */
static void judge_end(weft_supervisor *v)
{
    weft_server *s = v->server;
    const bool had_job = v->worker.job != 0;
    weft_worker_end end;
    weft_worker_end_process(&v->worker, &end);
    v->group->worker = 0;
    weft_loaded_weights_clear(&v->group->weights);
    if (v->retired)
        weft_job_measure_retired(v);
    if (v->retired || (v->signalled && end.signal == SIGTERM))
        end.event = WEFT_QUEUE_STOPPED;
    v->retired = false;
    v->group->places = 0;
    warn_of_end(v->group, &end);
    if (had_job)
        weft_job_run_end(v, &end);
    else
        s->crashes += end.event == WEFT_QUEUE_CRASHED;
}

/* The server stops, and the step of its job lasts longer than the server may wait. The job resumes
 * at its last saved step. */
static void abandon_step(weft_supervisor *v)
{
    const weft_worker_end end = {.event = WEFT_QUEUE_STOPPED};
    weft_worker_abandon(&v->worker);
    weft_job_run_end(v, &end);
}

/* The error of a batch may be one job's: all run again, each alone. */
static void forgive_batch(weft_supervisor *v)
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

static weft_status apply_end(weft_supervisor *v)
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
        if (next == WEFT_QUEUE_CANCELLED && weft_served_files_remove(s, b->id[i]) != WEFT_OK)
            weft_warn_error(weft_error_class(), "the next start removes the files");
    }
    s->crashes += v->end.event == WEFT_QUEUE_CRASHED;
    s->unsaved = true;
    weft_job_measure_batch(v);
    if (b->count > 1)
        weft_worker_remove_lists(s);
    v->ended = false;
    v->group->running[0] = '\0';
    if (s->shares)
        weft_shared_ranks_count(s);
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

/* Sets `next` if another job should run instead of the worker's. The first message is written after
 * a step: a job that is stopped has made progress, and the seconds of a start are known. */
static weft_status choose_other(weft_supervisor *v)
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
        return weft_shared_ranks_choose(v);
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_queue_view_choose(queue, &number));
    WEFT_TRY(find_other(s, number, &v->next));
    s->stops += v->next != 0;
    return WEFT_OK;
}

static void signal_stop(weft_supervisor *v, bool saves)
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
    weft_supervisor *v = s->supervisor + (g - s->groups);
    if (v->worker.job && !v->ended && !v->signalled)
        signal_stop(v, !ends || g->batch.count > 1);
}

/* Asks the worker to stop its jobs if one of the jobs is not to run. The others resume at their
 * step. */
static weft_status stop_job(weft_supervisor *v)
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

/* ---- loop ----------------------------------------------------------------------------------- */

/* Lives as long as the main thread serves. */
typedef struct serving {
    weft_server *server;
    weft_supervisor groups[WEFT_SERVE_GROUPS];
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
static weft_status has_left(const weft_supervisor *v, bool *left)
{
    int lock = -1;
    *left = true;
    if (v->worker.child.pid)
        return WEFT_OK;
    WEFT_TRY(weft_worker_try_lock(v->server, v->group - v->server->groups, &lock));
    *left = lock >= 0;
    if (lock >= 0)
        close(lock);
    return WEFT_OK;
}

/* Writes the ends of jobs to the queue and starts the next job. */
static weft_status advance(weft_supervisor *v)
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

static void read_worker(weft_supervisor *v)
{
    if (!v->worker.child.pid)
        return;
    const bool runs = weft_child_read(&v->worker.child);
    read_reports(v);
    if (!runs) /* also of a worker that took no job any more */
        judge_end(v);
}

/* Stores the learned seconds of the jobs that have ended. */
static weft_status save_learned(weft_server *s)
{
    if (s->unsaved)
        WEFT_TRY(weft_learned_store_write(s->store, s->conditions, &s->learned));
    s->unsaved = false;
    return WEFT_OK;
}

static weft_status advance_all(serving *m)
{
    weft_server *s = m->server;
    weft_status_code status = WEFT_OK;
    for (int i = 0; i < s->group_count; i++)
        WEFT_GO(advance(&m->groups[i]));
    if (s->shares && !s->stopping)
        WEFT_GO(weft_shared_ranks_claim(m->groups));
    WEFT_GO(save_learned(s));
out:
    WEFT_TRY(weft_status_first(status, weft_queue_store_sync(s->store)));
    return weft_served_files_remove_deleted(
        s); /* last: files that cannot be removed stop nothing else */
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
    for (const weft_supervisor *v = m->groups; v < m->groups + m->server->group_count; v++)
        done = done && !v->worker.job && (!v->group->running[0] || m->warned);
    return done;
}

static void abandon_long_steps(serving *m)
{
    for (weft_supervisor *v = m->groups; v < m->groups + m->server->group_count; v++)
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
        m.groups[i] = (weft_supervisor){.server = s, .group = &s->groups[i]};
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
