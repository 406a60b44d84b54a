#include "curate/curate.h"

#include "base/config_text.h"
#include "base/fs.h"
#include "base/interrupt.h"
#include "base/location.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/captions/caption_append.h"
#include "curate/captions/caption_client.h"
#include "curate/clips.h"
#include "curate/curate_bucket.h"
#include "curate/curate_captions.h"
#include "curate/curate_config.h"
#include "curate/curate_embeddings.h"
#include "curate/curate_folder.h"
#include "curate/curate_page.h"
#include "curate/curate_plan.h"
#include "curate/curate_publish.h"
#include "curate/curate_scores.h"
#include "curate/shots/shots.h"
#include "curate/worker_pool.h"
#include "video/video_encoder.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run {
    weft_curate_plan plan;
    const weft_curate_config *config;
    int64_t *job; /* source index of each job of the current phase, largest first */
    int64_t jobs;
    int64_t worker_memory; /* bytes that a worker of the current phase can reserve */
    weft_stage_table stages;
} run;

/* ---- settings ------------------------------------------------------------------------------ */

/* The settings that determine the analysis records: all except filters of records and clip
 * encoding. */
static weft_curate_config looking(weft_curate_config c, const weft_curate_config *other)
{
    const double max_seconds = c.clips.max_seconds, within = c.clips.sharpest_within;
    const int cut = c.clips.cut;
    c.workers = 0;
    c.stall_seconds = 60;
    c.worker_memory = 0;
    c.quality = other->quality;
    c.duplicates = other->duplicates;
    c.clips = other->clips;
    c.captions = other->captions;
    c.embeddings = other->embeddings;
    c.operators = other->operators;
    c.operator_order = other->operator_order;
    c.clips.sharpest_within = within;
    c.clips.cut = cut;
    c.clips.max_seconds = max_seconds; /* long shots are split while they are measured */
    return c;
}

/* Checks `old`, the settings of the folder. Other analysis settings would mix two kinds of records
 * and are an error. Other limits select again from the records; clips with other encoding settings
 * are rewritten. */
static weft_status check_looking(const char *out, const weft_curate_config *old,
                                 const weft_curate_config *now)
{
    const weft_curate_config was = looking(*old, now), is = looking(*now, now);
    weft_buf text[2] = {{0}}, changes = {0};
    weft_config_dump(&weft_curate_section, &was, &text[0]);
    weft_config_dump(&weft_curate_section, &is, &text[1]);
    weft_status_code status = weft_buf_check(&text[0]);
    WEFT_GO(status);
    WEFT_GO(weft_buf_check(&text[1]));
    WEFT_GO(weft_config_changes(text[0].data, text[1].data, &changes));
    if (changes.len > 0)
        status = weft_error(WEFT_MSG_CONFIG_CHANGED, WEFT_AT(.file = out),
                            "the footage of this folder was analysed with other settings (%.*s). "
                            "Use another --out, or remove this one.",
                            (int)strcspn(changes.data, "\n"), changes.data);
out:
    weft_buf_free(&text[0]);
    weft_buf_free(&text[1]);
    weft_buf_free(&changes);
    return status;
}

static weft_status fail_version(const char *path, const char *text)
{
    char was[64];
    snprintf(was, sizeof was, "%.*s", (int)strcspn(text, "\n"), text);
    return weft_error(WEFT_MSG_CONFIG_CHANGED,
                      WEFT_AT(.file = path, .key = "version", .value = was),
                      "other machines work here with weft %s, and this is weft " WEFT_VERSION
                      ". Install one version on all machines. After an update of all, run weft "
                      "curate once without --shard, or remove this file.",
                      was);
}

/* Shards and workers of several machines have the version of the first one. The caller has the lock
 * of the settings. */
static weft_status check_version(const weft_curate_plan *p)
{
    static const char own[] = WEFT_VERSION "\n";
    const weft_curate_config *c = p->config;
    char *path = weft_path_join(p->out, "state/version"), *text = NULL;
    int64_t bytes;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "the curation"));
    if (weft_path_exists(path))
        WEFT_GO(weft_file_read(path, 1 << 10, &text, &bytes));
    if (text && strcmp(text, own) != 0 && (c->shards > 0 || c->worker || c->finish))
        WEFT_GO(fail_version(path, text));
    if (!text || strcmp(text, own) != 0)
        WEFT_GO(weft_file_write_atomic(path, own, (int64_t)strlen(own)));
    status = weft_curate_bucket_send(p, path);
out:
    weft_free(path);
    weft_free(text);
    return status;
}

static weft_status check_settings(const weft_curate_plan *p)
{
    const weft_curate_config *config = p->config->given ? p->config->given : p->config;
    const char *out = p->out;
    weft_curate_config key = *config, old;
    key.workers = 0;
    key.stall_seconds = 60;
    key.worker_memory = 0;
    weft_buf text = {0};
    int lock = -1;
    weft_arena *arena = weft_arena_create();
    char *path = weft_path_join(out, "state/config.yaml"), *stored = NULL;
    int64_t bytes = 0;
    weft_status_code status = WEFT_ALLOCATED(path && arena, "the curation");
    WEFT_GO(status);
    weft_config_dump(&weft_curate_section, &key, &text);
    WEFT_GO(weft_buf_check(&text));
    WEFT_GO(weft_curate_lock_settings(out, &lock));
    WEFT_GO(check_version(p));
    if (weft_path_exists(path)) {
        WEFT_GO(weft_file_read(path, 1 << 20, &stored, &bytes));
        WEFT_GO(weft_config_parse_dump(arena, stored, bytes, path, &weft_curate_section, &old));
        WEFT_GO(check_looking(out, &old, config));
    }
    if (!stored || bytes != text.len || memcmp(stored, text.data, (size_t)bytes) != 0)
        WEFT_GO(weft_file_write_atomic(path, text.data, text.len));
    status = weft_curate_bucket_send(p, path);
out:
    if (lock >= 0)
        close(lock);
    weft_free(stored);
    weft_free(path);
    weft_buf_free(&text);
    weft_arena_free(arena);
    return status;
}

static void tick(void *context)
{
    weft_stage_table_tick(&((run *)context)->stages);
}

/* True for signals of a crash that the same video would cause again. */
static bool is_crash(int signal)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS, SIGTRAP};
    for (int i = 0; i < WEFT_COUNT(faults); i++)
        if (signal == faults[i])
            return true;
    return false;
}

/* Reject of a video whose process could not write its record. */
static json_t *reject_of(const weft_pool_outcome *o, const char *operator_name)
{
    char reason[256];
    if (o->hung)
        snprintf(reason, sizeof reason, "no progress for too long; its process was ended");
    else if (o->signal == SIGKILL)
        snprintf(reason, sizeof reason, "its process was killed, perhaps because memory ran out");
    else if (is_crash(o->signal))
        snprintf(reason, sizeof reason, "the decoder crashed (signal %d)", o->signal);
    else
        snprintf(reason, sizeof reason, "its process was ended from outside (signal %d)",
                 o->signal);
    return weft_curate_reject(operator_name, o->hung ? -1 : o->signal, 0, reason);
}

/* True for faults of the machine, which stop the run. A worker has its own memory limit, so a
 * failed allocation is an error of its video. */
static bool stops_the_run(weft_status_code status)
{
    return status == WEFT_E_SPACE || status == WEFT_E_PERMISSION || status == WEFT_E_IO ||
           status == WEFT_E_INTERNAL;
}

static bool is_of_memory(weft_status_code status)
{
    return status == WEFT_E_MEMORY || status == WEFT_E_TOO_LARGE;
}

/* A worker's message without the "PATH: " of its video. */
static const char *without_path(const char *message, const char *path)
{
    const size_t n = strlen(path);
    return strncmp(message, path, n) == 0 && strncmp(message + n, ": ", 2) == 0 ? message + n + 2
                                                                                : message;
}

/* The error of a worker that stops the run. Its text came through a pipe. */
static weft_status_code worker_error(const weft_pool_outcome *o, const char *path)
{
    const weft_message_class kind = o->status == WEFT_E_SPACE        ? WEFT_MSG_DISK_FULL
                                    : o->status == WEFT_E_PERMISSION ? WEFT_MSG_PERMISSION_DENIED
                                    : o->status == WEFT_E_INTERNAL   ? WEFT_MSG_INTERNAL_ERROR
                                    : weft_location_is_remote(o->message) ? WEFT_MSG_STORAGE_REQUEST
                                                                          : WEFT_MSG_FILE_IO;
    const char *text = without_path(o->message, path);
    const bool of_video = text != o->message || !text[0];
    return weft_error(kind, WEFT_AT(.file = of_video ? path : NULL), "%s",
                      text[0] ? text : "the worker process of this video failed");
}

/* The reject of a video whose worker could not allocate memory. */
static json_t *memory_reject(const run *r, const weft_curate_source *s, const char *message)
{
    char limit[32];
    weft_buf reason = {0};
    weft_buf_printf(&reason,
                    "%s. Its worker can reserve %s (worker_memory). If the file is whole, set "
                    "worker_memory higher or workers lower",
                    without_path(message, s->path), weft_format_bytes(r->worker_memory, limit));
    json_t *reject = weft_curate_reject("memory", 0, (double)r->worker_memory,
                                        reason.data ? reason.data : "out of memory");
    weft_buf_free(&reason);
    return reject;
}

static void beat(void *heart)
{
    weft_heartbeat_beat(heart);
}

static weft_status_code analyse_job(void *context, int64_t job, int threads,
                                    const weft_heartbeat *heart)
{
    run *r = context;
    weft_curate_source *s = &r->plan.source[r->job[job]];
    json_t *record;
    weft_curate_parts parts;
    weft_footage_video v;
    WEFT_TRY(weft_footage_video_open(r->plan.footage, s->path, beat, (void *)heart, &v));
    weft_status_code status =
        weft_curate_analyse(v.path, r->config, threads, heart, &record, &parts);
    WEFT_TRY(weft_footage_video_close(&v, status));
    WEFT_GO(weft_curate_parts_save(s, &parts)); /* record last: it implies parts */
    WEFT_GO(weft_curate_state_save(&r->plan, s, record));
out:
    weft_curate_parts_free(&parts);
    json_decref(record);
    return status;
}

static weft_status_code job_done(void *context, int64_t job, const weft_pool_outcome *o)
{
    run *r = context;
    weft_curate_source *s = &r->plan.source[r->job[job]];
    weft_stage_table_item(&r->stages, o->status != WEFT_OK || o->signal, (double)s->bytes + 1);
    if (o->status != WEFT_OK && stops_the_run(o->status))
        return worker_error(o, s->path);
    if (o->status == WEFT_OK && o->signal == 0)
        return WEFT_OK;
    json_t *record = s->record ? json_incref(s->record) : json_object();
    json_object_set_new(record, "reject",
                        o->status == WEFT_OK ? reject_of(o, s->record ? "transcode" : "decode")
                        : is_of_memory(o->status)
                            ? memory_reject(r, s, o->message)
                            : weft_curate_reject("transcode", 0, 0, o->message));
    if (!is_crash(o->signal)) /* the next run may differ */
        json_object_set_new(record, "again", json_true());
    const weft_status_code status = weft_curate_state_save(&r->plan, s, record);
    json_decref(record);
    return status;
}

static weft_status_code clips_job(void *context, int64_t job, int threads,
                                  const weft_heartbeat *heart)
{
    run *r = context;
    const weft_curate_source *s = &r->plan.source[r->job[job]];
    weft_footage_video v;
    WEFT_TRY(weft_footage_video_open(r->plan.footage, s->path, beat, (void *)heart, &v));
    const weft_status_code status =
        weft_curate_write_clips(v.path, s->clip, s->clips, r->config, threads, heart);
    WEFT_TRY(weft_footage_video_close(&v, status));
    return weft_curate_bucket_send_clips(&r->plan, s);
}

static int larger_first(const void *a, const void *b, void *plan)
{
    const weft_curate_plan *p = plan;
    const int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    const int64_t x = p->source[i].bytes, y = p->source[k].bytes;
    return x != y ? (x < y) - (x > y) : (i > k) - (i < k);
}

/* Memory of each of `workers` processes. The machine's memory is not divided into less than 2 GiB:
 * few workers reach their limit at the same time. */
static int64_t worker_memory(const weft_curate_config *config, int workers)
{
    const int64_t machine = weft_memory_machine(), least = (int64_t)2 << 30;
    if (config->worker_memory > 0)
        return config->worker_memory;
    if (machine == INT64_MAX)
        return 0;
    const int64_t all = machine / 5 * 4, share = all / workers;
    return share >= least ? share : all < least ? all : least;
}

static int worker_count(const weft_curate_config *config)
{
    const int64_t workers = config->workers > 0 ? config->workers : sysconf(_SC_NPROCESSORS_ONLN);
    return workers < 1 ? 1 : workers > 256 ? 256 : (int)workers;
}

/* Computes embeddings and runs the operators. `final`: the order of the operators is decided also
 * from few shots. */
static weft_status run_scores(run *r, bool final)
{
    weft_curate_plan *p = &r->plan;
    const int workers = worker_count(r->config);
    const int64_t memory = worker_memory(r->config, workers);
    if (!p->operators && !weft_embeddings_are_on(&r->config->embeddings))
        return WEFT_OK;
    WEFT_TRY(weft_curate_plan_load(p, true));
    if (weft_curate_embeddings_are_first(p))
        WEFT_TRY(weft_curate_embeddings_run(p, workers, memory));
    WEFT_TRY(weft_curate_scores_run(p, workers, memory, final));
    return weft_curate_embeddings_are_first(p) ? WEFT_OK
                                               : weft_curate_embeddings_run(p, workers, memory);
}

/* Runs the jobs of one phase over the sources that `wants` picks. */
static weft_status run_phase(run *r, weft_curate_stage stage,
                             bool (*wants)(const weft_curate_source *),
                             weft_status_code (*job)(void *, int64_t, int, const weft_heartbeat *))
{
    const int workers = worker_count(r->config);
    double bytes = 0;
    r->jobs = 0;
    for (int64_t i = 0; i < r->plan.sources; i++)
        if (wants(&r->plan.source[i])) {
            r->job[r->jobs++] = i;
            bytes += (double)r->plan.source[i].bytes + 1;
        }
    if (r->jobs == 0)
        return WEFT_OK;
    qsort_r(r->job, (size_t)r->jobs, sizeof *r->job, larger_first, &r->plan);
    const int at_once = r->jobs < workers ? (int)r->jobs : workers;
    r->worker_memory = worker_memory(r->config, at_once);
    const weft_pool pool = {.count = r->jobs,
                            .workers = at_once,
                            .memory = r->worker_memory,
                            .stall_seconds = r->config->stall_seconds,
                            .context = r,
                            .job = job,
                            .done = job_done,
                            .tick = tick,
                            .threads = workers / at_once};
    weft_stage_table_begin(&r->stages, stage, r->jobs, at_once, bytes);
    const weft_status_code status = weft_pool_run(&pool);
    weft_stage_table_end(&r->stages, -1);
    return status;
}

static bool wants_analysis(const weft_curate_source *s)
{
    return s->own && weft_curate_lacks_record(s);
}

static bool wants_analysis_or_scores(const weft_curate_source *s)
{
    return wants_analysis(s) || (s->own && (s->unscored || s->unembedded));
}

static bool wants_clips(const weft_curate_source *s)
{
    for (int64_t i = 0; i < s->clips && s->own; i++)
        if (!weft_curate_clip_is_written(&s->clip[i]))
            return true;
    return false;
}

/* Selects the clips of all sources. */
static weft_status choose(run *r)
{
    int64_t shots = 0, clips = 0;
    for (int64_t i = 0; i < r->plan.sources; i++)
        shots += (int64_t)json_array_size(json_object_get(r->plan.source[i].record, "shots"));
    weft_stage_table_begin(&r->stages, WEFT_STAGE_SELECT, shots, shots, 0);
    const weft_status_code status = weft_curate_plan_choose(&r->plan);
    for (int64_t i = 0; i < r->plan.sources; i++)
        clips += r->plan.source[i].clips;
    weft_stage_table_end(&r->stages, clips);
    return status;
}

/* Requests the missing captions, and selects again with the new ones. */
static weft_status caption_clips(run *r, weft_curate_report *report)
{
    if (!r->config->captions.url[0])
        return WEFT_OK;
    WEFT_TRY(weft_curate_captions_run(&r->plan, report));
    r->plan.captioned = true;
    WEFT_TRY(weft_curate_plan_load(&r->plan, false));
    return choose(r);
}

/* Selects from the records and writes clips and lists. */
static weft_status finish(run *r, weft_curate_report *report)
{
    /* A clip that proves unreadable when written changes the selection: select again. */
    for (int round = 0; round < 3; round++) {
        WEFT_TRY(weft_curate_plan_load(&r->plan, false));
        WEFT_TRY(choose(r));
        bool more = false;
        for (int64_t i = 0; i < r->plan.sources; i++)
            more |= wants_clips(&r->plan.source[i]);
        if (!more)
            break;
        WEFT_TRY(run_phase(r, WEFT_STAGE_WRITE, wants_clips, clips_job));
    }
    weft_curate_report captions = {0};
    WEFT_TRY(caption_clips(r, &captions));
    WEFT_TRY(weft_curate_plan_publish(&r->plan, report));
    report->captions_made = captions.captions_made;
    report->captions_failed = captions.captions_failed;
    report->caption_requests = captions.caption_requests;
    report->caption_tokens = captions.caption_tokens;
    return r->config->page ? weft_curate_page_write(&r->plan, report, r->config->page) : WEFT_OK;
}

/* Requires the records of all videos. */
static weft_status check_records(const weft_curate_plan *p)
{
    weft_curate_remaining remaining;
    weft_curate_plan_remaining(p, &remaining);
    if (remaining.videos == 0)
        return WEFT_OK;
    return weft_error(
        WEFT_MSG_CURATION_UNFINISHED,
        WEFT_AT(.file = p->out, .value = remaining.first, WEFT_NUMBER(remaining.videos)),
        "%" PRId64 " videos are not analysed yet, the first of them %s. Run the "
        "remaining shards with `weft curate --shard I/N`, then --finish again.",
        remaining.videos, remaining.first);
}

/* Analyses the videos of one shard. When the records of all shards exist, it also writes the clips
 * of its videos, so that the last pass has little to do. */
static weft_status run_shard(run *r, weft_curate_report *report)
{
    weft_curate_plan *p = &r->plan;
    weft_curate_remaining *remaining = &report->remaining;
    WEFT_TRY(weft_curate_plan_load(p, true));
    WEFT_TRY(run_phase(r, WEFT_STAGE_ANALYSE, wants_analysis, analyse_job));
    WEFT_TRY(run_scores(r, true));
    WEFT_TRY(weft_curate_bucket_pull(p));
    WEFT_TRY(weft_curate_plan_load(p, false));
    weft_curate_plan_remaining(p, remaining);
    for (int64_t i = 0; i < p->sources; i++)
        report->videos += p->source[i].own && p->source[i].kind == WEFT_SOURCE_KIND_VIDEO;
    if (remaining->videos > 0) {
        weft_notice(
            WEFT_MSG_RUN_FINISHED,
            WEFT_AT(.file = p->out, .value = remaining->first, WEFT_NUMBER(remaining->videos)),
            "%" PRId64 " videos of other shards are not analysed yet", remaining->videos);
        return WEFT_OK;
    }
    WEFT_TRY(choose(r));
    for (int64_t i = 0; i < p->sources; i++)
        report->clips += p->source[i].own ? p->source[i].clips : 0;
    WEFT_TRY(run_phase(r, WEFT_STAGE_WRITE, wants_clips, clips_job));
    return weft_curate_captions_run(p, report);
}

static weft_status run_all(run *r, weft_curate_report *report)
{
    WEFT_TRY(weft_curate_plan_scan(&r->plan));
    WEFT_TRY(WEFT_NEW(r->job, r->plan.sources + 1, "the curation"));
    if (r->config->shards > 0)
        return run_shard(r, report);
    WEFT_TRY(weft_curate_plan_load(&r->plan, !r->config->finish));
    if (r->config->finish)
        WEFT_TRY(check_records(&r->plan));
    else
        WEFT_TRY(run_phase(r, WEFT_STAGE_ANALYSE, wants_analysis, analyse_job));
    if (!r->config->finish)
        WEFT_TRY(run_scores(r, true));
    else if (r->plan.operators) /* scores nothing; decides the order */
        WEFT_TRY(weft_curate_scores_run(&r->plan, 1, 0, true));
    return finish(r, report);
}

/* Checks that the detector's weights exist before the first video is analysed. Uses one thread:
 * workers are forks, and threads of this process do not exist in them. */
static weft_status check_detector(const weft_curate_config *config)
{
    const weft_shot_options options = {.method = (weft_shot_method)config->shots.method,
                                       .weights = config->shots.weights,
                                       .threshold = config->shots.threshold,
                                       .threads = 1};
    weft_shot_detector *detector;
    WEFT_TRY(weft_shot_detector_create(&options, &detector));
    weft_shot_detector_free(detector);
    return WEFT_OK;
}

/* Length without slashes at the end. */
static size_t location_length(const char *location)
{
    size_t length = strlen(location);
    while (length > 0 && location[length - 1] == '/')
        length--;
    return length;
}

static weft_status refuse_same(const weft_curate_plan *p)
{
    return weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.file = p->location, .key = "--out"),
                      "this is also the folder of the footage; give another one");
}

/* Opens the output folder, which must not be the footage. */
static weft_status open_out(weft_curate_plan *p)
{
    char in_real[PATH_MAX], out_real[PATH_MAX];
    const size_t length = location_length(p->in);
    if (length == location_length(p->location) && !memcmp(p->in, p->location, length))
        return refuse_same(p);
    WEFT_TRY(weft_curate_bucket_open(p));
    WEFT_TRY(weft_make_dirs(p->out));
    return realpath(p->in, in_real) && realpath(p->out, out_real) && !strcmp(in_real, out_real)
               ? refuse_same(p)
               : WEFT_OK;
}

/* Checks the folders and settings of a run, and locks the output folder. */
static weft_status enter(weft_curate_plan *plan, weft_curate_locks *locks)
{
    const char *in = plan->in;
    const weft_curate_config *config = plan->config;
    if (!weft_location_is_remote(in) && !weft_path_is_dir(in))
        return weft_error(WEFT_MSG_FOOTAGE_NOT_FOUND, WEFT_AT(.file = in), "%s",
                          weft_path_exists(in)
                              ? "this is not a folder; give the folder of the source videos"
                              : "the folder does not exist");
    WEFT_TRY(weft_video_encoder_check(config->clips.encoder, (int)config->clips.crf,
                                      config->clips.preset, "clips.encoder"));
    if (config->clips.cut == WEFT_CUT_KEY_FRAMES && config->clips.sharpest_within > 0)
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = "clips.cut"),
                          "clips that begin at key frames cannot begin at the sharpest frame; "
                          "remove clips.cut or clips.sharpest_within");
    WEFT_TRY(weft_captions_check(&config->captions));
    WEFT_TRY(weft_embeddings_check(&config->embeddings));
    if (weft_location_is_remote(plan->location))
        WEFT_TRY(open_out(plan)); /* has the order of the operators */
    WEFT_TRY(weft_curate_scores_open(plan));
    WEFT_TRY(weft_caption_append_check(&config->captions,
                                       plan->operators ? plan->operators->names + WEFT_FACTS : NULL,
                                       plan->operators ? plan->operators->count : 0));
    WEFT_TRY(check_detector(config));
    if (!plan->bucket)
        WEFT_TRY(open_out(plan));
    WEFT_TRY(weft_curate_locks_take(plan->out, config, locks));
    WEFT_TRY(weft_curate_remove_temporaries(plan->out, config));
    return check_settings(plan);
}

/* Marks the stages that this run can have. */
static void list_stages(run *r)
{
    const weft_curate_config *c = r->config;
    const bool used[WEFT_CURATE_STAGES] = {
        [WEFT_STAGE_ANALYSE] = !c->finish,
        [WEFT_STAGE_EMBED] = !c->finish && weft_embeddings_are_on(&c->embeddings),
        [WEFT_STAGE_SCORE] = !c->finish && r->plan.operators,
        [WEFT_STAGE_SELECT] = true,
        [WEFT_STAGE_WRITE] = true,
        [WEFT_STAGE_CAPTION] = c->captions.url[0] != 0,
    };
    for (int i = 0; i < WEFT_CURATE_STAGES; i++)
        r->stages.stage[i].used = used[i];
}

static weft_status run_once(const char *in, const char *out, const weft_curate_config *config,
                            weft_curate_report *report)
{
    run r = {.config = config, .plan = {.in = in, .location = out, .out = out, .config = config}};
    weft_curate_locks locks = {-1, -1};
    weft_metrics_server *metrics = NULL;
    weft_status_code status = WEFT_OK;
    *report = (weft_curate_report){0};
    r.plan.stages = &r.stages;
    weft_stage_table_init(&r.stages, NULL);
    WEFT_GO(enter(&r.plan, &locks));
    if (config->metrics)
        WEFT_GO(weft_metrics_server_open(config->metrics, &metrics));
    weft_stage_table_init(&r.stages, metrics);
    list_stages(&r);
    status = run_all(&r, report);
out:
    weft_stage_table_close(&r.stages);
    weft_metrics_server_close(metrics);
    if (status != WEFT_OK && locks.folder >= 0) /* of stopped workers; the first error stays */
        (void)!weft_curate_remove_temporaries(r.plan.out, config);
    weft_curate_plan_free(&r.plan);
    weft_free(r.job);
    weft_curate_locks_release(&locks);
    weft_curate_bucket_close(&r.plan);
    return status;
}

/* A shard that meets an owner which began after it ends, as files that it sends later could be
 * outdated. With --wait it begins again: it waits for the owner, and sees the owner's results. */
weft_status weft_curate_run(const char *in, const char *out, const weft_curate_config *config,
                            weft_curate_report *report)
{
    for (;;) {
        const weft_status_code status = run_once(in, out, config, report);
        const bool met = status != WEFT_OK && weft_error_class() == WEFT_MSG_FOLDER_LOCKED;
        if (!met || !config->wait || config->shards == 0 || !weft_location_is_remote(out))
            return status;
        weft_notice(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = out),
                    "another run has taken the output; this shard begins again after its end");
        weft_error_clear();
    }
}

/* ---- one video at a time ------------------------------------------------------------------- */

struct weft_curate_session {
    weft_curate_config config;
    run r;
    weft_curate_locks locks;
    bool chosen; /* the clips of all videos are selected */
};

weft_status weft_curate_session_open(const char *in, const char *out,
                                     const weft_curate_config *config,
                                     weft_curate_session **session)
{
    weft_curate_session *s;
    WEFT_TRY(WEFT_NEW(s, 1, "the curation"));
    s->config = *config;
    s->config.worker = true;
    s->locks = (weft_curate_locks){-1, -1};
    s->r = (run){.config = &s->config,
                 .plan = {.in = in, .location = out, .out = out, .config = &s->config}};
    s->r.plan.stages = &s->r.stages;
    weft_stage_table_init(&s->r.stages, NULL);
    weft_status_code status = WEFT_OK;
    WEFT_GO(enter(&s->r.plan, &s->locks));
    WEFT_GO(weft_pool_residents_open(&s->r.plan.residents));
    WEFT_GO(weft_curate_plan_scan(&s->r.plan));
    WEFT_GO(WEFT_NEW(s->r.job, s->r.plan.sources + 1, "the curation"));
    for (int64_t i = 0; i < s->r.plan.sources; i++)
        s->r.plan.source[i].own = false;
    *session = s;
    return WEFT_OK;
out:
    weft_curate_session_close(s);
    return status;
}

void weft_curate_session_close(weft_curate_session *s)
{
    if (!s)
        return;
    weft_pool_residents_close(s->r.plan.residents);
    weft_curate_plan_free(&s->r.plan);
    weft_free(s->r.job);
    weft_curate_locks_release(&s->locks);
    weft_curate_bucket_close(&s->r.plan);
    weft_free(s);
}

static weft_status find_video(weft_curate_session *s, const char *name, weft_curate_source **video)
{
    for (int64_t i = 0; i < s->r.plan.sources; i++)
        if (s->r.plan.source[i].kind == WEFT_SOURCE_KIND_VIDEO &&
            !strcmp(s->r.plan.source[i].name, name)) {
            *video = &s->r.plan.source[i];
            return WEFT_OK;
        }
    return weft_error(WEFT_MSG_FOOTAGE_NOT_FOUND, WEFT_AT(.file = s->r.plan.in, .value = name),
                      "the footage had no video of this name when the worker started");
}

/* Selects the clips of all videos, if all records exist. */
static weft_status choose_once(weft_curate_session *s)
{
    if (s->chosen)
        return WEFT_OK;
    WEFT_TRY(weft_curate_bucket_pull(&s->r.plan));
    WEFT_TRY(weft_curate_plan_load(&s->r.plan, false));
    WEFT_TRY(check_records(&s->r.plan));
    WEFT_TRY(choose(&s->r));
    s->chosen = true;
    return WEFT_OK;
}

static bool lacks_caption(const weft_curate_source *s, int64_t clip)
{
    return !json_object_get(s->clip[clip].meta, "caption");
}

static bool wants_clips_or_captions(const run *r, const weft_curate_source *s)
{
    bool wants = wants_clips(s);
    for (int64_t i = 0; i < s->clips && r->config->captions.url[0]; i++)
        wants |= lacks_caption(s, i);
    return wants;
}

weft_status weft_curate_session_list(weft_curate_session *s, bool clips, json_t *names,
                                     json_t *stages)
{
    const weft_curate_config *c = &s->config;
    if (!clips)
        WEFT_TRY(weft_curate_bucket_pull(&s->r.plan));
    WEFT_TRY(clips ? choose_once(s) : weft_curate_plan_load(&s->r.plan, false));
    s->r.jobs = 0;
    for (int64_t i = 0; i < s->r.plan.sources; i++) {
        weft_curate_source *source = &s->r.plan.source[i];
        source->own = true;
        if (clips ? wants_clips_or_captions(&s->r, source) : wants_analysis_or_scores(source))
            s->r.job[s->r.jobs++] = i;
        source->own = false;
    }
    qsort_r(s->r.job, (size_t)s->r.jobs, sizeof *s->r.job, larger_first, &s->r.plan);
    for (int64_t i = 0; i < s->r.jobs; i++)
        json_array_append_new(names, json_string(s->r.plan.source[s->r.job[i]].name));
    json_array_append_new(stages, json_string(clips ? "write" : "analyse"));
    if (clips && c->captions.url[0])
        json_array_append_new(stages, json_string("caption"));
    if (!clips && (s->r.plan.operators || weft_embeddings_are_on(&c->embeddings)))
        json_array_append_new(stages, json_string("score"));
    return WEFT_OK;
}

weft_status weft_curate_session_analyse(weft_curate_session *s, const char *name, bool *unscored)
{
    weft_curate_source *video;
    WEFT_TRY(find_video(s, name, &video));
    video->own = true;
    s->chosen = false;
    *unscored = false;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_curate_plan_load(&s->r.plan, true));
    WEFT_GO(run_phase(&s->r, WEFT_STAGE_ANALYSE, wants_analysis, analyse_job));
    WEFT_GO(weft_curate_plan_load(&s->r.plan, true));
    *unscored = video->unscored || video->unembedded;
out:
    video->own = false;
    return status;
}

weft_status weft_curate_session_score(weft_curate_session *s, const json_t *videos, int64_t *loaded)
{
    size_t i;
    json_t *name;
    weft_status_code status = WEFT_OK;
    s->chosen = false;
    s->r.plan.loaded = 0;
    json_array_foreach(videos, i, name)
    {
        weft_curate_source *video = NULL;
        WEFT_GO(find_video(s, json_string_value(name), &video));
        WEFT_GO(weft_curate_bucket_pull_video(&s->r.plan, video));
        video->own = true;
    }
    status = run_scores(&s->r, false);
    *loaded = s->r.plan.loaded;
out:
    for (int64_t k = 0; k < s->r.plan.sources; k++)
        s->r.plan.source[k].own = false;
    return status;
}

weft_status weft_curate_session_write(weft_curate_session *s, const char *name, int64_t *clips,
                                      json_t *uncaptioned)
{
    weft_curate_source *video;
    WEFT_TRY(find_video(s, name, &video));
    WEFT_TRY(choose_once(s));
    video->own = true;
    const weft_status_code status = run_phase(&s->r, WEFT_STAGE_WRITE, wants_clips, clips_job);
    video->own = false;
    *clips = video->clips;
    for (int64_t i = 0; i < video->clips && s->config.captions.url[0]; i++)
        if (lacks_caption(video, i) && weft_curate_clip_is_written(&video->clip[i]))
            json_array_append_new(uncaptioned, json_string(video->clip[i].id));
    return status;
}

weft_status weft_curate_session_caption(weft_curate_session *s, const json_t *clips,
                                        weft_curate_report *report)
{
    WEFT_TRY(choose_once(s));
    s->r.plan.caption_ids = clips;
    const weft_status_code status = weft_curate_captions_run(&s->r.plan, report);
    s->r.plan.caption_ids = NULL;
    return status;
}
