#include "serve/job_run.h"

#include "base/log.h"
#include "serve/job_measures.h"

#include <stdio.h>
#include <string.h>

/* Seconds until a job is tried again after the disk was full. */
enum { FULL_DISK_SECONDS = 5 };

void weft_job_run_end(weft_supervisor *v, const weft_worker_end *end)
{
    const weft_queue_event event = end->event;
    v->ended = true;
    v->end = *end;
    v->change = (weft_queue_change){.spent = (weft_now() - v->group->since) / v->group->batch.count,
                                    .remaining = v->discards ? 0 : weft_job_measure_remaining(v)};
    if (event == WEFT_QUEUE_FINISHED)
        weft_job_measure_end(v);
    if (v->server->shares && event == WEFT_QUEUE_FINISHED)
        weft_job_measure_shared_end(v);
    if (event == WEFT_QUEUE_STOPPED && v->signalled)
        v->server->freed = weft_now() - v->stopped;
    if (event == WEFT_QUEUE_STOPPED && v->signalled && !v->discards)
        v->server->learned.stop = v->server->freed;
    if (event == WEFT_QUEUE_REFUSED || event == WEFT_QUEUE_CRASHED) {
        v->change.error_code = v->end.code;
        v->change.error = v->end.text;
    }
}

weft_status weft_job_run_open(weft_supervisor *v, int lock)
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
static void give(weft_supervisor *v, const weft_queue_job *jobs, int count, int lock)
{
    weft_worker_end end = {.event = WEFT_QUEUE_STOPPED};
    bool taken = false;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_job_run_open(v, lock));
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
        weft_job_run_end(v, &end);
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

weft_status weft_job_run_start(weft_supervisor *v, const weft_queue_job *jobs, int count,
                               double seconds, int lock)
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
    g->start = s->shares ? weft_job_measure_expected_start(v)
               : v->cold ? s->learned.cold
                         : s->learned.start;
    v->start = -1;
    v->reports[0].done = 0;
    v->denoised = 0;
    v->signalled = v->discards = false;
    v->next = 0;
    give(v, jobs, started, lock);
    weft_server_changed(s, NULL);
    return status;
}
