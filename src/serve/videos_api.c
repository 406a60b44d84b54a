#include "serve/videos_api.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/utf8.h"
#include "serve/byte_range.h"
#include "serve/job_json.h"
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

bool weft_videos_find(weft_server *s, const char *id, weft_queue_job *job, weft_serve_reply *reply)
{
    bool found = false;
    if (weft_queue_store_find(s->store, id, job, &found) != WEFT_OK)
        *reply = weft_serve_own_error();
    else if (!found || job->state == WEFT_QUEUE_DELETING)
        *reply = not_found();
    else
        return true;
    if (found)
        weft_queue_job_free(job);
    return false;
}

/* A job as a video or, with its place in the queue, as a job. */
static weft_serve_reply answer(weft_server *s, unsigned status, const weft_queue_job *job,
                               bool as_job)
{
    const weft_queue_view *queue;
    if (!as_job)
        return weft_serve_json(status, weft_job_json_video(s, job));
    return weft_server_queue(s, &queue) == WEFT_OK
               ? weft_serve_json(status, weft_job_json_job(s, job, queue))
               : weft_serve_own_error();
}

weft_serve_reply weft_videos_get(weft_serve_request *r, const char *id, bool as_job)
{
    weft_queue_job job;
    weft_serve_reply reply;
    if (!weft_videos_find(r->server, id, &job, &reply))
        return reply;
    reply = answer(r->server, 200, &job, as_job);
    weft_queue_job_free(&job);
    return reply;
}

/* ---- create --------------------------------------------------------------------------------- */

/* Lives while a request is read; freed by free_draft. */
typedef struct draft {
    json_t *fields, *base, *request;
    const char *image; /* name of the uploaded image; NULL: none */
    weft_request_terms terms;
    char fingerprint[33];
} draft;

static void free_draft(draft *d)
{
    json_decref(d->fields);
    json_decref(d->base);
    json_decref(d->request);
}

static weft_status read_base(weft_server *s, const char *id, draft *d)
{
    weft_queue_job job;
    bool found;
    WEFT_TRY(weft_queue_store_find(s->store, id, &job, &found));
    if (found) {
        d->base = json_loads(job.request, 0, NULL);
        weft_queue_job_free(&job);
    }
    const char *image = json_string_value(json_object_get(d->base, "image"));
    if (image && *image)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "id"),
                          "the video has an input_reference; send a request with the image");
    return WEFT_OK;
}

static weft_status read_draft(weft_serve_request *r, const weft_videos_form *form, draft *d)
{
    weft_server *s = r->server;
    char hash[33] = "";
    const char *id = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Idempotency-Key");
    WEFT_TRY(weft_serve_request_fields(r, &d->fields));
    WEFT_TRY(weft_serve_request_image(r, &d->image));
    if (form->base)
        WEFT_TRY(read_base(s, form->base, d));
    WEFT_TRY(weft_video_request_read(d->fields, d->base, d->image, s->models, s->model_count,
                                     &d->terms, &d->request));
    if (id && d->terms.request_id[0] && strcmp(id, d->terms.request_id) != 0)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "Idempotency-Key"),
                          "the header differs from the field request_id; remove one of the two");
    if (!d->terms.request_id[0] && id) {
        if (strlen(id) > WEFT_REQUEST_ID)
            return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "Idempotency-Key"),
                              "the value is longer than %d characters", WEFT_REQUEST_ID);
        if (!weft_utf8_valid(id))
            return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "Idempotency-Key"),
                              "the value is not UTF-8");
        snprintf(d->terms.request_id, sizeof d->terms.request_id, "%s", id);
    }
    if (r->image_hash) {
        const XXH128_hash_t x = XXH3_128bits_digest(r->image_hash);
        snprintf(hash, sizeof hash, "%016" PRIx64 "%016" PRIx64, (uint64_t)x.high64,
                 (uint64_t)x.low64);
    }
    return weft_video_request_fingerprint(d->request, hash, d->fingerprint);
}

/* Whether a job has the request id already: the answer is that job, or 409 for another request. */
static bool is_repeated(weft_serve_request *r, const draft *d, bool as_job, weft_serve_reply *reply)
{
    weft_queue_job job;
    bool found = false;
    if (!d->terms.request_id[0])
        return false;
    if (weft_queue_store_find_request(r->server->store, d->terms.request_id, &job, &found) !=
        WEFT_OK) {
        *reply = weft_serve_own_error();
        return true;
    }
    if (!found)
        return false;
    *reply = strcmp(job.fingerprint, d->fingerprint) == 0
                 ? answer(r->server, 200, &job, as_job)
                 : weft_serve_error(409, "request_id_conflict", "request_id",
                                    "another request has this request_id");
    weft_queue_job_free(&job);
    return true;
}

static weft_status fill_job(const draft *d, const weft_price *price, const char *base,
                            weft_queue_job *job)
{
    char *text = json_dumps(d->request, JSON_COMPACT);
    *job = (weft_queue_job){.priority = d->terms.priority,
                            .created = weft_server_time(),
                            .deadline = d->terms.deadline,
                            .seconds = price->seconds,
                            .bytes = price->bytes,
                            .request = text ? weft_strdup(text) : NULL,
                            .fingerprint = weft_strdup(d->fingerprint),
                            .remix_of = base ? weft_strdup(base) : NULL};
    free(text);
    if (d->terms.request_id[0])
        job->request_id = weft_strdup(d->terms.request_id);
    strcpy(job->id, "video_");
    WEFT_TRY(WEFT_ALLOCATED(job->request && job->fingerprint && (job->remix_of || !base) &&
                                (job->request_id || !d->terms.request_id[0]),
                            "a job"));
    return weft_random_hex(12, job->id + 6);
}

/* The image has its name before the job is stored. A kill in between leaves a folder without a job,
 * which the next start removes. */
static weft_status store_image(weft_serve_request *r, const char *id, const char *image)
{
    char *folder = weft_server_job_folder(r->server, id);
    WEFT_TRY(WEFT_ALLOCATED(folder, "a job"));
    weft_status_code status = weft_make_dirs(folder);
    if (status == WEFT_OK)
        status = weft_serve_request_store_image(r, folder, image);
    if (status != WEFT_OK && weft_remove_tree(folder) != WEFT_OK)
        weft_warn_error(weft_error_class(), "the next start removes the folder");
    weft_free(folder);
    return status;
}

static weft_serve_reply add_job(weft_serve_request *r, const draft *d, const weft_price *price,
                                const weft_videos_form *form)
{
    weft_queue_job job = {0};
    bool existing;
    weft_serve_reply reply;
    weft_status_code status = fill_job(d, price, form->base, &job);
    if (status == WEFT_OK && d->image)
        status = store_image(r, job.id, d->image);
    if (status == WEFT_OK)
        status = weft_queue_store_add(r->server->store, &job, &existing);
    if (status != WEFT_OK) {
        reply = weft_serve_own_error();
    } else {
        reply = answer(r->server, 200, &job, form->as_job);
        weft_server_changed(r->server, job.id);
        weft_server_wake(r->server);
    }
    weft_queue_job_free(&job);
    return reply;
}

/* The place that the job would have in the queue. */
static weft_serve_reply answer_price(weft_serve_request *r, const draft *d, const weft_price *price)
{
    const weft_queue_view *queue;
    weft_queue_forecast f;
    const weft_queue_entry last = {INT64_MAX, false, d->terms.priority, price->seconds};
    const double now = weft_server_time();
    if (weft_server_queue(r->server, &queue) != WEFT_OK)
        return weft_serve_own_error();
    (void)weft_queue_predict(queue->entries, queue->count, -1, &last, &f);
    json_t *json = json_pack("{s:s, s:f, s:I, s:I, s:f, s:f, s:O}", "object", "price", "seconds",
                             price->seconds, "bytes", (json_int_t)price->bytes, "queue_position",
                             (json_int_t)f.position, "expected_start", now + f.start,
                             "expected_end", now + f.end, "request", d->request);
    if (json && d->terms.deadline > 0)
        json_object_set_new(json, "expected_late", json_boolean(now + f.end > d->terms.deadline));
    return weft_serve_json(200, json);
}

static const weft_price *ask_price(weft_serve_request *r, const json_t *request)
{
    weft_server *s = r->server;
    const weft_served_model *m = weft_video_request_model(request, s->models, s->model_count);
    return weft_prices_ask(&s->prices, request, weft_served_model_stamp(m), &r->asks_price);
}

weft_serve_reply weft_videos_create(weft_serve_request *r, const weft_videos_form *form)
{
    draft d = {0};
    weft_serve_reply reply;
    if (read_draft(r, form, &d) != WEFT_OK) {
        reply = weft_serve_own_error();
    } else if (!form->only_price && is_repeated(r, &d, form->as_job, &reply)) {
        /* `reply` is set */
    } else {
        const weft_price *price = ask_price(r, d.request);
        if (price && price->state == WEFT_PRICE_REFUSED) {
            reply = weft_serve_error(400, price->code, price->field, price->text);
        } else if (!price || price->state != WEFT_PRICE_KNOWN) {
            weft_server_wake(r->server);
            reply = (weft_serve_reply){.waits = true};
        } else {
            reply = form->only_price ? answer_price(r, &d, price) : add_job(r, &d, price, form);
        }
    }
    free_draft(&d);
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

weft_serve_reply weft_videos_list(weft_serve_request *r, bool as_jobs)
{
    const char *limit = weft_serve_request_query(r, "limit"),
               *after = weft_serve_request_query(r, "after"),
               *order = weft_serve_request_query(r, "order");
    int64_t most = 20;
    weft_queue_job *jobs, job;
    int64_t count;
    bool more;
    weft_serve_reply reply;
    if (*limit && !read_limit(limit, &most))
        return weft_serve_error(400, "invalid_limit", "limit",
                                "limit is not a whole number from 1 to 100");
    if (*order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return weft_serve_error(400, "invalid_order", "order", "order is not asc or desc");
    if (*after) {
        if (!weft_videos_find(r->server, after, &job, &reply))
            return reply;
        weft_queue_job_free(&job);
    }
    if (weft_queue_store_list(r->server->store, after, most, strcmp(order, "asc") != 0, &jobs,
                              &count, &more) != WEFT_OK)
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
        if (!weft_videos_find(r->server, id, &job, &reply))
            return reply;
        weft_queue_job_free(&job);
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

static weft_serve_reply open_content(weft_serve_request *r, const char *id)
{
    char *folder = weft_server_job_folder(r->server, id),
         *path = folder ? weft_path_join(folder, "video.mp4") : NULL;
    struct stat facts;
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    weft_free(folder);
    weft_free(path);
    if (fd < 0 || fstat(fd, &facts) != 0) {
        if (fd >= 0)
            close(fd);
        return weft_serve_error(500, "file-io", NULL, "the file of the video cannot be read");
    }
    weft_serve_reply reply = {
        .status = 200, .type = "video/mp4", .file = fd + 1, .total = facts.st_size};
    const weft_range_kind kind =
        weft_byte_range(MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Range"),
                        reply.total, &reply.first, &reply.count);
    if (kind == WEFT_RANGE_PART)
        reply.status = 206;
    if (kind != WEFT_RANGE_OUTSIDE)
        return reply;
    close(fd);
    const int64_t total = reply.total;
    reply = weft_serve_error(416, "invalid_range", "Range", "no byte of the video is in the range");
    reply.total = total;
    return reply;
}

weft_serve_reply weft_videos_content(weft_serve_request *r, const char *id)
{
    weft_queue_job job;
    weft_serve_reply reply;
    const char *variant = weft_serve_request_query(r, "variant");
    if (!weft_videos_find(r->server, id, &job, &reply))
        return reply;
    const bool complete = job.state == WEFT_QUEUE_COMPLETED;
    weft_queue_job_free(&job);
    if (*variant && strcmp(variant, "video") != 0)
        return weft_serve_error(400, "variant_unsupported", "variant", "the only variant is video");
    return complete ? open_content(r, id)
                    : weft_serve_error(409, "not_completed", NULL, "the video is not completed");
}
