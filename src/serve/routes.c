#include "serve/routes.h"

#include "serve/job_create.h"
#include "serve/jobs_api.h"
#include "serve/machine_api.h"
#include "serve/page.h"
#include "serve/status_api.h"
#include "serve/videos_api.h"

#include <stdio.h>
#include <string.h>

static bool is(const weft_serve_request *r, int part, const char *text)
{
    return !strcmp(r->part[part], text);
}

static bool gets(const weft_serve_request *r)
{
    return !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
}

static bool posts(const weft_serve_request *r)
{
    return !strcmp(r->method, "POST");
}

bool weft_routes_is_open(const weft_serve_request *r)
{
    return r->parts == 0 || (r->parts == 1 && (is(r, 0, "health") || is(r, 0, "ready")));
}

/* `allow`: the methods of the path. */
static weft_serve_reply no_method(const char *allow)
{
    char text[96];
    snprintf(text, sizeof text, "the path has the methods %s", allow);
    weft_serve_reply reply = weft_serve_error(405, "method_not_allowed", NULL, text);
    reply.allow = allow;
    return reply;
}

static weft_serve_reply no_path(void)
{
    return weft_serve_error(404, "not_found", NULL, "nothing has this path");
}

static weft_serve_reply status_route(const weft_serve_request *r)
{
    weft_server *s = r->server;
    if (!gets(r))
        return no_method("GET, HEAD");
    if (is(r, 0, "health"))
        return weft_status_health();
    if (is(r, 0, "ready"))
        return weft_status_ready(s);
    if (is(r, 0, "metrics"))
        return weft_status_metrics(s);
    return is(r, 0, "capabilities") ? weft_status_capabilities(s) : no_path();
}

static weft_serve_reply videos_route(weft_serve_request *r)
{
    const char *id = r->part[2];
    if (r->parts == 2)
        return posts(r)  ? weft_job_create(r, &(weft_create_form){0})
               : gets(r) ? weft_videos_list(r, false)
                         : no_method("GET, HEAD, POST");
    if (r->parts == 3)
        return gets(r)                        ? weft_videos_get(r, id, false)
               : !strcmp(r->method, "DELETE") ? weft_videos_delete(r, id)
                                              : no_method("GET, HEAD, DELETE");
    if (is(r, 3, "content"))
        return gets(r) ? weft_videos_content(r, id) : no_method("GET, HEAD");
    if (is(r, 3, "remix"))
        return posts(r) ? weft_job_create(r, &(weft_create_form){.base = id}) : no_method("POST");
    return no_path();
}

static weft_serve_reply events_route(weft_serve_request *r, const char *id)
{
    weft_queue_job job;
    weft_serve_reply reply;
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    weft_queue_job_free(&job);
    reply = (weft_serve_reply){.status = 200, .streams = true};
    weft_buf_printf(&reply.text, "%s", id);
    return reply;
}

static weft_serve_reply jobs_route(weft_serve_request *r)
{
    static const struct {
        const char *name;
        weft_queue_event event;
    } changes[] = {
        {"cancel", WEFT_QUEUE_CANCEL}, {"pause", WEFT_QUEUE_PAUSE}, {"resume", WEFT_QUEUE_RESUME}};
    const char *id = r->part[2];
    if (r->parts == 2)
        return posts(r)  ? weft_job_create(r, &(weft_create_form){.as_job = true})
               : gets(r) ? weft_videos_list(r, true)
                         : no_method("GET, HEAD, POST");
    if (r->parts == 3 && is(r, 2, "price"))
        return posts(r) ? weft_job_create(r, &(weft_create_form){.only_price = true})
                        : no_method("POST");
    if (r->parts == 3)
        return gets(r)                        ? weft_videos_get(r, id, true)
               : !strcmp(r->method, "PATCH")  ? weft_job_edit(r, id)
               : !strcmp(r->method, "DELETE") ? weft_videos_delete(r, id)
                                              : no_method("GET, HEAD, PATCH, DELETE");
    if (is(r, 3, "inputs") && r->parts == 5)
        return gets(r) ? weft_videos_input(r, id, r->part[4]) : no_method("GET, HEAD");
    if (r->parts > 4)
        return no_path();
    if (is(r, 3, "events"))
        return gets(r) ? events_route(r, id) : no_method("GET, HEAD");
    if (is(r, 3, "preview"))
        return gets(r) ? weft_videos_preview(r, id) : no_method("GET, HEAD");
    if (is(r, 3, "move"))
        return posts(r) ? weft_jobs_move(r, id) : no_method("POST");
    if (is(r, 3, "duplicate"))
        return posts(r) ? weft_job_create(r, &(weft_create_form){.as_job = true, .base = id})
                        : no_method("POST");
    for (int i = 0; i < 3; i++)
        if (is(r, 3, changes[i].name))
            return posts(r) ? weft_jobs_change(r, id, changes[i].event) : no_method("POST");
    return no_path();
}

weft_serve_reply weft_routes_answer(weft_serve_request *r)
{
    if (r->parts == 0)
        return gets(r) ? weft_page_get() : no_method("GET, HEAD");
    if (r->parts == 1)
        return status_route(r);
    if (r->parts < 2 || r->parts > 5 || !is(r, 0, "v1"))
        return no_path();
    if (is(r, 1, "jobs"))
        return jobs_route(r);
    if (r->parts > 4)
        return no_path();
    if (is(r, 1, "videos"))
        return videos_route(r);
    if (r->parts == 2 && is(r, 1, "models"))
        return gets(r) ? weft_status_models(r->server) : no_method("GET, HEAD");
    if (r->parts == 2 && is(r, 1, "loras"))
        return gets(r) ? weft_status_loras(r->server) : no_method("GET, HEAD");
    if (r->parts == 2 && is(r, 1, "machine"))
        return gets(r) ? weft_machine_get(r->server) : no_method("GET, HEAD");
    return no_path();
}
