#include "serve/job_draft.h"

#include "base/fs.h"
#include "base/utf8.h"
#include "serve/coarse_rate.h"
#include "serve/request_fields.h"
#include "serve/webhook.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void weft_job_draft_free(weft_job_draft *d)
{
    json_decref(d->fields);
    json_decref(d->base);
    json_decref(d->request);
    json_decref(d->layout);
    *d = (weft_job_draft){0};
}

static weft_status read_files(const weft_serve_request *r, weft_job_draft *d)
{
    for (int i = 0; i < WEFT_INPUTS; i++) {
        if (!r->uploads[i].file)
            continue;
        WEFT_TRY(weft_upload_name(&r->uploads[i], (weft_request_input)i, d->names[i]));
        d->files[i] = d->names[i];
    }
    return WEFT_OK;
}

/* The values of the job to vary. Its files are used where the request has none. */
static weft_status read_base(const weft_queue_job *job, weft_job_draft *d)
{
    d->base = json_loads(job->request, 0, NULL);
    WEFT_TRY(WEFT_ALLOCATED(d->base, "a request"));
    d->layout = weft_job_layout_take(d->base);
    WEFT_TRY(WEFT_ALLOCATED(d->layout, "a request"));
    for (int i = 0; i < WEFT_INPUTS; i++) {
        const char *name = weft_input_of(d->base, (weft_request_input)i);
        if (d->files[i] || !name)
            continue;
        d->files[i] = name;
        d->of_base[i] = true;
    }
    return WEFT_OK;
}

static weft_status read_idempotency_key(const weft_serve_request *r, weft_request_terms *terms)
{
    const char *id = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Idempotency-Key");
    if (id && terms->request_id[0] && strcmp(id, terms->request_id) != 0)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "Idempotency-Key"),
                          "the header differs from the field request_id; remove one of the two");
    if (terms->request_id[0] || !id)
        return WEFT_OK;
    if (strlen(id) > WEFT_REQUEST_ID)
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "Idempotency-Key"),
                          "the value is longer than %d characters", WEFT_REQUEST_ID);
    if (!weft_utf8_valid(id))
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = "Idempotency-Key"),
                          "the value is not UTF-8");
    snprintf(terms->request_id, sizeof terms->request_id, "%s", id);
    return WEFT_OK;
}

/* The server sends requests only to URLs that its operator has chosen. */
static weft_status check_webhook(const weft_serve_options *o, const char *url)
{
    if (!*url || weft_webhook_is_allowed(url, o->webhooks, o->webhook_count))
        return WEFT_OK;
    return weft_request_refuse("webhook", url,
                               "\"%s\" is not below a URL of --webhook of the server", url);
}

/* The rate of the coarse video, whose frames a refined video has at the same times. 0: the file has
 * none. */
static weft_status read_coarse_fps(const weft_serve_request *r, const weft_queue_job *base,
                                   const weft_job_draft *d, double *fps)
{
    const char *name = d->files[WEFT_INPUT_REFINE];
    const weft_server *s = r->server;
    *fps = 0;
    if (!name)
        return WEFT_OK;
    const bool of_base = d->of_base[WEFT_INPUT_REFINE];
    char *folder = of_base ? weft_server_job_folder(s, base->id) : NULL,
         *file = folder ? weft_path_join(folder, name) : NULL;
    const int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : r->uploads[WEFT_INPUT_REFINE].file - 1;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(file || !of_base, "a path"));
    if (fd >= 0)
        status = weft_coarse_rate(s->program, s->state, fd, fps);
    if (fd < 0 || (status != WEFT_OK && weft_error_class() == WEFT_MSG_VIDEO_INPUT))
        status =
            weft_request_refuse("refine", NULL, "the video cannot be decoded; send another file");
out:
    if (file && fd >= 0)
        close(fd);
    weft_free(file);
    weft_free(folder);
    return status;
}

static weft_status read_loras(const weft_server *s, weft_job_draft *d)
{
    const weft_served_model *m = weft_video_request_model(d->request, s->models, s->model_count);
    const weft_adapter_settings usual = {.steps = m->steps,
                                         .guidance = d->files[WEFT_INPUT_REFINE] ? 1 : m->guidance};
    return weft_served_loras_read(&s->loras, d->fields, d->base, &usual, d->request);
}

static weft_status read_fields(weft_serve_request *r, const weft_queue_job *base, weft_job_draft *d)
{
    weft_server *s = r->server;
    double coarse_fps;
    WEFT_TRY(weft_serve_request_fields(r, &d->fields));
    WEFT_TRY(read_files(r, d));
    if (base)
        WEFT_TRY(read_base(base, d));
    WEFT_TRY(read_coarse_fps(r, base, d, &coarse_fps));
    WEFT_TRY(weft_video_request_read(d->fields, d->base, d->files, coarse_fps, s->models,
                                     s->model_count, &d->terms, &d->request));
    WEFT_TRY(read_loras(s, d));
    WEFT_TRY(weft_video_request_read_preview(d->fields, d->base, d->request));
    return check_webhook(s->options, d->terms.webhook);
}

/* Hashes of the files. The fingerprint of a job represents all files that it shares. */
static void append_hashes(const weft_serve_request *r, const weft_queue_job *base,
                          const weft_job_draft *d, weft_buf *out)
{
    bool shared = false;
    for (int i = 0; i < WEFT_INPUTS; i++) {
        shared = shared || d->of_base[i];
        if (!r->uploads[i].file)
            continue;
        const XXH128_hash_t x = XXH3_128bits_digest(r->uploads[i].hash);
        weft_buf_printf(out, "%s%016" PRIx64 "%016" PRIx64, out->len ? " " : "", (uint64_t)x.high64,
                        (uint64_t)x.low64);
    }
    if (shared)
        weft_buf_printf(out, "%s%s", out->len ? " " : "", base->fingerprint);
}

weft_status weft_job_draft_read(weft_serve_request *r, const weft_queue_job *base,
                                weft_job_draft *d)
{
    weft_buf hashes = {0};
    WEFT_TRY(read_fields(r, base, d));
    WEFT_TRY(read_idempotency_key(r, &d->terms));
    append_hashes(r, base, d, &hashes);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&hashes));
    WEFT_GO(
        weft_video_request_fingerprint(d->request, hashes.data ? hashes.data : "", d->fingerprint));
out:
    weft_buf_free(&hashes);
    return status;
}

weft_status weft_job_draft_read_changes(weft_serve_request *r, const weft_queue_job *job,
                                        weft_job_draft *d)
{
    d->terms = (weft_request_terms){.priority = job->priority, .deadline = job->deadline};
    if (job->webhook)
        snprintf(d->terms.webhook, sizeof d->terms.webhook, "%s", job->webhook);
    for (int i = 0; i < WEFT_INPUTS; i++)
        if (r->uploads[i].file)
            return weft_request_refuse(weft_input_kinds[i].field, NULL,
                                       "the files of a job do not change; duplicate the job with "
                                       "another file");
    WEFT_TRY(read_fields(r, job, d));
    if (d->terms.request_id[0])
        return weft_request_refuse("request_id", NULL, "the id of a job does not change");
    if (!weft_queue_can_edit(job->state))
        return weft_error(WEFT_MSG_QUEUE_TRANSITION,
                          WEFT_AT(.value = weft_queue_state_name(job->state)),
                          "the job is %s; only a queued or paused job can be edited",
                          weft_queue_state_name(job->state));
    if (job->started > 0 && !json_equal(d->base, d->request))
        return weft_error(WEFT_MSG_QUEUE_TRANSITION,
                          WEFT_AT(.value = weft_queue_state_name(job->state)),
                          "the job has finished steps, so that only priority, deadline and webhook "
                          "can be edited; duplicate it");
    return WEFT_OK;
}
