#include "serve/job_json.h"

#include "base/log.h"
#include "serve/delivery_store.h"
#include "serve/video_request.h"

#include <stdio.h>
#include <string.h>

const char *weft_job_json_status(weft_queue_state state)
{
    switch (state) {
    case WEFT_QUEUE_QUEUED:
    case WEFT_QUEUE_PAUSED: return "queued";
    case WEFT_QUEUE_COMPLETED: return "completed";
    case WEFT_QUEUE_CANCELLED:
    case WEFT_QUEUE_FAILED:
    case WEFT_QUEUE_PARKED: return "failed";
    default: return "in_progress";
    }
}

static json_t *time_or_null(double time)
{
    return time > 0 ? json_integer((json_int_t)time) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static json_t *error_json(const weft_queue_job *job)
{
    if (job->state == WEFT_QUEUE_CANCELLED)
        return json_pack("{s:s, s:s}", "code", "cancelled", "message", "the job was cancelled");
    if (job->state != WEFT_QUEUE_FAILED && job->state != WEFT_QUEUE_PARKED)
        return json_null();
    return json_pack("{s:s, s:s}", "code", job->error_code ? job->error_code : "", "message",
                     job->error_text ? job->error_text : "");
}

/* The group whose worker has the job; NULL: none. */
static const weft_served_group *group_of(const weft_server *s, const weft_queue_job *job)
{
    return weft_queue_is_held(job->state) ? weft_server_group(s, job->id) : NULL;
}

static int percent(const weft_server *s, const weft_queue_job *job)
{
    if (job->state == WEFT_QUEUE_COMPLETED)
        return 100;
    const weft_served_group *g = group_of(s, job);
    return g && g->progress.total > 0 ? (int)(99 * g->progress.done / g->progress.total) : 0;
}

json_t *weft_job_json_video(const weft_server *s, const weft_queue_job *job)
{
    json_t *request = json_loads(job->request, 0, NULL);
    char size[48], seconds[32];
    snprintf(size, sizeof size, "%" PRId64 "x%" PRId64,
             (int64_t)json_integer_value(json_object_get(request, "width")),
             (int64_t)json_integer_value(json_object_get(request, "height")));
    snprintf(seconds, sizeof seconds, "%.4g",
             weft_video_request_seconds(request, s->models, s->model_count));
    json_t *json = json_pack(
        "{s:s, s:s, s:O, s:s, s:i, s:I, s:o, s:n, s:O, s:s, s:s, s:o, s:o}", "id", job->id,
        "object", "video", "model", json_object_get(request, "model"), "status",
        weft_job_json_status(job->state), "progress", percent(s, job), "created_at",
        (json_int_t)job->created, "completed_at",
        job->state == WEFT_QUEUE_COMPLETED ? time_or_null(job->finished) : json_null(),
        "expires_at", "prompt", json_object_get(request, "prompt"), "size", size, "seconds",
        seconds, "remixed_from_video_id", text_or_null(job->remix_of), "error", error_json(job));
    json_decref(request);
    return json;
}

static json_t *progress_json(const weft_server *s, const weft_queue_job *job)
{
    const weft_served_group *g = group_of(s, job);
    if (!g)
        return json_null();
    const weft_worker_progress *p = &g->progress;
    const int64_t steps = weft_job_steps(p);
    return json_pack("{s:s, s:I, s:I, s:o, s:o}", "phase",
                     p->total == 0      ? "starting"
                     : p->done >= steps ? "decoding"
                                        : "denoising",
                     "step", (json_int_t)(p->done < steps ? p->done : steps), "steps",
                     (json_int_t)steps, "seconds_left",
                     p->seconds_left >= 0 ? json_real(p->seconds_left) : json_null(), "preview",
                     p->preview ? json_integer(p->preview) : json_null());
}

void weft_job_json_add_end(json_t *json, const weft_queue_forecast *f, double deadline)
{
    json_object_set_new(json, "expected_end", json_real(f->likely.end));
    json_object_set_new(json, "expected_end_range",
                        json_pack("[f, f]", f->likely.earliest, f->likely.latest));
    if (deadline > 0)
        json_object_set_new(json, "expected_late", json_boolean(f->likely.end > deadline));
}

static void add_forecast(json_t *json, const weft_queue_job *job, const weft_queue_view *queue)
{
    const weft_queue_forecast *f = weft_queue_view_find(queue, job->number);
    if (!f)
        return;
    json_object_set_new(json, "queue_position", json_integer(f->position));
    json_object_set_new(json, "expected_start",
                        json_real(weft_queue_is_held(job->state) ? job->started : f->likely.start));
    weft_job_json_add_end(json, f, job->deadline);
}

static json_t *webhook_json(const weft_server *s, const weft_queue_job *job)
{
    weft_delivery d;
    bool found = false;
    if (weft_delivery_store_find(s->store, job->id, &d, &found) != WEFT_OK || !found)
        return json_pack("{s:s, s:n}", "url", job->webhook, "status");
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:o}", "url", d.url, "status", weft_delivery_state_name(d.state),
        "event", d.event, "attempts", (json_int_t)d.attempts, "response_status",
        d.reply ? json_integer(d.reply) : json_null(), "error", text_or_null(d.error));
    weft_delivery_free(&d);
    return json;
}

/* A request can be sent again, and has no layout. */
static void move_layout(json_t *json)
{
    json_t *layout = weft_job_layout_take(json_object_get(json, "request"));
    json_object_update(json, layout);
    json_decref(layout);
}

json_t *weft_job_json_job(const weft_server *s, const weft_queue_job *job,
                          const weft_queue_view *queue)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:{s:f, s:I}, s:f, s:o, s:o}",
        "id", job->id, "object", "job", "status", weft_queue_state_name(job->state), "priority",
        (json_int_t)job->priority, "request_id", text_or_null(job->request_id), "remix_of",
        text_or_null(job->remix_of), "deadline", time_or_null(job->deadline), "crashes",
        (json_int_t)job->crashes, "created_at", time_or_null(job->created), "started_at",
        time_or_null(job->started), "completed_at", time_or_null(job->finished), "price", "seconds",
        job->seconds, "bytes", (json_int_t)job->bytes, "seconds_spent", job->spent, "progress",
        progress_json(s, job), "error", error_json(job));
    if (json) {
        json_object_set_new(json, "request", json_loads(job->request, 0, NULL));
        move_layout(json);
        weft_video_request_show(json_object_get(json, "request"));
        json_object_set_new(json, "owner", text_or_null(job->owner));
        if (job->webhook)
            json_object_set_new(json, "webhook", webhook_json(s, job));
        add_forecast(json, job, queue);
    }
    return json;
}
