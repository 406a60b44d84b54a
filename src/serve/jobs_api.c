#include "serve/jobs_api.h"

#include "serve/videos_api.h"

weft_serve_reply weft_jobs_change(weft_serve_request *r, const char *id, weft_queue_event event)
{
    weft_server *s = r->server;
    weft_queue_job job;
    weft_serve_reply reply;
    weft_queue_state next;
    const weft_queue_change change = {.now = weft_server_time()};
    if (!weft_videos_find(s, id, &job, &reply))
        return reply;
    const weft_queue_state state = job.state;
    weft_queue_job_free(&job);
    if (r->stage == 0) {
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
