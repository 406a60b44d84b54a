#include "serve/job_create.h"

#include "base/fs.h"
#include "base/kept_error.h"
#include "base/log.h"
#include "serve/job_draft.h"
#include "serve/job_json.h"
#include "serve/job_price.h"
#include "serve/token_limits.h"
#include "serve/videos_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a job of the token has the request id already: the answer is that job, or 409 for another
 * request. */
static bool is_repeated(weft_serve_request *r, const weft_job_draft *d, bool as_job,
                        weft_serve_reply *reply)
{
    weft_queue_job job;
    bool found = false;
    if (!d->terms.request_id[0])
        return false;
    if (weft_queue_store_find_request(r->server->store, r->owner, d->terms.request_id, &job,
                                      &found) != WEFT_OK) {
        *reply = weft_serve_own_error();
        return true;
    }
    if (!found)
        return false;
    *reply = strcmp(job.fingerprint, d->fingerprint) == 0
                 ? weft_videos_answer(r->server, &job, as_job)
                 : weft_serve_error(409, "request_id_conflict", "request_id",
                                    "another request has this request_id");
    weft_queue_job_free(&job);
    return true;
}

/* ---- prices --------------------------------------------------------------------------------- */

/* Adds the layout, or the prices by ranks, to a request. */
static void set_layout(const weft_server *s, const weft_job_price *price, json_t *request)
{
    if (price->degrees)
        json_object_set(request, "degrees", price->degrees);
    else if (weft_server_chooses_layouts(s) && *price->layout)
        json_object_set_new(request, "layout", json_string(price->layout));
}

/* The job as the last one of the queue. */
static weft_status predict(weft_serve_request *r, const weft_job_draft *d,
                           const weft_job_price *price, weft_queue_forecast *f)
{
    weft_server *s = r->server;
    const weft_queue_view *queue;
    const weft_queue_entry last = {.number = INT64_MAX,
                                   .priority = d->terms.priority,
                                   .seconds = price->seconds,
                                   .rank = INT64_MAX,
                                   .arrival = weft_server_time(),
                                   .deadline = d->terms.deadline,
                                   .steps =
                                       json_integer_value(json_object_get(d->request, "steps"))};
    weft_elastic_size size;
    WEFT_TRY(weft_server_queue(s, &queue));
    WEFT_TRY(weft_job_price_size(s, price, d->request, &size));
    return weft_queue_view_predict(queue, &last, r->owner ? r->owner : "", &size, f);
}

/* The place that the job would have in the queue. */
static weft_serve_reply answer_price(weft_serve_request *r, const weft_job_draft *d,
                                     const weft_job_price *price)
{
    weft_queue_forecast f;
    if (predict(r, d, price, &f) != WEFT_OK)
        return weft_serve_own_error();
    json_t *json =
        json_pack("{s:s, s:f, s:I, s:I, s:f, s:O}", "object", "price", "seconds", price->seconds,
                  "bytes", (json_int_t)price->bytes, "queue_position", (json_int_t)f.position,
                  "expected_start", f.likely.start, "request", d->request);
    if (json) {
        weft_video_request_show(d->request);
        set_layout(r->server, price, json);
        weft_job_json_add_end(json, &f, d->terms.deadline);
    }
    return weft_serve_json(200, json);
}

/* ---- new jobs ------------------------------------------------------------------------------- */

/* Copies the values that a draft determines. */
static weft_status copy_draft(const weft_job_draft *d, weft_queue_job *job)
{
    char *text = json_dumps(d->request, JSON_COMPACT);
    weft_free(job->request);
    weft_free(job->webhook);
    job->request = text ? weft_strdup(text) : NULL;
    job->webhook = d->terms.webhook[0] ? weft_strdup(d->terms.webhook) : NULL;
    free(text);
    job->priority = d->terms.priority;
    job->deadline = d->terms.deadline;
    return WEFT_ALLOCATED(job->request && (job->webhook || !d->terms.webhook[0]), "a job");
}

static weft_status fill_job(const weft_serve_request *r, const weft_job_draft *d,
                            const weft_job_price *price, const char *base, weft_queue_job *job)
{
    *job = (weft_queue_job){.created = weft_server_time(),
                            .seconds = price->seconds,
                            .bytes = price->bytes,
                            .fingerprint = weft_strdup(d->fingerprint),
                            .owner = r->owner ? weft_strdup(r->owner) : NULL,
                            .remix_of = base ? weft_strdup(base) : NULL};
    if (d->terms.request_id[0])
        job->request_id = weft_strdup(d->terms.request_id);
    strcpy(job->id, "video_");
    WEFT_TRY(WEFT_ALLOCATED(job->fingerprint && (job->remix_of || !base) &&
                                (job->owner || !r->owner) &&
                                (job->request_id || !d->terms.request_id[0]),
                            "a job"));
    WEFT_TRY(copy_draft(d, job));
    return weft_random_hex(12, job->id + 6);
}

/* A file of the job to vary gets a second name in the folder of the new one. */
static weft_status link_file(const weft_server *s, const char *base, const char *folder,
                             const char *name)
{
    char *other = weft_server_job_folder(s, base),
         *from = other ? weft_path_join(other, name) : NULL, *to = weft_path_join(folder, name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(from && to, "a file"));
    if (link(from, to) != 0)
        WEFT_GO(weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_NOWHERE,
                           "a file of the other job was removed; send it again"));
out:
    weft_free(other);
    weft_free(from);
    weft_free(to);
    return status;
}

/* Removes the files of a job that is not stored. The error stays the one of the request. */
static void drop_files(const weft_server *s, const char *id)
{
    weft_error_copy *cause = weft_error_save();
    char *folder = weft_server_job_folder(s, id);
    if (!folder || (weft_path_exists(folder) && weft_remove_tree(folder) != WEFT_OK))
        weft_warn_error(weft_error_class(), "the next start removes the files");
    weft_free(folder);
    (void)weft_kept_error_return(cause, WEFT_E_IO);
}

/* The files have their names before the job is stored. A kill in between leaves a folder without a
 * job, which the next start removes. */
static weft_status store_files(weft_serve_request *r, const char *id, const weft_job_draft *d,
                               const char *base)
{
    char *folder = weft_server_job_folder(r->server, id);
    WEFT_TRY(WEFT_ALLOCATED(folder, "a job"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_make_dirs(folder));
    for (int i = 0; i < WEFT_INPUTS; i++)
        if (d->files[i])
            WEFT_GO(d->of_base[i] ? link_file(r->server, base, folder, d->files[i])
                                  : weft_upload_store(&r->uploads[i], folder, d->files[i]));
out:
    weft_free(folder);
    if (status != WEFT_OK)
        drop_files(r->server, id);
    return status;
}

static weft_serve_reply add_job(weft_serve_request *r, const weft_job_draft *d,
                                const weft_job_price *price, const weft_create_form *form)
{
    weft_queue_job job = {0};
    const weft_queue_job limited = {.owner = (char *)(uintptr_t)r->owner,
                                    .seconds = price->seconds};
    bool existing;
    weft_serve_reply reply;
    weft_status_code status = WEFT_OK;
    if (weft_token_limits_refuse(r->server, &limited, &reply))
        return reply;
    WEFT_GO(fill_job(r, d, price, form->base, &job));
    if (weft_inputs_of(d->request))
        WEFT_GO(store_files(r, job.id, d, form->base));
    status = weft_queue_store_add(r->server->store, &job, &existing);
    if (status != WEFT_OK)
        drop_files(r->server, job.id);
    WEFT_GO(status);
    reply = weft_videos_answer(r->server, &job, form->as_job);
    weft_server_changed(r->server, job.id);
    weft_server_wake(r->server);
out:
    if (status != WEFT_OK)
        reply = weft_serve_own_error();
    weft_queue_job_free(&job);
    return reply;
}

weft_serve_reply weft_job_create(weft_serve_request *r, const weft_create_form *form)
{
    weft_job_draft d = {0};
    weft_queue_job base = {0};
    weft_serve_reply reply;
    weft_job_price price = {0};
    if (form->base && !weft_videos_find(r, form->base, &base, &reply))
        return reply;
    if (weft_job_draft_read(r, form->base ? &base : NULL, &d) != WEFT_OK)
        reply = weft_serve_own_error();
    else if (!form->only_price && is_repeated(r, &d, form->as_job, &reply))
        ; /* `reply` is set */
    else if (weft_job_price_find(r, d.request, &price, &reply)) {
        if (!form->only_price)
            set_layout(r->server, &price, d.request);
        reply = form->only_price ? answer_price(r, &d, &price) : add_job(r, &d, &price, form);
    }
    json_decref(price.degrees);
    weft_job_draft_free(&d);
    weft_queue_job_free(&base);
    return reply;
}

/* ---- edits ---------------------------------------------------------------------------------- */

static weft_serve_reply store_edit(weft_serve_request *r, weft_queue_job *job,
                                   const weft_job_draft *d)
{
    weft_server *s = r->server;
    if (copy_draft(d, job) != WEFT_OK || weft_queue_store_edit(s->store, job) != WEFT_OK)
        return weft_serve_own_error();
    weft_server_changed(s, job->id);
    return weft_videos_answer(s, job, true);
}

weft_serve_reply weft_job_edit(weft_serve_request *r, const char *id)
{
    weft_job_draft d = {0};
    weft_queue_job job;
    weft_serve_reply reply;
    weft_job_price price = {0};
    if (!weft_videos_find(r, id, &job, &reply))
        return reply;
    if (weft_job_draft_read_changes(r, &job, &d) != WEFT_OK) {
        reply = weft_serve_own_error();
    } else if (json_equal(d.base, d.request)) { /* the price stays */
        json_object_update(d.request, d.layout);
        reply = store_edit(r, &job, &d);
    } else if (weft_job_price_find(r, d.request, &price, &reply)) {
        const bool longer = job.state == WEFT_QUEUE_QUEUED && price.seconds > job.seconds;
        const weft_queue_job limited = {
            .number = job.number, .owner = job.owner, .seconds = price.seconds};
        job.seconds = price.seconds;
        job.bytes = price.bytes;
        set_layout(r->server, &price, d.request);
        if (!longer || !weft_token_limits_refuse(r->server, &limited, &reply))
            reply = store_edit(r, &job, &d);
    }
    json_decref(price.degrees);
    weft_job_draft_free(&d);
    weft_queue_job_free(&job);
    return reply;
}
