#include "curate/curate_captions.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/captions/caption_append.h"
#include "curate/captions/caption_client.h"
#include "curate/curate_bucket.h"

#include <pthread.h>
#include <string.h>

static weft_status path_of(const weft_curate_plan *p, const char *id, weft_buf *path)
{
    weft_buf_printf(path, "%s/captions/%s.json", p->out, id);
    return weft_buf_check(path);
}

json_t *weft_curate_captions_read(const weft_curate_plan *p, const char *id)
{
    char definition[24];
    weft_buf path = {0};
    json_t *record = NULL;
    if (!p->config->captions.url[0] || path_of(p, id, &path) != WEFT_OK)
        return NULL;
    if (weft_path_exists(path.data) && weft_json_load(path.data, &record) != WEFT_OK)
        record = NULL; /* requested again */
    weft_buf_free(&path);
    weft_captions_define(&p->config->captions, definition);
    const char *was = json_string_value(json_object_get(record, "definition"));
    if (record && was && strcmp(was, definition) == 0 && json_object_get(record, "caption"))
        return record;
    json_decref(record);
    return NULL;
}

/* The caption of a window, with the texts of captions.append. */
static json_t *window_caption(const weft_curate_plan *p, const json_t *window, const json_t *meta)
{
    weft_buf text = {0};
    const char *caption = json_string_value(json_object_get(window, "caption"));
    weft_buf_printf(&text, "%s", caption ? caption : "");
    weft_caption_append(&p->config->captions, json_object_get(window, "fields"), meta, &text);
    json_t *all = json_string(text.data ? text.data : "");
    weft_buf_free(&text);
    return all;
}

/* The captions of all windows in one text. */
static json_t *join_captions(const json_t *windows)
{
    weft_buf text = {0};
    size_t i;
    const json_t *w;
    json_array_foreach(windows, i, w) weft_buf_printf(
        &text, "%s%s", i ? " " : "", json_string_value(json_object_get(w, "caption")));
    json_t *all = json_string(text.data ? text.data : "");
    weft_buf_free(&text);
    return all;
}

void weft_curate_captions_add(const weft_curate_plan *p, const json_t *record, json_t *meta)
{
    static const char *const members[] = {"start_frame", "end_frame", "caption", "fields"};
    json_t *windows = json_array();
    size_t i;
    const json_t *w, *from = json_object_get(record, "windows");
    json_array_foreach(from, i, w)
    {
        json_t *window = json_object();
        for (int k = 0; k < WEFT_COUNT(members); k++)
            if (json_object_get(w, members[k]))
                json_object_set(window, members[k], json_object_get(w, members[k]));
        json_object_set_new(window, "caption", window_caption(p, w, meta));
        json_array_append_new(windows, window);
    }
    json_object_set_new(meta, "caption", join_captions(windows));
    if (json_array_size(from) == 1 && json_object_get(json_array_get(from, 0), "fields"))
        json_object_set(meta, "caption_fields", json_object_get(json_array_get(from, 0), "fields"));
    json_object_set(meta, "caption_model", json_object_get(record, "model"));
    json_object_set_new(meta, "windows", windows);
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Shared by the threads of a run. */
typedef struct requests {
    const weft_curate_plan *plan;
    weft_caption_client *client;
    const weft_curate_clip **clip; /* borrowed */
    int64_t count;
    pthread_mutex_t lock; /* of the members below */
    int64_t next, made, failed;
    char first_failure[300];
    weft_status_code status; /* of the first thread that stopped the run */
    weft_error_copy *error;  /* owned */
} requests;

/* Frames of the file, which a lower frame rate reduces. */
static int64_t frames_of(const weft_curate_clip *clip)
{
    json_t *meta = NULL;
    int64_t frames = 0;
    if (weft_json_load(clip->meta_path, &meta) == WEFT_OK)
        frames = json_integer_value(json_object_get(meta, "frames"));
    json_decref(meta);
    return frames > 0 ? frames : clip->end - clip->start + 1;
}

static weft_status caption_clip(requests *r, const weft_curate_clip *clip)
{
    const weft_caption_clip c = {
        .path = clip->path, .id = clip->id, .frames = frames_of(clip), .seconds = clip->seconds};
    weft_buf path = {0};
    json_t *record = NULL;
    WEFT_TRY(weft_curate_bucket_fetch_clip(r->plan, clip));
    WEFT_TRY(weft_caption_client_clip(r->client, &c, &record));
    const char *failed = json_string_value(json_object_get(record, "failed"));
    weft_status_code status = WEFT_OK;
    WEFT_GO(path_of(r->plan, clip->id, &path));
    WEFT_GO(weft_json_save(path.data, record));
    WEFT_GO(weft_curate_bucket_send(r->plan, path.data));
    weft_curate_bucket_drop_clip(r->plan, clip);
out:
    pthread_mutex_lock(&r->lock);
    r->made += !failed;
    if (failed && r->failed++ == 0)
        snprintf(r->first_failure, sizeof r->first_failure, "%s", failed);
    weft_stage_table_item(r->plan->stages, failed != NULL, 1);
    pthread_mutex_unlock(&r->lock);
    weft_buf_free(&path);
    json_decref(record);
    return status;
}

static void *caption_clips(void *user)
{
    requests *r = user;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        const weft_curate_clip *clip =
            r->status == WEFT_OK && r->next < r->count ? r->clip[r->next++] : NULL;
        pthread_mutex_unlock(&r->lock);
        const weft_status_code status = clip ? caption_clip(r, clip) : WEFT_OK;
        if (!clip)
            return NULL;
        if (status == WEFT_OK)
            continue;
        pthread_mutex_lock(&r->lock);
        if (r->status == WEFT_OK) {
            r->status = status;
            r->error = weft_error_save();
        }
        pthread_mutex_unlock(&r->lock);
    }
}

/* Runs the threads. */
static weft_status run_threads(requests *r, int64_t count)
{
    pthread_t *thread;
    int64_t started = 0;
    WEFT_TRY(WEFT_NEW(thread, count, "captions"));
    while (started < count && pthread_create(&thread[started], NULL, caption_clips, r) == 0)
        started++;
    for (int64_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    weft_free(thread);
    if (started == 0)
        return weft_error(WEFT_MSG_WORKER_FAILED, WEFT_NOWHERE, "no thread can be created");
    const weft_status_code status = r->status == WEFT_OK ? WEFT_OK : weft_error_restore(r->error);
    weft_free(r->error);
    return status;
}

static bool is_requested(const weft_curate_plan *p, const weft_curate_source *s, const char *id)
{
    size_t i;
    const json_t *name;
    json_array_foreach(p->caption_ids, i,
                       name) if (!strcmp(json_string_value(name), id)) return true;
    return !p->caption_ids && s->own;
}

static weft_status list_clips(requests *r)
{
    int64_t capacity = 0;
    for (int64_t i = 0; i < r->plan->sources; i++) {
        const weft_curate_source *s = &r->plan->source[i];
        for (int64_t k = 0; k < s->clips && (s->own || r->plan->caption_ids); k++) {
            if (json_object_get(s->clip[k].meta, "caption") ||
                !is_requested(r->plan, s, s->clip[k].id))
                continue;
            WEFT_TRY(weft_grow((void **)&r->clip, r->count, &capacity, sizeof *r->clip));
            r->clip[r->count++] = &s->clip[k];
        }
    }
    return WEFT_OK;
}

static void report_requests(const requests *r, weft_curate_report *report)
{
    const weft_caption_counts counts = weft_caption_client_counts(r->client);
    report->captions_made = r->made;
    report->captions_failed = r->failed;
    report->caption_requests = counts.requests;
    report->caption_tokens = counts.tokens;
    if (r->failed > 0)
        weft_warning(WEFT_MSG_RESULTS_MISSING,
                     WEFT_AT(.file = r->plan->out, .value = r->first_failure,
                             WEFT_NUMBER(r->failed),
                             WEFT_DETAILS(WEFT_DETAIL("failed", r->failed),
                                          WEFT_DETAIL("requests", counts.requests))),
                     "%" PRId64 " clips have no caption; the first reason is: %s. captions/ has "
                     "all reasons, and the next run requests these captions again",
                     r->failed, r->first_failure);
}

weft_status weft_curate_captions_run(weft_curate_plan *p, weft_curate_report *report)
{
    const weft_captions_config *c = &p->config->captions;
    requests r = {.plan = p};
    char *folder = NULL;
    weft_status_code status = WEFT_OK;
    if (!c->url[0])
        return WEFT_OK;
    pthread_mutex_init(&r.lock, NULL);
    WEFT_GO(list_clips(&r));
    WEFT_GO(WEFT_ALLOCATED((folder = weft_path_join(p->out, "captions")), "captions"));
    WEFT_GO(weft_make_dirs(folder));
    if (r.count == 0)
        goto out;
    WEFT_GO(weft_caption_client_open(c, &r.client));
    const int64_t threads = c->concurrency < r.count ? c->concurrency : r.count;
    weft_stage_table_begin(p->stages, WEFT_STAGE_CAPTION, r.count, threads, (double)r.count);
    status = run_threads(&r, threads);
    weft_stage_table_end(p->stages, -1);
    WEFT_GO(status);
    report_requests(&r, report);
out:
    weft_caption_client_close(r.client);
    pthread_mutex_destroy(&r.lock);
    weft_free(r.clip);
    weft_free(folder);
    return status;
}
