#include "serve/videos_api.h"

#include "base/config.h"
#include "base/fs.h"
#include "serve/byte_range.h"
#include "serve/input_files.h"
#include "serve/job_json.h"
#include "serve/supervisor.h"
#include "serve/video_images.h"
#include "serve/video_request.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_serve_reply not_found(void)
{
    return weft_serve_error(404, "not_found", NULL, "no video has this id");
}

bool weft_videos_are_seen(const weft_serve_request *r, const weft_queue_job *job)
{
    return !r->owner || !job->owner || !strcmp(r->owner, job->owner);
}

bool weft_videos_find(const weft_serve_request *r, const char *id, weft_queue_job *job,
                      weft_serve_reply *reply)
{
    bool found = false;
    if (weft_queue_store_find(r->server->store, id, job, &found) != WEFT_OK)
        *reply = weft_serve_own_error();
    else if (!found || job->state == WEFT_QUEUE_DELETING || !weft_videos_are_seen(r, job))
        *reply = not_found();
    else
        return true;
    if (found)
        weft_queue_job_free(job);
    return false;
}

weft_serve_reply weft_videos_answer(weft_server *s, const weft_queue_job *job, bool as_job)
{
    const weft_queue_view *queue;
    if (!as_job)
        return weft_serve_json(200, weft_job_json_video(s, job));
    return weft_server_queue(s, &queue) == WEFT_OK
               ? weft_serve_json(200, weft_job_json_job(s, job, queue))
               : weft_serve_own_error();
}

weft_serve_reply weft_videos_get(weft_serve_request *r, const char *id, bool as_job)
{
    weft_queue_job job;
    weft_serve_reply reply;
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    reply = weft_videos_answer(r->server, &job, as_job);
    weft_queue_job_free(&job);
    return reply;
}

/* ---- list ----------------------------------------------------------------------------------- */

static json_t *list_json(weft_server *s, const weft_queue_job *jobs, int64_t count, bool as_jobs)
{
    static const weft_queue_view none;
    const weft_queue_view *queue = &none;
    json_t *data = json_array();
    if (as_jobs && weft_server_queue(s, &queue) != WEFT_OK)
        queue = &none;
    for (int64_t i = 0; data && i < count; i++)
        json_array_append_new(data, as_jobs ? weft_job_json_job(s, &jobs[i], queue)
                                            : weft_job_json_video(s, &jobs[i]));
    return data;
}

static bool read_limit(const char *text, int64_t *limit)
{
    if (!text[0] || strlen(text) > 3 || strspn(text, "0123456789") != strlen(text))
        return false;
    *limit = atoll(text);
    return *limit >= 1 && *limit <= 100;
}

/* Reads the query of a list. False: `reply` is a refusal. */
static bool read_page(const weft_serve_request *r, bool as_jobs, weft_queue_page *page,
                      weft_serve_reply *reply)
{
    const char *limit = weft_serve_request_query(r, "limit"),
               *order = weft_serve_request_query(r, "order"),
               *part = as_jobs ? weft_serve_request_query(r, "part") : "";
    weft_queue_job job;
    *page = (weft_queue_page){.after = weft_serve_request_query(r, "after"),
                              .limit = 20,
                              .owner = r->owner,
                              .descending = strcmp(order, "asc") != 0,
                              .part = !strcmp(part, "unfinished") ? WEFT_QUEUE_UNFINISHED
                                      : !strcmp(part, "final")    ? WEFT_QUEUE_FINAL
                                                                  : WEFT_QUEUE_ALL};
    if (*limit && !read_limit(limit, &page->limit))
        *reply = weft_serve_error(400, "invalid_limit", "limit",
                                  "limit is not a whole number from 1 to 100");
    else if (*order && page->descending && strcmp(order, "desc") != 0)
        *reply = weft_serve_error(400, "invalid_order", "order", "order is not asc or desc");
    else if (*part && page->part == WEFT_QUEUE_ALL)
        *reply = weft_serve_error(400, "invalid_part", "part", "part is not unfinished or final");
    else if (!*page->after)
        return true;
    else if (weft_videos_find(r, page->after, &job, reply)) {
        weft_queue_job_free(&job);
        return true;
    }
    return false;
}

weft_serve_reply weft_videos_list(weft_serve_request *r, bool as_jobs)
{
    weft_queue_page page;
    weft_queue_job *jobs;
    int64_t count;
    bool more;
    weft_serve_reply reply;
    if (!read_page(r, as_jobs, &page, &reply))
        return reply;
    if (weft_queue_store_list(r->server->store, &page, &jobs, &count, &more) != WEFT_OK)
        return weft_serve_own_error();
    json_t *json =
        json_pack("{s:s, s:o, s:s?, s:s?, s:b}", "object", "list", "data",
                  list_json(r->server, jobs, count, as_jobs), "first_id", count ? jobs[0].id : NULL,
                  "last_id", count ? jobs[count - 1].id : NULL, "has_more", more);
    weft_queue_jobs_free(jobs, count);
    return weft_serve_json(200, json);
}

/* ---- delete, content ------------------------------------------------------------------------ */

weft_serve_reply weft_videos_delete(weft_serve_request *r, const char *id)
{
    weft_queue_job job;
    weft_queue_state next;
    bool found;
    weft_serve_reply reply;
    const weft_queue_change change = {.now = weft_server_time()};
    if (r->stage == 0) {
        if (!weft_videos_find(r, id, &job, &reply))
            return reply;
        weft_queue_job_free(&job);
        weft_supervisor_hasten(r->server, id, WEFT_QUEUE_DELETE);
        if (weft_queue_store_apply(r->server->store, id, WEFT_QUEUE_DELETE, &change, &next) !=
            WEFT_OK)
            return weft_serve_own_error();
        r->stage = 1;
        weft_server_wake(r->server);
    }
    if (weft_queue_store_find(r->server->store, id, &job, &found) != WEFT_OK)
        return weft_serve_own_error();
    if (found) {
        weft_queue_job_free(&job);
        return (weft_serve_reply){.waits = true};
    }
    return weft_serve_json(
        200, json_pack("{s:s, s:s, s:b}", "id", id, "object", "video.deleted", "deleted", 1));
}

/* Opens a file of a job. *bytes: its size. -1: it cannot be read. */
static int open_file(const weft_server *s, const char *id, const char *name, int64_t *bytes)
{
    char *folder = weft_server_job_folder(s, id),
         *path = folder ? weft_path_join(folder, name) : NULL;
    struct stat facts;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    weft_free(folder);
    weft_free(path);
    if (fd >= 0 && fstat(fd, &facts) != 0) {
        close(fd);
        fd = -1;
    }
    *bytes = fd >= 0 ? facts.st_size : 0;
    return fd;
}

/* Waits until the images of a video are made. They are not if the child has ended without. */
static weft_serve_reply wait_for_images(weft_serve_request *r, const char *id)
{
    const weft_video_images *images = &r->server->images;
    const bool failed = r->saw_images && strcmp(images->id, id) != 0,
               full = weft_message_find(images->error) == WEFT_MSG_DISK_FULL;
    if (failed)
        return weft_serve_error(full ? 507 : 500, full ? "disk-full" : "file-io", NULL,
                                "the image of the video cannot be made");
    r->saw_images = weft_video_images_ask(r->server, id) || r->saw_images;
    return (weft_serve_reply){.waits = true};
}

static weft_serve_reply open_content(weft_serve_request *r, const char *id,
                                     const weft_video_variant *variant)
{
    weft_serve_reply reply = {.status = 200};
    int fd = -1;
    for (int i = 0; i < WEFT_COUNT(variant->form) && variant->form[i].file && fd < 0; i++) {
        fd = open_file(r->server, id, variant->form[i].file, &reply.total);
        reply.type = variant->form[i].type;
    }
    if (fd < 0 && strcmp(variant->name, "video") != 0)
        return wait_for_images(r, id);
    if (fd < 0)
        return weft_serve_error(500, "file-io", NULL, "the file of the video cannot be read");
    reply.file = fd + 1;
    const int64_t total = reply.total;
    const weft_range_kind kind =
        weft_byte_range(MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Range"), total,
                        &reply.first, &reply.count);
    if (kind == WEFT_RANGE_PART)
        reply.status = 206;
    if (kind != WEFT_RANGE_OUTSIDE)
        return reply;
    close(fd);
    reply = weft_serve_error(416, "invalid_range", "Range", "no byte of the file is in the range");
    reply.total = total;
    return reply;
}

weft_serve_reply weft_videos_preview(weft_serve_request *r, const char *id)
{
    weft_queue_job job;
    weft_serve_reply reply;
    int64_t bytes;
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    weft_queue_job_free(&job);
    const int fd = open_file(r->server, id, WEFT_JOB_PREVIEW, &bytes);
    if (fd < 0)
        return weft_serve_error(404, "no_preview", NULL, "the job has no preview");
    return (weft_serve_reply){
        .status = 200, .type = "image/png", .file = fd + 1, .count = bytes, .total = bytes};
}

weft_serve_reply weft_videos_input(weft_serve_request *r, const char *id, const char *field)
{
    const weft_request_input input = weft_input_find(field);
    weft_queue_job job;
    weft_serve_reply reply;
    int64_t bytes = 0;
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    json_t *request = json_loads(job.request, 0, NULL);
    const char *name = input < WEFT_INPUTS ? weft_input_of(request, input) : NULL;
    const int fd = name ? open_file(r->server, id, name, &bytes) : -1;
    reply = fd < 0 ? weft_serve_error(404, "no_input", NULL, "the job has no such file")
                   : (weft_serve_reply){.status = 200,
                                        .type = weft_input_type(name),
                                        .file = fd + 1,
                                        .count = bytes,
                                        .total = bytes};
    json_decref(request);
    weft_queue_job_free(&job);
    return reply;
}

weft_serve_reply weft_videos_content(weft_serve_request *r, const char *id)
{
    weft_queue_job job;
    weft_serve_reply reply;
    const weft_video_variant *variant =
        weft_video_variant_find(weft_serve_request_query(r, "variant"));
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    const bool complete = job.state == WEFT_QUEUE_COMPLETED;
    weft_queue_job_free(&job);
    if (!variant)
        return weft_serve_error(400, "variant_unsupported", "variant",
                                "the variants are video, thumbnail and spritesheet");
    return complete ? open_content(r, id, variant)
                    : weft_serve_error(409, "not_completed", NULL, "the video is not completed");
}
