#include "curate/curate_scores.h"

#include "curate/curate_bucket.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/curate_embeddings.h"
#include "curate/curate_order.h"
#include "curate/operators/aesthetics_head.h"
#include "curate/operators/onnx_model.h"
#include "curate/operators/shot_scorer.h"
#include "curate/source_request.h"
#include "curate/worker_pool.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLE_VIDEOS = 8, SCORES_VERSION = 1 };

/* Scores of an embedding depend on what the embeddings depend on. */
static weft_status define_by_embeddings(const weft_curate_plan *p, weft_operator *op)
{
    char definition[24];
    weft_buf text = {0};
    if (!weft_embeddings_are_on(&p->config->embeddings))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT,
                          WEFT_AT(.key = "embeddings", .value = op->config->name),
                          "the operator '%s' scores embeddings; give embeddings.model, "
                          "embeddings.onnx or embeddings.url",
                          op->config->name);
    weft_embeddings_define(&p->config->embeddings, definition);
    weft_buf_printf(&text, "%s %s", op->definition, definition);
    weft_hex_print(XXH3_64bits(text.data, (size_t)text.len), op->definition);
    weft_buf_free(&text);
    return WEFT_OK;
}

weft_status weft_curate_scores_open(weft_curate_plan *p)
{
    char *library = NULL;
    if (p->config->operators.count == 0)
        return WEFT_OK;
    WEFT_TRY(weft_operator_set_open(&p->config->operators, &p->operators));
    for (int i = 0; i < p->operators->count; i++)
        if (p->operators->op[i].kind == WEFT_OPERATOR_AESTHETICS)
            WEFT_TRY(define_by_embeddings(p, &p->operators->op[i]));
    for (int i = 0; i < p->operators->count; i++)
        if ((p->operators->op[i].kind == WEFT_OPERATOR_ONNX ||
             p->operators->op[i].kind == WEFT_OPERATOR_TEXT) &&
            !library)
            WEFT_TRY(weft_onnx_library_find(&library));
    weft_free(library);
    return weft_curate_order_read(p);
}

void weft_curate_scores_close(weft_curate_plan *p)
{
    weft_operator_set_close(p->operators);
    json_decref(p->prices);
    p->operators = NULL;
    p->prices = NULL;
}

/* ---- records ------------------------------------------------------------------------------- */

static weft_status path_of(const weft_curate_plan *p, const weft_curate_source *s, weft_buf *path)
{
    weft_buf_printf(path, "%s/state/%s.scores.json", p->out, s->id);
    return weft_buf_check(path);
}

/* Scores of the file as it is now. */
static bool is_current(const weft_curate_source *s, const json_t *scores)
{
    return json_integer_value(json_object_get(scores, "version")) == SCORES_VERSION &&
           json_integer_value(json_object_get(scores, "bytes")) == s->bytes &&
           json_integer_value(json_object_get(scores, "mtime_ns")) == s->mtime_ns;
}

static weft_status save_scores(const weft_curate_plan *p, const weft_curate_source *s)
{
    weft_buf path = {0};
    weft_status_code status = WEFT_OK;
    json_object_set_new(s->scores, "version", json_integer(SCORES_VERSION));
    json_object_set_new(s->scores, "bytes", json_integer(s->bytes));
    json_object_set_new(s->scores, "mtime_ns", json_integer(s->mtime_ns));
    WEFT_GO(path_of(p, s, &path));
    WEFT_GO(weft_json_save(path.data, s->scores));
    WEFT_GO(weft_curate_bucket_send(p, path.data));
out:
    weft_buf_free(&path);
    return status;
}

/* Rejects shots by the scores that exist. */
static void judge_shots(const weft_curate_plan *p, weft_curate_source *s)
{
    size_t k;
    json_t *shot;
    s->unscored = false;
    json_array_foreach(json_object_get(s->record, "shots"), k, shot)
    {
        double facts[WEFT_FACTS];
        weft_shot_decision d;
        json_object_del(shot, "cropped"); /* of a record that was saved again */
        if (json_object_get(shot, "reject"))
            continue;
        const json_t *scores = weft_shot_scores_of(s->scores, shot);
        weft_shot_facts(shot, facts);
        weft_operator_set_decide(p->operators, facts, scores, &d);
        json_t *area = weft_operator_set_crop(p->operators, shot, scores);
        if (area)
            json_object_set_new(shot, "cropped", area);
        s->unscored |= d.missing >= 0;
        if (d.by >= 0)
            json_object_set_new(shot, "reject",
                                weft_curate_reject(p->operators->op[d.by].config->name, d.value,
                                                   d.limit, d.reason));
    }
    s->unscored &= !json_object_get(s->record, "reject");
}

weft_status weft_curate_scores_load(const weft_curate_plan *p, weft_curate_source *s, bool begin)
{
    weft_buf path = {0};
    if (!p->operators)
        return WEFT_OK;
    json_decref(s->scores);
    s->scores = NULL;
    WEFT_TRY(path_of(p, s, &path));
    if (weft_path_exists(path.data) && weft_json_load(path.data, &s->scores) != WEFT_OK)
        s->scores = NULL; /* the scores are computed again */
    weft_buf_free(&path);
    if (!is_current(s, s->scores)) {
        json_decref(s->scores);
        s->scores = json_object();
    }
    WEFT_TRY(WEFT_ALLOCATED(s->scores, "the scores of a video"));
    weft_shot_scores_prepare(p->operators, begin, s->scores);
    judge_shots(p, s);
    return WEFT_OK;
}

void weft_curate_scores_add(const weft_curate_plan *p, const weft_curate_source *s,
                            const json_t *shot, json_t *meta)
{
    double facts[WEFT_FACTS];
    if (!p->operators)
        return;
    weft_shot_facts(shot, facts);
    json_object_set_new(
        meta, "operator_scores",
        weft_operator_set_scores(p->operators, facts, weft_shot_scores_of(s->scores, shot)));
}

/* ---- the phase ----------------------------------------------------------------------------- */

/* Videos of one pass. Each job scores its share, one video after the other, so that processes and
 * models of operators start once per job. */
typedef struct pass {
    weft_curate_plan *plan;
    weft_curate_source **video; /* videos of job j: first[j] .. first[j + 1] - 1 */
    int64_t *first, *finished;  /* per job */
    weft_pool_outcome *outcome;
    int64_t jobs, videos;
    bool all;
    const weft_heartbeat *heart;      /* in the child, and so below */
    const weft_curate_source *source; /* whose shots are scored */
    weft_shot_scorer *scorer;
    weft_footage_video opened; /* the source's file, once frames are needed */
    int64_t loads;             /* of the scorer, that the parent knows */
} pass;

static void beat(void *user)
{
    weft_heartbeat_beat(((const pass *)user)->heart);
}

static const float *embedding_of(void *user, const json_t *shot, int64_t *width)
{
    const weft_curate_source *s = ((const pass *)user)->source;
    *width = s->embeddings.width;
    return weft_curate_embedding_of(s, shot);
}

static weft_status_code locate(void *user, const char **path)
{
    pass *ps = user;
    if (!ps->opened.path)
        WEFT_TRY(
            weft_footage_video_open(ps->plan->footage, ps->source->path, beat, ps, &ps->opened));
    *path = ps->opened.path;
    return WEFT_OK;
}

static weft_status open_scorer(pass *ps, const weft_heartbeat *heart)
{
    const weft_shot_scorer_options o = {.stall_seconds = ps->plan->config->stall_seconds,
                                        .all = ps->all,
                                        .beat = beat,
                                        .user = ps,
                                        .locate = locate,
                                        .embedding = embedding_of};
    ps->heart = heart;
    ps->loads = 0;
    return weft_shot_scorer_open(ps->plan->operators, &o, &ps->scorer);
}

static weft_status score_video(pass *ps, weft_curate_source *s)
{
    ps->source = s;
    const weft_status_code status = weft_footage_video_close(
        &ps->opened, weft_shot_scorer_video(ps->scorer, s->path, s->name, s->record, s->scores));
    for (; ps->loads < weft_shot_scorer_loads(ps->scorer); ps->loads++)
        weft_heartbeat_loaded(ps->heart);
    WEFT_TRY(status);
    WEFT_TRY(save_scores(ps->plan, s));
    weft_heartbeat_part(ps->heart);
    return WEFT_OK;
}

static weft_status_code score_job(void *context, int64_t job, int threads,
                                  const weft_heartbeat *heart)
{
    pass *ps = context;
    weft_status_code status = WEFT_OK;
    (void)threads;
    WEFT_TRY(open_scorer(ps, heart));
    for (int64_t i = ps->first[job]; i < ps->first[job + 1]; i++)
        WEFT_GO(score_video(ps, ps->video[i]));
out:
    weft_shot_scorer_close(ps->scorer);
    return status;
}

/* The videos of a job for a resident child, with the order of the operators. */
static weft_status_code describe_job(void *context, int64_t job, json_t **request)
{
    const pass *ps = context;
    const weft_operator_set *set = ps->plan->operators;
    json_t *videos = json_array(), *order = json_array();
    for (int64_t i = ps->first[job]; i < ps->first[job + 1]; i++)
        json_array_append_new(videos, weft_source_request_make(ps->plan, ps->video[i]));
    for (int i = 0; i < set->count; i++)
        json_array_append_new(order, json_integer(set->order[i]));
    *request = json_pack("{s:b,s:o,s:o}", "all", ps->all, "order", order, "videos", videos);
    return WEFT_ALLOCATED(*request, "a request");
}

/* Scores the videos of a request. The scorer stays open. */
static weft_status_code serve_job(void *context, const json_t *request, int threads,
                                  const weft_heartbeat *heart)
{
    pass *ps = context;
    size_t i;
    json_t *item;
    (void)threads;
    if (!ps->scorer)
        WEFT_TRY(open_scorer(ps, heart));
    weft_shot_scorer_set_all(ps->scorer, json_is_true(json_object_get(request, "all")));
    json_array_foreach(json_object_get(request, "order"), i, item) ps->plan->operators->order[i] =
        (int)json_integer_value(item);
    json_array_foreach(json_object_get(request, "videos"), i, item)
    {
        weft_curate_source *s;
        WEFT_TRY(weft_source_request_apply(ps->plan, item, &s));
        WEFT_TRY(score_video(ps, s));
    }
    return WEFT_OK;
}

static void part_done(void *context, int64_t job)
{
    pass *ps = context;
    ps->finished[job]++;
    weft_stage_table_item(ps->plan->stages, false, 1);
}

static void tick(void *context)
{
    weft_stage_table_tick(((const pass *)context)->plan->stages);
}

static weft_status_code job_done(void *context, int64_t job, const weft_pool_outcome *o)
{
    pass *ps = context;
    ps->outcome[job] = *o;
    if (o->status == WEFT_OK || o->status == WEFT_E_MEMORY || o->status == WEFT_E_TOO_LARGE)
        return WEFT_OK;
    /* a fault of the config or of the machine; the text came through a pipe */
    return weft_error(o->status == WEFT_E_SPACE         ? WEFT_MSG_DISK_FULL
                      : o->status == WEFT_E_PERMISSION  ? WEFT_MSG_PERMISSION_DENIED
                      : o->status == WEFT_E_FORMAT      ? WEFT_MSG_ONNX_MODEL
                      : o->status == WEFT_E_UNSUPPORTED ? WEFT_MSG_LIBRARY_MISSING
                      : o->status == WEFT_E_IO          ? WEFT_MSG_FILE_IO
                                                        : WEFT_MSG_INTERNAL_ERROR,
                      WEFT_NOWHERE, "%s",
                      o->message[0] ? o->message : "a worker process of the operators failed");
}

/* Records why the shots of a video have no scores: its process ended. */
static weft_status fail_video(const pass *ps, weft_curate_source *s, const weft_pool_outcome *o)
{
    char reason[300];
    size_t k;
    json_t *shot;
    const weft_operator_set *set = ps->plan->operators;
    if (o->hung)
        snprintf(reason, sizeof reason, "no progress for too long; the worker was ended");
    else if (o->signal)
        snprintf(reason, sizeof reason, "the worker was killed by signal %d", o->signal);
    else
        snprintf(reason, sizeof reason, "%.280s", o->message);
    json_array_foreach(json_object_get(s->record, "shots"), k, shot)
    {
        json_t *scores = weft_shot_scores_of(s->scores, shot);
        for (int i = 0; i < set->count && !json_object_get(shot, "reject"); i++)
            if (!set->op[i].expression && !json_object_get(scores, set->op[i].config->name))
                json_object_set_new(scores, set->op[i].config->name,
                                    json_pack("{s:s}", "failed", reason));
    }
    return save_scores(ps->plan, s);
}

/* Gives each video to the job with the fewest bytes, largest first. `video` is sorted by job. */
static weft_status share_out(pass *ps)
{
    int64_t *bytes = NULL, *job = NULL;
    weft_curate_source **sorted = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_NEW(bytes, ps->jobs, "the operators"));
    WEFT_GO(WEFT_NEW(job, ps->videos, "the operators"));
    WEFT_GO(WEFT_NEW(sorted, ps->videos, "the operators"));
    for (int64_t i = 0; i < ps->videos; i++) {
        for (int64_t k = 1; k < ps->jobs; k++)
            job[i] = bytes[k] < bytes[job[i]] ? k : job[i];
        bytes[job[i]] += ps->video[i]->bytes + 1;
    }
    for (int64_t k = 0, n = 0; k < ps->jobs; k++) {
        ps->first[k] = n;
        for (int64_t i = 0; i < ps->videos; i++)
            if (job[i] == k)
                sorted[n++] = ps->video[i];
    }
    ps->first[ps->jobs] = ps->videos;
    memcpy(ps->video, sorted, (size_t)ps->videos * sizeof(weft_curate_source *));
out:
    weft_free(bytes);
    weft_free(job);
    weft_free(sorted);
    return status;
}

/* Runs the jobs. The video that a job died of is recorded as failed. */
static weft_status run_pass(pass *ps, int workers, int64_t memory)
{
    weft_status_code status = WEFT_OK;
    ps->jobs = ps->videos < workers ? ps->videos : workers;
    WEFT_GO(WEFT_NEW(ps->first, ps->jobs + 1, "the operators"));
    WEFT_GO(WEFT_NEW(ps->finished, ps->jobs, "the operators"));
    WEFT_GO(WEFT_NEW(ps->outcome, ps->jobs, "the operators"));
    WEFT_GO(share_out(ps));
    const weft_pool pool = {.count = ps->jobs,
                            .workers = (int)ps->jobs,
                            .memory = memory,
                            .stall_seconds = ps->plan->config->stall_seconds,
                            .context = ps,
                            .job = score_job,
                            .done = job_done,
                            .part = part_done,
                            .loaded = &ps->plan->loaded,
                            .tick = tick,
                            .threads = 1,
                            .residents = ps->plan->residents,
                            .describe = describe_job,
                            .serve = serve_job};
    WEFT_GO(weft_pool_run(&pool));
    for (int64_t j = 0; j < ps->jobs; j++) {
        const weft_pool_outcome *o = &ps->outcome[j];
        const int64_t at = ps->first[j] + ps->finished[j];
        if ((o->status != WEFT_OK || o->signal) && at < ps->first[j + 1]) {
            WEFT_GO(fail_video(ps, ps->video[at], o));
            weft_stage_table_item(ps->plan->stages, true, 1);
        }
    }
    for (int64_t i = 0; i < ps->videos; i++)
        WEFT_GO(weft_curate_scores_load(ps->plan, ps->video[i], false));
out:
    weft_free(ps->first);
    weft_free(ps->finished);
    weft_free(ps->outcome);
    ps->first = ps->finished = NULL;
    ps->outcome = NULL;
    return status;
}

static int sampled_first(const void *a, const void *b)
{
    const uint64_t x = (*(weft_curate_source *const *)a)->hash_of_name,
                   y = (*(weft_curate_source *const *)b)->hash_of_name;
    return (x > y) - (x < y);
}

static int larger_first(const void *a, const void *b)
{
    const weft_curate_source *x = *(weft_curate_source *const *)a,
                             *y = *(weft_curate_source *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : strcmp(x->name, y->name);
}

/* Lists this run's videos without scores: a sample by hash while the order is not decided. */
static void list_videos(pass *ps)
{
    weft_curate_plan *p = ps->plan;
    ps->videos = 0;
    for (int64_t i = 0; i < p->sources; i++)
        if (p->source[i].own && p->source[i].record && p->source[i].unscored)
            ps->video[ps->videos++] = &p->source[i];
    ps->all = !p->ordered;
    if (ps->videos == 0)
        return;
    qsort(ps->video, (size_t)ps->videos, sizeof(weft_curate_source *),
          ps->all ? sampled_first : larger_first);
    if (ps->all && ps->videos > SAMPLE_VIDEOS)
        ps->videos = SAMPLE_VIDEOS;
}

static int64_t count_unscored(const weft_curate_plan *p)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->sources; i++)
        count += p->source[i].own && p->source[i].record && p->source[i].unscored;
    return count;
}

/* Checks that the heads fit the embeddings, before a process uses the heads. */
static weft_status check_heads(const weft_curate_plan *p)
{
    for (int64_t k = 0; k < p->sources; k++) {
        const weft_embeddings *e = &p->source[k].embeddings;
        for (int i = 0; i < p->operators->count && e->width > 0; i++) {
            weft_aesthetics_head *head;
            double score;
            if (p->operators->op[i].kind != WEFT_OPERATOR_AESTHETICS)
                continue;
            WEFT_TRY(weft_aesthetics_head_open(p->operators->op[i].config->aesthetics, &head));
            const weft_status_code status =
                weft_aesthetics_head_score(head, e->vector, e->width, &score);
            weft_aesthetics_head_close(head);
            WEFT_TRY(status);
        }
        if (e->width > 0)
            return WEFT_OK;
    }
    return WEFT_OK;
}

weft_status weft_curate_scores_run(weft_curate_plan *p, int workers, int64_t memory, bool final)
{
    pass ps = {.plan = p};
    weft_status_code status = WEFT_OK;
    if (!p->operators)
        return WEFT_OK;
    WEFT_TRY(check_heads(p));
    WEFT_TRY(WEFT_NEW(ps.video, p->sources + 1, "the operators"));
    const int64_t total = count_unscored(p);
    if (total > 0)
        weft_stage_table_begin(p->stages, WEFT_STAGE_SCORE, total,
                               total < workers ? total : workers, (double)total);
    for (int64_t left = total; left > 0;) {
        list_videos(&ps);
        WEFT_GO(run_pass(&ps, workers, memory));
        if (!p->ordered)
            WEFT_GO(weft_curate_order_decide(p, final));
        const int64_t now = count_unscored(p);
        if (now >= left)
            WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = p->out, WEFT_NUMBER(now)),
                               "the operators left %" PRId64 " videos without scores", now));
        left = now;
    }
    if (!p->ordered && final)
        WEFT_GO(weft_curate_order_decide(p, true));
out:
    if (total > 0)
        weft_stage_table_end(p->stages, -1);
    weft_free(ps.video);
    return status;
}
