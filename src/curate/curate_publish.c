/* Lists at the end of a curation: selected clips, rejects and reasons. */
#include "curate/curate_publish.h"

#include "curate/curate_bucket.h"
#include "curate/curate_clusters.h"
#include "curate/curate_order.h"
#include "curate/curate_plan.h"

#include "base/compare.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory.h"
#include "curate/analyse.h"
#include "curate/caption_tables.h"
#include "curate/clips.h"
#include "curate/sidecar.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct lists {
    weft_buf manifest, rejects;
    json_t *by_operator; /* counts of rejected videos and shots */
    weft_curate_report report;
} lists;

static weft_status append_line(weft_buf *to, const json_t *line)
{
    char *text = line ? weft_json_line(line) : NULL;
    WEFT_TRY(WEFT_ALLOCATED(text, "the curation"));
    weft_buf_printf(to, "%s\n", text);
    weft_free(text);
    return weft_buf_check(to);
}

static weft_status add_reject(lists *l, const weft_curate_source *s, const json_t *shot,
                              json_t *reject)
{
    json_t *line = json_pack("{s:s}", "source", s->name);
    const char *name = json_string_value(json_object_get(reject, "operator"));
    if (line && shot) {
        json_object_set_new(
            line, "frame_span",
            json_pack("[O,O]", json_object_get(shot, "start"), json_object_get(shot, "end")));
        json_object_set_new(line, "duration_span",
                            json_pack("[O,O]", json_object_get(shot, "start_seconds"),
                                      json_object_get(shot, "end_seconds")));
    }
    if (line)
        json_object_update(line, reject);
    const weft_status_code status = append_line(&l->rejects, line);
    json_decref(line);
    if (name)
        json_object_set_new(
            l->by_operator, name,
            json_integer(json_integer_value(json_object_get(l->by_operator, name)) + 1));
    return status;
}

static weft_status list_clip(lists *l, const weft_curate_plan *p, const weft_curate_clip *clip)
{
    json_t *meta, *line;
    (void)p;
    WEFT_TRY(weft_json_load(clip->meta_path, &meta)); /* as written, with the clip's size */
    weft_buf path = {0};
    weft_buf_printf(&path, "clips/%s.mp4", clip->id);
    line = json_pack("{s:s,s:s}", "id", clip->id, "clip", path.data ? path.data : "");
    weft_buf_free(&path);
    if (line)
        json_object_update(line, meta);
    const weft_status_code status = append_line(&l->manifest, line);
    const json_t *span = json_object_get(meta, "duration_span");
    l->report.seconds_out +=
        json_real_value(json_array_get(span, 1)) - json_real_value(json_array_get(span, 0));
    l->report.clips++;
    l->report.clips_without_caption += !json_object_get(meta, "caption");
    json_decref(meta);
    json_decref(line);
    return status;
}

/* Lists a reject of a whole video and releases the reject. */
static weft_status add_own_reject(lists *l, const weft_curate_source *s, json_t *reject)
{
    const weft_status_code status = add_reject(l, s, NULL, reject);
    json_decref(reject);
    return status;
}

/* Lists the missing spans of an accepted video. */
static weft_status list_missing(lists *l, const weft_curate_source *s)
{
    const json_t *video = json_object_get(s->record, "video"),
                 *promised = json_object_get(s->record, "promised_seconds");
    const int64_t others = json_integer_value(json_object_get(video, "other_streams"));
    if (promised) {
        json_t *end = json_object_get(video, "seconds");
        json_t *reject =
            weft_curate_reject("truncated", json_real_value(end), json_real_value(promised),
                               "the file ends before the end that it promises");
        if (reject)
            json_object_set_new(reject, "duration_span", json_pack("[O,O]", end, promised));
        WEFT_TRY(add_own_reject(l, s, reject));
    }
    size_t k;
    json_t *span;
    json_array_foreach(json_object_get(s->record, "lost"), k, span)
    {
        const double start = json_real_value(json_array_get(span, 0)),
                     end = json_real_value(json_array_get(span, 1));
        json_t *reject =
            weft_curate_reject("missing", end - start, 0,
                               "frames are missing here; the file cannot be read at this point");
        if (reject)
            json_object_set(reject, "duration_span", span);
        WEFT_TRY(add_own_reject(l, s, reject));
    }
    if (others > 0)
        WEFT_TRY(add_own_reject(
            l, s,
            weft_curate_reject("stream", (double)(others + 1), 1,
                               "further video streams; the one with most pixels was used")));
    return WEFT_OK;
}

static char *stem_of(const char *name)
{
    char *stem = weft_strdup(name);
    char *dot = stem ? strrchr(stem + (weft_path_base(stem) - stem), '.') : NULL;
    if (dot)
        *dot = 0;
    return stem;
}

/* Why nothing, or not all, was read from a sidecar; "" where all may have been. */
static void why_unused(const weft_curate_source *s, const weft_names *stems, weft_buf *why)
{
    char *stem = stem_of(s->name);
    const char *path = weft_curate_caption_path(s);
    const bool belongs =
        stem && stems->count &&
        bsearch(&stem, stems->name, (size_t)stems->count, sizeof *stems->name, weft_compare_text);
    weft_sidecar sidecar = {0};
    if (belongs)
        weft_sidecar_read(path, &sidecar);
    else
        weft_buf_printf(why, "no video of this name next to it");
    if (sidecar.why.len > 0) { /* the name in place of the path: results do not depend on --in */
        const size_t length = strlen(path);
        const bool named = !strncmp(sidecar.why.data, path, length);
        weft_buf_printf(why, "%s%s", named ? s->name : "", sidecar.why.data + (named ? length : 0));
    }
    weft_sidecar_free(&sidecar);
    weft_free(stem);
}

static weft_status add_unused(lists *l, const weft_curate_source *s, const weft_buf *why)
{
    json_t *reject = weft_curate_reject("sidecar", 0, 1, why->data);
    const weft_status_code status = add_reject(l, s, NULL, reject);
    json_decref(reject);
    l->report.sidecars_unused++;
    return status;
}

/* Lists an unused file of captions, unless `why` is empty, and releases `why`. */
static weft_status add_if_unused(lists *l, const weft_curate_source *s, weft_buf *why)
{
    const weft_status_code status = why->len > 0 ? add_unused(l, s, why) : WEFT_OK;
    weft_buf_free(why);
    return status;
}

/* Tables with rows whose caption cannot reach any clip. */
static weft_status list_unused_rows(lists *l, const weft_curate_plan *p)
{
    weft_names videos = {0};
    weft_caption_tables tables = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_caption_tables_read(p, &tables));
    for (int64_t i = 0; i < p->sources && tables.tables; i++) {
        if (p->source[i].kind != WEFT_SOURCE_KIND_VIDEO)
            continue;
        WEFT_GO(
            weft_grow((void **)&videos.name, videos.count, &videos.capacity, sizeof *videos.name));
        WEFT_GO(WEFT_ALLOCATED((videos.name[videos.count] = weft_strdup(p->source[i].name)),
                               "the curation"));
        videos.count++;
    }
    if (videos.count)
        qsort(videos.name, (size_t)videos.count, sizeof *videos.name, weft_compare_text);
    for (int64_t i = 0; i < tables.tables; i++) {
        weft_buf why = {0};
        weft_caption_table_why(&tables.table[i], &videos, &why);
        WEFT_GO(add_if_unused(l, tables.table[i].source, &why));
    }
out:
    weft_names_free(&videos);
    weft_caption_tables_free(&tables);
    return status;
}

/* Sidecars whose caption cannot reach any clip: misnamed, broken. */
static weft_status list_unused_sidecars(lists *l, const weft_curate_plan *p)
{
    weft_names stems = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < p->sources; i++)
        if (p->source[i].kind == WEFT_SOURCE_KIND_VIDEO) {
            WEFT_GO(
                weft_grow((void **)&stems.name, stems.count, &stems.capacity, sizeof *stems.name));
            WEFT_GO(WEFT_ALLOCATED((stems.name[stems.count] = stem_of(p->source[i].name)),
                                   "the curation"));
            stems.count++;
        }
    if (stems.count)
        qsort(stems.name, (size_t)stems.count, sizeof *stems.name, weft_compare_text);
    for (int64_t i = 0; i < p->sources; i++) {
        weft_buf why = {0};
        if (p->source[i].kind != WEFT_SOURCE_KIND_SIDECAR)
            continue;
        why_unused(&p->source[i], &stems, &why);
        WEFT_GO(add_if_unused(l, &p->source[i], &why));
    }
out:
    weft_names_free(&stems);
    WEFT_TRY(status);
    return list_unused_rows(l, p);
}

/* A meta that no longer fits its plan (a caption was added): the clip itself stays. */
static weft_status refresh_meta(const weft_curate_clip *clip)
{
    json_t *old;
    WEFT_TRY(weft_json_load(clip->meta_path, &old));
    json_t *now = json_deep_copy(clip->meta);
    static const char *const measured[] = {"frames",    "fps",        "seconds",  "width", "height",
                                           "framerate", "num_frames", "lossless", "sound"};
    for (int i = 0; i < WEFT_COUNT(measured); i++)
        json_object_set(now, measured[i], json_object_get(old, measured[i]));
    weft_curate_fit_window(now);
    weft_status_code status = WEFT_OK;
    if (!json_equal(old, now))
        status = weft_json_save(clip->meta_path, now);
    json_decref(old);
    json_decref(now);
    return status;
}

static weft_status list_source(lists *l, const weft_curate_plan *p, const weft_curate_source *s)
{
    weft_curate_report *r = &l->report;
    r->files++;
    if (s->kind == WEFT_SOURCE_KIND_SIDECAR || s->kind == WEFT_SOURCE_KIND_TABLE) {
        r->sidecars++;
        return WEFT_OK;
    }
    json_t *reject = NULL;
    weft_status_code status = WEFT_OK;
    if (s->kind == WEFT_SOURCE_KIND_OTHER) {
        r->other_files++;
        reject = weft_curate_reject("type", 0, 0,
                                    s->why_other ? s->why_other : weft_source_kind_why(s->name));
    } else {
        r->videos++;
        if (s->same_as) {
            weft_buf reason = {0};
            weft_buf_printf(&reason, "the same bytes as %s", s->same_as);
            reject = weft_curate_reject("duplicate", 1, 1, reason.data ? reason.data : "");
            json_object_set_new(reject, "duplicate_of", json_string(s->same_as));
            weft_buf_free(&reason);
        } else {
            reject = json_incref(json_object_get(s->record, "reject"));
            r->seconds_in +=
                json_real_value(json_object_get(json_object_get(s->record, "video"), "seconds"));
        }
        r->videos_rejected += reject != NULL;
    }
    if (reject) {
        status = add_reject(l, s, NULL, reject);
        json_decref(reject);
        return status;
    }
    size_t k;
    json_t *shot;
    int64_t clip = 0;
    json_array_foreach(json_object_get(s->record, "shots"), k, shot)
    {
        json_t *shot_reject = json_object_get(shot, "reject");
        const bool gap = json_is_true(json_object_get(shot, "gap"));
        r->shots += !gap;
        if (shot_reject) {
            r->shots_rejected += !gap;
            WEFT_TRY(add_reject(l, s, shot, shot_reject));
            continue;
        }
        WEFT_TRY(refresh_meta(&s->clip[clip]));
        WEFT_TRY(list_clip(l, p, &s->clip[clip++]));
    }
    return list_missing(l, s);
}

/* ---- clips of earlier runs ----------------------------------------------------------------- */

/* Removal of clips that are not in the plan. Only clips written by this folder's runs are examined:
 * the last manifest lists them, or state/ has the record of their source. All other files stay. */
typedef struct strays {
    const char **id; /* ids of the plan, sorted */
    int64_t ids;
    json_t *listed;  /* the last manifest's lines, by id */
    json_t *present; /* names of the existing sources */
    json_t *folders; /* folders of the existing sources */
    json_t *looked;  /* ids that were dealt with */
    int64_t foreign, removed, kept;
    char first_foreign[300], first_kept[300];
} strays;

static bool is_planned(const strays *s, const char *id)
{
    return s->ids && bsearch(&id, s->id, (size_t)s->ids, sizeof *s->id, weft_compare_text);
}

static weft_status_code add_listed(void *listed, json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "id"));
    if (id)
        json_object_set(listed, id, line);
    return WEFT_OK;
}

static weft_status read_manifest(const weft_curate_plan *p, json_t *listed)
{
    char *path = weft_path_join(p->out, "manifest.jsonl");
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(path, "the curation"));
    if (weft_path_exists(path))
        status = weft_json_lines(path, add_listed, listed);
    weft_free(path);
    return status;
}

/* "clips/<id>.mp4" in the output folder, for example; false: too long. */
static bool out_path(const weft_curate_plan *p, const char *folder, const char *id, int id_length,
                     const char *extension, char path[1200])
{
    return snprintf(path, 1200, "%s/%s/%.*s.%s", p->out, folder, id_length, id, extension) < 1200;
}

/* A folder that has no file any more is taken for one that is not mounted. */
static bool source_is_out_of_reach(const weft_curate_plan *p, const strays *s, const char *source)
{
    char folder[1200];
    snprintf(folder, sizeof folder, "%.*s", (int)(weft_path_base(source) - source), source);
    return !p->config->forget && !json_object_get(s->present, source) && folder[0] &&
           !json_object_get(s->folders, folder);
}

/* A clip or meta that is not in the plan. */
static weft_status handle_stray(lists *l, weft_curate_plan *p, strays *s, const char *id)
{
    char meta_path[1200], clip_path[1200], state_path[1200];
    const char *dash = strrchr(id, '-');
    json_t *line = json_object_get(s->listed, id), *meta = NULL;
    weft_status_code status = WEFT_OK;
    const bool named = out_path(p, "metas", id, (int)strlen(id), "json", meta_path) &&
                       out_path(p, "clips", id, (int)strlen(id), "mp4", clip_path) &&
                       out_path(p, "state", id, dash ? (int)(dash - id) : 0, "json", state_path);
    bool is_own = named && (line || (dash && weft_path_exists(state_path)));
    if (is_own && weft_path_exists(meta_path) && weft_json_load(meta_path, &meta) != WEFT_OK)
        is_own = false;
    const char *own = json_string_value(json_object_get(meta, "id"));
    if (!is_own || (meta && (!own || strcmp(own, id) != 0))) {
        if (s->foreign++ == 0)
            snprintf(s->first_foreign, sizeof s->first_foreign, "%s", id);
        goto out;
    }
    const char *source = json_string_value(json_object_get(meta ? meta : line, "source_video"));
    if (source && source_is_out_of_reach(p, s, source)) {
        if (s->kept++ == 0)
            snprintf(s->first_kept, sizeof s->first_kept, "%s", source);
        if (line) {
            WEFT_GO(append_line(&l->manifest, line));
            l->report.clips++;
        }
        goto out;
    }
    /* the meta first: a clip without one is in no shard */
    WEFT_GO(weft_curate_bucket_remove(p, meta_path));
    WEFT_GO(weft_curate_bucket_remove(p, clip_path));
    s->removed++;
out:
    json_decref(meta);
    return status;
}

static weft_status handle_folder(lists *l, weft_curate_plan *p, strays *s, const char *folder,
                                 const char *extension)
{
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_curate_bucket_list(p, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *dot = strrchr(names.name[i], '.');
        if (!dot || strcmp(dot + 1, extension) != 0) {
            if (s->foreign++ == 0)
                snprintf(s->first_foreign, sizeof s->first_foreign, "%s/%s", folder, names.name[i]);
            continue;
        }
        *dot = 0;
        if (is_planned(s, names.name[i]) || json_object_get(s->looked, names.name[i]))
            continue;
        json_object_set_new(s->looked, names.name[i], json_true());
        WEFT_GO(handle_stray(l, p, s, names.name[i]));
    }
out:
    weft_names_free(&names);
    return status;
}

static weft_status list_present(const weft_curate_plan *p, strays *s)
{
    int64_t capacity = 1;
    for (int64_t i = 0; i < p->sources; i++)
        capacity += p->source[i].clips;
    s->id = weft_calloc(capacity, sizeof *s->id);
    s->listed = json_object();
    s->present = json_object();
    s->folders = json_object();
    s->looked = json_object();
    if (!s->id || !s->listed || !s->present || !s->folders || !s->looked)
        return weft_no_memory("the curation");
    for (int64_t i = 0; i < p->sources; i++) {
        const char *name = p->source[i].name;
        json_object_set_new(s->present, name, json_true());
        json_object_setn_new(s->folders, name, (size_t)(weft_path_base(name) - name), json_true());
        for (int64_t k = 0; k < p->source[i].clips; k++)
            s->id[s->ids++] = p->source[i].clip[k].id;
    }
    if (s->ids)
        qsort(s->id, (size_t)s->ids, sizeof *s->id, weft_compare_text);
    return read_manifest(p, s->listed);
}

/* Removes clips of earlier runs whose source was removed or has a better copy now. Clips of an
 * unreachable source stay, with their lines in the manifest. */
static weft_status keep_only_planned(lists *l, weft_curate_plan *p)
{
    strays s = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_present(p, &s));
    WEFT_GO(handle_folder(l, p, &s, "metas", "json"));
    WEFT_GO(handle_folder(l, p, &s, "clips", "mp4"));
    if (s.kept)
        weft_warning(WEFT_MSG_FILES_LEFT,
                     WEFT_AT(.file = p->out, .value = s.first_kept, WEFT_NUMBER(s.kept)),
                     "%" PRId64
                     " clips stay although their sources are missing, the first of them %s. "
                     "The folders of the sources were removed or are empty; they may not be "
                     "mounted. --prune-missing removes these clips",
                     s.kept, s.first_kept);
    if (s.foreign)
        weft_warning(WEFT_MSG_FILES_LEFT,
                     WEFT_AT(.file = p->out, .value = s.first_foreign, WEFT_NUMBER(s.foreign)),
                     "%" PRId64
                     " files in clips and metas are not of this folder's runs and stay, the "
                     "first of them %s. weft shard reads every clip that has a meta",
                     s.foreign, s.first_foreign);
out:
    weft_free(s.id);
    json_decref(s.listed);
    json_decref(s.present);
    json_decref(s.folders);
    json_decref(s.looked);
    return status;
}

/* Formats the counts of rejects.jsonl. Counts beyond the capacity are in summary.json only. */
static void describe_rejects(const json_t *by_operator, char *to, size_t size)
{
    const char *name;
    json_t *count;
    size_t used = 0;
    to[0] = 0;
    json_object_foreach((json_t *)by_operator, name, count)
    {
        const int n = snprintf(to + used, size - used, "%s%s %lld", used ? ", " : "", name,
                               json_integer_value(count));
        if (n < 0 || used + (size_t)n >= size) {
            to[used] = 0;
            return;
        }
        used += (size_t)n;
    }
}

static weft_status write_lists(const weft_curate_plan *p, const lists *l)
{
    const weft_curate_report *r = &l->report;
    json_t *summary = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:O}", "files", (json_int_t)r->files,
        "videos", (json_int_t)r->videos, "sidecars", (json_int_t)r->sidecars, "sidecars_unused",
        (json_int_t)r->sidecars_unused, "other_files", (json_int_t)r->other_files,
        "videos_rejected", (json_int_t)r->videos_rejected, "shots", (json_int_t)r->shots,
        "shots_rejected", (json_int_t)r->shots_rejected, "clips", (json_int_t)r->clips,
        "clips_without_caption", (json_int_t)r->clips_without_caption, "seconds_in", r->seconds_in,
        "seconds_out", r->seconds_out, "rejects", l->by_operator);
    weft_buf path = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&path, "%s/manifest.jsonl", p->out);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(weft_file_write_atomic(path.data, l->manifest.data ? l->manifest.data : "",
                                   l->manifest.len));
    weft_buf_free(&path);
    weft_buf_printf(&path, "%s/rejects.jsonl", p->out);
    WEFT_GO(weft_buf_check(&path));
    WEFT_GO(
        weft_file_write_atomic(path.data, l->rejects.data ? l->rejects.data : "", l->rejects.len));
    weft_buf_free(&path);
    weft_buf_printf(&path, "%s/summary.json", p->out);
    WEFT_GO(weft_buf_check(&path));
    status = weft_json_save(path.data, summary);
out:
    weft_buf_free(&path);
    json_decref(summary);
    return status;
}

/* Warns of operators that gave no score for some shots. */
static void warn_of_failures(const weft_curate_plan *p, const json_t *table)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(table, "operators"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const int64_t failed = json_integer_value(json_object_get(row, "failed"));
        if (failed > 0)
            weft_warning(
                WEFT_MSG_RESULTS_MISSING,
                WEFT_AT(.file = p->out, .value = name, WEFT_DETAILS(WEFT_DETAIL("shots", failed))),
                "the operator %s gave no score for %" PRId64
                " shots; the next run scores these shots again",
                name, failed);
    }
}

/* Writes operators.json, or removes the one of a run with operators. */
static weft_status write_operators(weft_curate_plan *p, const json_t *table)
{
    char *path = weft_path_join(p->out, "operators.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the curation"));
    weft_status_code status = WEFT_OK;
    if (table)
        status = weft_json_save(path, table);
    else
        status = weft_curate_bucket_remove(p, path);
    weft_free(path);
    return status;
}

weft_status weft_curate_plan_publish(weft_curate_plan *p, weft_curate_report *report)
{
    lists l = {.by_operator = json_object()};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < p->sources; i++)
        WEFT_GO(list_source(&l, p, &p->source[i]));
    WEFT_GO(keep_only_planned(&l, p));
    WEFT_GO(list_unused_sidecars(&l, p));
    WEFT_GO(write_lists(p, &l));
    l.report.operators = weft_curate_order_table(p);
    *report = l.report;
    warn_of_failures(p, report->operators);
    WEFT_GO(weft_curate_clusters_write(p));
    WEFT_GO(write_operators(p, report->operators));
    status = weft_curate_bucket_publish(p);
out:
    describe_rejects(l.by_operator, report->rejects, sizeof report->rejects);
    weft_buf_free(&l.manifest);
    weft_buf_free(&l.rejects);
    json_decref(l.by_operator);
    return status;
}
