#include "curate/curate_embeddings.h"

#include "curate/curate_bucket.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/duplicates/embedding_clusters.h"
#include "curate/embeddings/image_embedder.h"
#include "curate/shot_filter.h"
#include "curate/source_request.h"
#include "curate/worker_pool.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t integer(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

bool weft_curate_embeddings_are_first(const weft_curate_plan *p)
{
    for (int i = 0; p->operators && i < p->operators->count; i++)
        if (p->operators->op[i].kind == WEFT_OPERATOR_AESTHETICS)
            return true;
    return p->config->embeddings.merge > 0;
}

const float *weft_curate_embedding_of(const weft_curate_source *s, const json_t *shot)
{
    return weft_embeddings_find(&s->embeddings, integer(shot, "start"), integer(shot, "end"));
}

/* ---- records ------------------------------------------------------------------------------- */

static weft_embeddings_of identity(const weft_curate_source *s, const char *definition)
{
    return (weft_embeddings_of){definition, s->bytes, s->mtime_ns};
}

weft_status weft_curate_embeddings_load(const weft_curate_plan *p, weft_curate_source *s,
                                        bool begin)
{
    char definition[24];
    weft_buf path = {0};
    weft_embeddings_free(&s->embeddings);
    if (!weft_embeddings_are_on(&p->config->embeddings))
        return WEFT_OK;
    weft_embeddings_define(&p->config->embeddings, definition);
    const weft_embeddings_of of = identity(s, definition);
    weft_buf_printf(&path, "%s/state/%s.embeddings.safetensors", p->out, s->id);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_embeddings_read(path.data, &of, begin, &s->embeddings));
out:
    weft_buf_free(&path);
    return status;
}

/* Whether a shot may be joined with a neighbour: accepted, or only too short. */
static bool can_merge(const json_t *shot)
{
    const char *by =
        json_string_value(json_object_get(json_object_get(shot, "reject"), "operator"));
    return !json_object_get(shot, "gap") && (!by || strcmp(by, "length") == 0);
}

static bool needs_embedding(const weft_curate_plan *p, const json_t *shot)
{
    return !json_object_get(shot, "reject") || (p->config->embeddings.merge > 0 && can_merge(shot));
}

void weft_curate_embeddings_mark(const weft_curate_plan *p, weft_curate_source *s)
{
    size_t k;
    json_t *shot;
    s->unembedded = false;
    if (!weft_embeddings_are_on(&p->config->embeddings) || json_object_get(s->record, "reject"))
        return;
    json_array_foreach(json_object_get(s->record, "shots"), k, shot) s->unembedded |=
        needs_embedding(p, shot) && !json_object_get(shot, "merged") &&
        !weft_embeddings_tried(&s->embeddings, integer(shot, "start"), integer(shot, "end"));
}

/* ---- joined shots -------------------------------------------------------------------------- */

/* Whether shot `b` continues shot `a` without a transition, with the same area, within the limit of
 * the length. */
static bool continues(const weft_curate_plan *p, const json_t *a, const json_t *b)
{
    const double seconds = number(b, "end_seconds") - number(a, "start_seconds");
    return can_merge(a) && can_merge(b) && integer(a, "end") + 1 == integer(b, "start") &&
           seconds <= p->config->clips.max_seconds &&
           json_equal(json_object_get(a, "picture"), json_object_get(b, "picture"));
}

/* Joins the scores of two shots, by their frames. */
static void join_scores(const json_t *a, const json_t *b, json_t *to)
{
    static const char *const names[] = {"motion", "sharpness", "brightness"};
    const double frames[2] = {number(a, "end") - number(a, "start") + 1,
                              number(b, "end") - number(b, "start") + 1};
    const json_t *of[2] = {json_object_get(a, "scores"), json_object_get(b, "scores")};
    json_t *scores = json_object();
    for (int i = 0; i < WEFT_COUNT(names); i++)
        json_object_set_new(
            scores, names[i],
            json_real((frames[0] * number(of[0], names[i]) + frames[1] * number(of[1], names[i])) /
                      (frames[0] + frames[1])));
    json_object_set_new(to, "scores", scores);
}

/* The shot of both; new reference. The hashes of both are adjacent. */
static json_t *join(const json_t *a, const json_t *b)
{
    const json_t *pace[2] = {json_object_get(a, "frame_seconds"),
                             json_object_get(b, "frame_seconds")};
    json_t *shot = json_copy((json_t *)a);
    const int64_t frames = integer(b, "end") - integer(a, "start") + 1;
    const double seconds = number(b, "end_seconds") - number(a, "start_seconds");
    if (!shot)
        return NULL;
    json_object_set(shot, "end", json_object_get(b, "end"));
    json_object_set(shot, "end_seconds", json_object_get(b, "end_seconds"));
    json_object_set_new(shot, "fps", json_real(seconds > 0 ? (double)frames / seconds : 0));
    json_object_set_new(shot, "hash_count",
                        json_integer(integer(a, "hash_count") + integer(b, "hash_count")));
    json_object_set_new(shot, "variable_rate",
                        json_boolean(json_is_true(json_object_get(a, "variable_rate")) ||
                                     json_is_true(json_object_get(b, "variable_rate"))));
    json_object_set_new(shot, "frame_seconds",
                        json_pack("[f,f]",
                                  fmin(json_number_value(json_array_get(pace[0], 0)),
                                       json_number_value(json_array_get(pace[1], 0))),
                                  fmax(json_number_value(json_array_get(pace[0], 1)),
                                       json_number_value(json_array_get(pace[1], 1)))));
    const json_t *cut[2] = {json_object_get(a, "trimmed"), json_object_get(b, "trimmed")};
    json_object_del(shot, "trimmed");
    if (cut[0] && cut[1]) /* both ends are cuts of the packets, and none is between */
        json_object_set_new(
            shot, "trimmed",
            json_pack("[O,O]", json_array_get(cut[0], 0), json_array_get(cut[1], 1)));
    const int64_t parts = json_object_get(a, "merged") ? integer(a, "merged") + 1 : 2;
    json_object_set_new(shot, "merged", json_integer(parts));
    join_scores(a, b, shot);
    json_object_del(shot, "reject");
    return shot;
}

/* Stores the embedding of a joined shot: the mean of both by frames. */
static weft_status join_embeddings(weft_curate_source *s, const json_t *a, const json_t *b)
{
    const float *of[2] = {weft_curate_embedding_of(s, a), weft_curate_embedding_of(s, b)};
    const int64_t span[2] = {integer(a, "start"), integer(b, "end")}, width = s->embeddings.width;
    const double n = number(b, "end") - number(a, "start") + 1,
                 share = (number(a, "end") - number(a, "start") + 1) / n;
    float *mean;
    WEFT_TRY(WEFT_NEW(mean, width, "an embedding"));
    for (int64_t i = 0; i < width; i++)
        mean[i] = (float)(share * of[0][i] + (1 - share) * of[1][i]);
    const weft_status_code status = weft_embeddings_add(&s->embeddings, span, mean, width);
    weft_free(mean);
    return status;
}

/* Applies the limits to joined shots. */
static void filter_joined(const weft_curate_plan *p, json_t *shots)
{
    size_t k;
    json_t *shot;
    json_array_foreach(shots, k, shot)
    {
        json_t *reject =
            json_object_get(shot, "merged") ? weft_curate_filter(p->config, shot) : NULL;
        if (reject)
            json_object_set_new(shot, "reject", reject);
    }
}

/* Joins the shots k - 1 and k, in the record and in the embeddings. */
static weft_status join_pair(weft_curate_source *s, json_t *shots, size_t k)
{
    json_t *last = json_array_get(shots, k - 1), *shot = json_array_get(shots, k),
           *both = join(last, shot);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(both, "the curation"));
    WEFT_GO(join_embeddings(s, last, shot));
    json_array_set(shots, k - 1, both);
    json_array_remove(shots, k);
out:
    json_decref(both);
    return status;
}

weft_status weft_curate_embeddings_merge(const weft_curate_plan *p, weft_curate_source *s)
{
    const double least = p->config->embeddings.merge;
    json_t *shots = json_object_get(s->record, "shots"), *before = NULL; /* the last part */
    if (least <= 0 || !weft_embeddings_are_on(&p->config->embeddings) || s->unembedded)
        return WEFT_OK;
    weft_status_code status = WEFT_OK;
    for (size_t k = 0; k < json_array_size(shots);) {
        json_t *shot = json_incref(json_array_get(shots, k)),
               *last = k ? json_array_get(shots, k - 1) : NULL;
        const float *a = before ? weft_curate_embedding_of(s, before) : NULL,
                    *b = weft_curate_embedding_of(s, shot);
        const bool alike = a && b && continues(p, last, shot) &&
                           weft_embedding_cosine(a, b, s->embeddings.width) >= least;
        json_decref(before);
        before = shot;
        if (alike)
            WEFT_GO(join_pair(s, shots, k));
        else
            k++;
    }
    filter_joined(p, shots);
out:
    json_decref(before);
    return status;
}

/* ---- the phase ----------------------------------------------------------------------------- */

typedef struct pass {
    weft_curate_plan *plan;
    weft_curate_source **video;
    int64_t videos, jobs;
    char definition[24];
    weft_image_embedder *embedder; /* of a child; stays open from video to video */
    const weft_heartbeat *heart;   /* in the child */
} pass;

static void beat(void *user)
{
    weft_heartbeat_beat(((const pass *)user)->heart);
}

static weft_status compute(const pass *ps, weft_shot_decoder *frames, const json_t *shot,
                           const float **vector, int64_t *width)
{
    const weft_shot_frames *f;
    WEFT_TRY(weft_shot_decoder_get(frames, shot, ps->plan->config->embeddings.frames,
                                   weft_image_embedder_side(ps->embedder), &f));
    return weft_image_embedder_shot(ps->embedder, f, vector, width);
}

/* One shot; a failure is a part of the file. */
static weft_status embed_shot(pass *ps, weft_curate_source *s, weft_shot_decoder *frames,
                              const json_t *shot)
{
    const int64_t span[2] = {integer(shot, "start"), integer(shot, "end")};
    const float *vector = NULL;
    int64_t width = 0;
    const weft_status_code status = compute(ps, frames, shot, &vector, &width);
    if (status == WEFT_E_MEMORY || status == WEFT_E_TOO_LARGE || status == WEFT_E_CANCELLED ||
        weft_image_embedder_is_refused(ps->embedder))
        return status;
    if (status != WEFT_OK && !s->embeddings.failed[0])
        snprintf(s->embeddings.failed, sizeof s->embeddings.failed, "%.290s", weft_error_text());
    return weft_embeddings_add(&s->embeddings, span, status == WEFT_OK ? vector : NULL, width);
}

static weft_status embed_video(pass *ps, weft_curate_source *s)
{
    weft_buf stem = {0}, folder = {0};
    weft_shot_decoder *frames = NULL;
    size_t k;
    json_t *shot;
    const weft_embeddings_of of = identity(s, ps->definition);
    weft_footage_video v;
    WEFT_TRY(weft_footage_video_open(ps->plan->footage, s->path, beat, ps, &v));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_shot_decoder_open(v.path, ps->plan->config->stall_seconds, beat, ps, &frames));
    json_array_foreach(json_object_get(s->record, "shots"), k, shot)
    {
        beat(ps);
        if (needs_embedding(ps->plan, shot) &&
            !weft_embeddings_tried(&s->embeddings, integer(shot, "start"), integer(shot, "end")))
            WEFT_GO(embed_shot(ps, s, frames, shot));
    }
    weft_buf_printf(&folder, "%s/state", ps->plan->out);
    weft_buf_printf(&stem, "%s.embeddings", s->id);
    WEFT_GO(weft_buf_check(&folder));
    WEFT_GO(weft_buf_check(&stem));
    WEFT_GO(weft_embeddings_write(folder.data, stem.data, &of, &s->embeddings));
    weft_buf_printf(&folder, "/%s.safetensors", stem.data);
    WEFT_GO(weft_buf_check(&folder));
    WEFT_GO(weft_curate_bucket_send(ps->plan, folder.data));
out:
    weft_shot_decoder_close(frames);
    weft_buf_free(&stem);
    weft_buf_free(&folder);
    return weft_footage_video_close(&v, status);
}

static weft_status open_embedder(pass *ps, int threads, const weft_heartbeat *heart)
{
    ps->heart = heart;
    WEFT_TRY(weft_image_embedder_open(&ps->plan->config->embeddings, threads, &ps->embedder));
    weft_heartbeat_loaded(heart);
    return WEFT_OK;
}

/* Job j has the videos j, j + jobs, ...: the model is opened once per job. */
static weft_status_code embed_job(void *context, int64_t job, int threads,
                                  const weft_heartbeat *heart)
{
    pass *ps = context;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(open_embedder(ps, threads, heart));
    for (int64_t i = job; i < ps->videos; i += ps->jobs) {
        const weft_status_code embedded = embed_video(ps, ps->video[i]);
        weft_heartbeat_part(heart);
        WEFT_GO(embedded);
    }
out:
    weft_image_embedder_close(ps->embedder);
    return status;
}

/* The videos of a job for a resident child. */
static weft_status_code describe_job(void *context, int64_t job, json_t **request)
{
    const pass *ps = context;
    json_t *videos = json_array();
    for (int64_t i = job; i < ps->videos; i += ps->jobs)
        json_array_append_new(videos, weft_source_request_make(ps->plan, ps->video[i]));
    *request = json_pack("{s:o}", "videos", videos);
    return WEFT_ALLOCATED(*request, "a request");
}

/* Embeds the videos of a request. The model stays open. */
static weft_status_code serve_job(void *context, const json_t *request, int threads,
                                  const weft_heartbeat *heart)
{
    pass *ps = context;
    size_t i;
    json_t *item;
    if (!ps->embedder)
        WEFT_TRY(open_embedder(ps, threads, heart));
    weft_image_embedder_set_threads(ps->embedder, threads);
    json_array_foreach(json_object_get(request, "videos"), i, item)
    {
        weft_curate_source *s;
        WEFT_TRY(weft_source_request_apply(ps->plan, item, &s));
        WEFT_TRY(embed_video(ps, s));
        weft_heartbeat_part(heart);
    }
    return WEFT_OK;
}

static void part_done(void *context, int64_t job)
{
    pass *ps = context;
    (void)job;
    weft_stage_table_item(ps->plan->stages, false, 1);
}

static void tick(void *context)
{
    weft_stage_table_tick(((const pass *)context)->plan->stages);
}

/* Any failure of a job stops the run: of the config, the server, the machine. */
static weft_status_code job_done(void *context, int64_t job, const weft_pool_outcome *o)
{
    const pass *ps = context;
    (void)job;
    if (o->status == WEFT_OK && !o->signal)
        return WEFT_OK;
    return weft_error(
        o->status == WEFT_E_SPACE        ? WEFT_MSG_DISK_FULL
        : o->status == WEFT_E_PERMISSION ? WEFT_MSG_PERMISSION_DENIED
        : o->status == WEFT_E_MEMORY     ? WEFT_MSG_OUT_OF_MEMORY
        : o->status == WEFT_E_FORMAT     ? WEFT_MSG_MODEL_CONFIG
        : o->status == WEFT_E_IO
            ? (ps->plan->config->embeddings.url[0] ? WEFT_MSG_MODEL_SERVER : WEFT_MSG_FILE_IO)
            : WEFT_MSG_WORKER_FAILED,
        WEFT_NOWHERE, "%s",
        o->message[0] ? o->message
        : o->hung     ? "a worker process of the embeddings made no progress"
                      : "a worker process of the embeddings ended");
}

static weft_status list_videos(pass *ps)
{
    const weft_curate_plan *p = ps->plan;
    for (int64_t i = 0; i < p->sources; i++) /* operators may have rejected shots since */
        if (p->source[i].unembedded)
            weft_curate_embeddings_mark(p, &p->source[i]);
    WEFT_TRY(WEFT_NEW(ps->video, p->sources + 1, "embeddings"));
    for (int64_t i = 0; i < p->sources; i++)
        if (p->source[i].own && p->source[i].record && p->source[i].unembedded)
            ps->video[ps->videos++] = &p->source[i];
    return WEFT_OK;
}

/* Warns of shots without an embedding, after the files were read again. */
static void report_failures(const weft_curate_plan *p)
{
    int64_t failed = 0;
    const char *first = "";
    for (int64_t i = 0; i < p->sources; i++) {
        const weft_curate_source *s = &p->source[i];
        for (int64_t k = 0; k < s->embeddings.count; k++)
            failed += !weft_embeddings_find(&s->embeddings, s->embeddings.span[k][0],
                                            s->embeddings.span[k][1]);
        first = first[0] ? first : s->embeddings.failed;
    }
    if (failed > 0)
        weft_warning(WEFT_MSG_RESULTS_MISSING,
                     WEFT_AT(.file = p->out, .value = first, WEFT_NUMBER(failed)),
                     "%" PRId64 " shots have no embedding; the first reason is: %s", failed, first);
}

weft_status weft_curate_embeddings_run(weft_curate_plan *p, int workers, int64_t memory)
{
    pass ps = {.plan = p};
    weft_status_code status = WEFT_OK;
    if (!weft_embeddings_are_on(&p->config->embeddings))
        return WEFT_OK;
    WEFT_GO(list_videos(&ps));
    if (ps.videos == 0)
        goto out;
    weft_embeddings_define(&p->config->embeddings, ps.definition);
    const int64_t jobs = ps.videos < workers ? ps.videos : workers, videos = ps.videos;
    const weft_pool pool = {.count = jobs,
                            .workers = (int)jobs,
                            .memory = memory,
                            .stall_seconds = p->config->stall_seconds,
                            .context = &ps,
                            .job = embed_job,
                            .done = job_done,
                            .part = part_done,
                            .loaded = &p->loaded,
                            .tick = tick,
                            .residents = p->residents,
                            .describe = describe_job,
                            .serve = serve_job,
                            .threads = workers / (int)jobs};
    ps.jobs = jobs;
    weft_stage_table_begin(p->stages, WEFT_STAGE_EMBED, videos, jobs, (double)videos);
    status = weft_pool_run(&pool);
    weft_stage_table_end(p->stages, -1);
    WEFT_GO(status);
    WEFT_GO(weft_curate_plan_load(p, false));
    report_failures(p);
out:
    weft_free(ps.video);
    return status;
}
