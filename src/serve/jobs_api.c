#include "serve/jobs_api.h"

#include "base/config.h"
#include "serve/request_fields.h"
#include "serve/supervisor.h"
#include "serve/token_limits.h"
#include "serve/videos_api.h"

/* Whether RESUME adds a job of this state to the queue. */
static bool waits_again(weft_queue_state state)
{
    return state == WEFT_QUEUE_PAUSED || state == WEFT_QUEUE_FAILED ||
           state == WEFT_QUEUE_CANCELLED;
}

weft_serve_reply weft_jobs_change(weft_serve_request *r, const char *id, weft_queue_event event)
{
    weft_server *s = r->server;
    weft_queue_job job;
    weft_serve_reply reply;
    weft_queue_state next;
    const weft_queue_change change = {.now = weft_server_time()};
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    const weft_queue_state state = job.state;
    const bool refused = r->stage == 0 && event == WEFT_QUEUE_RESUME && waits_again(state) &&
                         weft_token_limits_refuse(s, &job, &reply);
    weft_queue_job_free(&job);
    if (refused)
        return reply;
    if (r->stage == 0) {
        weft_supervisor_hasten(s, id, event);
        if (weft_queue_store_apply(s->store, id, event, &change, &next) != WEFT_OK)
            return weft_serve_own_error();
        r->stage = 1;
        weft_server_changed(s, id);
        weft_server_wake(s);
    } else {
        next = state;
    }
    if (next == WEFT_QUEUE_PAUSING || next == WEFT_QUEUE_CANCELLING)
        return (weft_serve_reply){.waits = true};
    const bool came_late = next == WEFT_QUEUE_COMPLETED && event != WEFT_QUEUE_RESUME;
    if (came_late) /* the worker finished before it could stop */
        return weft_serve_error(409, "completed", NULL, "the video was completed before");
    return weft_videos_get(r, id, true);
}

/* The other job of a move. */
static weft_status read_anchor(weft_serve_request *r, json_t **fields, const char **other,
                               bool *after)
{
    static const char *const known[] = {"before", "after"};
    const char *next = NULL, *previous = NULL;
    WEFT_TRY(weft_serve_request_fields(r, fields));
    WEFT_TRY(weft_request_known(*fields, known, WEFT_COUNT(known)));
    WEFT_TRY(weft_request_text(*fields, "before", WEFT_QUEUE_ID, &next));
    WEFT_TRY(weft_request_text(*fields, "after", WEFT_QUEUE_ID, &previous));
    if (!next == !previous)
        return weft_request_refuse("before", NULL,
                                   "give the id of another job as either before or after");
    *other = next ? next : previous;
    *after = !next;
    return WEFT_OK;
}

weft_serve_reply weft_jobs_move(weft_serve_request *r, const char *id)
{
    weft_server *s = r->server;
    weft_queue_job job;
    weft_serve_reply reply;
    json_t *fields = NULL;
    const char *other = NULL;
    bool after = false;
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    weft_queue_job_free(&job);
    if (s->rules.policy != WEFT_QUEUE_FIFO)
        return weft_serve_error(409, "ordered_by_policy", NULL,
                                "the server's policy orders the jobs; change the priority or the "
                                "deadline of the job");
    if (read_anchor(r, &fields, &other, &after) != WEFT_OK) {
        reply = weft_serve_own_error();
    } else if (weft_videos_find(r, other, &job, &reply)) {
        weft_queue_job_free(&job);
        reply = weft_queue_store_move(s->store, id, other, after) == WEFT_OK
                    ? weft_videos_get(r, id, true)
                    : weft_serve_own_error();
        weft_server_changed(s, id);
    }
    json_decref(fields);
    return reply;
}
