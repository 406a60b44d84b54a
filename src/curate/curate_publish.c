/* The lists at the end of a curation: what was kept, what was not and why. */
#include "curate/curate_plan.h"

#include "base/fs.h"
#include "base/memory.h"
#include "base/utf8.h"

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
    if (!text)
        return weft_fail(WEFT_E_MEMORY, "curate: out of memory");
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
    json_decref(meta);
    json_decref(line);
    return status;
}

/* What is missing of a video that was taken. */
static weft_status list_missing(lists *l, const weft_curate_source *s)
{
    const json_t *video = json_object_get(s->record, "video"),
                 *promised = json_object_get(s->record, "promised_seconds");
    const int64_t others = json_integer_value(json_object_get(video, "other_streams"));
    weft_status_code status = WEFT_OK;
    if (promised) {
        json_t *end = json_object_get(video, "seconds");
        json_t *reject =
            weft_curate_reject("truncated", json_real_value(end), json_real_value(promised),
                               "the file ends before the end that it promises");
        if (reject)
            json_object_set_new(reject, "duration_span", json_pack("[O,O]", end, promised));
        status = add_reject(l, s, NULL, reject);
        json_decref(reject);
    }
    if (status == WEFT_OK && others > 0) {
        json_t *reject =
            weft_curate_reject("stream", (double)(others + 1), 1,
                               "further video streams; the one with most pixels was taken");
        status = add_reject(l, s, NULL, reject);
        json_decref(reject);
    }
    return status;
}

static int compare_stems(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *stem_of(const char *name)
{
    char *stem = weft_strdup(name);
    char *dot = stem ? strrchr(stem + (weft_path_base(stem) - stem), '.') : NULL;
    if (dot)
        *dot = 0;
    return stem;
}

/* Why nothing was read from a sidecar; "" where something may have been. */
static void why_unused(const weft_curate_source *s, const weft_names *stems, weft_buf *why)
{
    char *stem = stem_of(s->name), *text = NULL;
    int64_t bytes = 0;
    json_t *json = NULL;
    const bool belongs =
        stem && stems->count &&
        bsearch(&stem, stems->name, (size_t)stems->count, sizeof *stems->name, compare_stems);
    if (!belongs)
        weft_buf_printf(why, "no video of this name beside it");
    else if (strcasecmp(weft_path_extension(s->name), "json") == 0 &&
             weft_json_load(s->path, &json) != WEFT_OK)
        weft_buf_printf(why, "%s", weft_error_message());
    else if (strcasecmp(weft_path_extension(s->name), "json") == 0 && !json_is_object(json))
        weft_buf_printf(why, "is not a JSON object");
    else if (strcasecmp(weft_path_extension(s->name), "txt") == 0 &&
             weft_file_read(s->path, 1 << 20, &text, &bytes) != WEFT_OK)
        weft_buf_printf(why, "%s", weft_error_message());
    else if (text && (!weft_utf8_valid(text) || (int64_t)strlen(text) != bytes))
        weft_buf_printf(why, "is not UTF-8");
    weft_free(stem);
    weft_free(text);
    json_decref(json);
}

/* Sidecars whose caption cannot reach any clip: misnamed, broken. */
static weft_status list_unused_sidecars(lists *l, const weft_curate_plan *p)
{
    weft_names stems = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < p->sources; i++)
        if (p->source[i].kind == WEFT_CURATE_VIDEO) {
            WEFT_GO(
                weft_grow((void **)&stems.name, stems.count, &stems.capacity, sizeof *stems.name));
            if (!(stems.name[stems.count] = stem_of(p->source[i].name))) {
                status = weft_fail(WEFT_E_MEMORY, "curate: out of memory");
                goto out;
            }
            stems.count++;
        }
    if (stems.count)
        qsort(stems.name, (size_t)stems.count, sizeof *stems.name, compare_stems);
    for (int64_t i = 0; i < p->sources; i++) {
        weft_buf why = {0};
        if (p->source[i].kind != WEFT_CURATE_SIDECAR)
            continue;
        why_unused(&p->source[i], &stems, &why);
        if (why.len > 0) {
            json_t *reject = weft_curate_reject("sidecar", 0, 1, why.data);
            status = add_reject(l, &p->source[i], NULL, reject);
            json_decref(reject);
            l->report.sidecars_unused++;
        }
        weft_buf_free(&why);
        if (status != WEFT_OK)
            goto out;
    }
out:
    weft_names_free(&stems);
    return status;
}

/* A meta that no longer fits its plan (a caption was added): the clip itself stays. */
static weft_status refresh_meta(const weft_curate_clip *clip)
{
    json_t *old;
    WEFT_TRY(weft_json_load(clip->meta_path, &old));
    json_t *now = json_deep_copy(clip->meta);
    static const char *const measured[] = {"frames", "fps",       "seconds",   "width",
                                           "height", "framerate", "num_frames"};
    for (int i = 0; i < 7; i++)
        json_object_set(now, measured[i], json_object_get(old, measured[i]));
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
    if (s->kind == WEFT_CURATE_SIDECAR) {
        r->sidecars++;
        return WEFT_OK;
    }
    json_t *reject = NULL;
    weft_status_code status = WEFT_OK;
    if (s->kind == WEFT_CURATE_OTHER) {
        r->other_files++;
        reject = weft_curate_reject("type", 0, 0,
                                    s->why_other ? s->why_other : "not a video, by its name");
    } else {
        r->videos++;
        if (s->same_as) {
            weft_buf reason = {0};
            weft_buf_printf(&reason, "the same bytes as %s", s->same_as);
            reject = weft_curate_reject("duplicate", 1, 1, reason.data ? reason.data : "");
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

static int compare_ids(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

typedef struct id_list {
    const char **id; /* sorted */
    int64_t count;
} id_list;

static bool is_stranger(const char *name, void *user)
{
    const id_list *ids = user;
    char id[256];
    snprintf(id, sizeof id, "%s", name);
    char *dot = strrchr(id, '.');
    if (dot)
        *dot = 0;
    const char *key = id;
    return !ids->count || !bsearch(&key, ids->id, (size_t)ids->count, sizeof *ids->id, compare_ids);
}

/* Clips and metas of an earlier run whose source is gone or whose better copy arrived. */
static weft_status remove_strangers(const weft_curate_plan *p, const char *folder, id_list *ids)
{
    char *dir = weft_path_join(p->out, folder);
    if (!dir)
        return weft_fail(WEFT_E_MEMORY, "curate: out of memory");
    const weft_status_code status = weft_remove_files(dir, is_stranger, ids);
    weft_free(dir);
    return status;
}

static weft_status keep_only_planned(const weft_curate_plan *p)
{
    id_list ids = {0};
    int64_t room = 1;
    for (int64_t i = 0; i < p->sources; i++)
        room += p->source[i].clips;
    ids.id = weft_alloc(room * (int64_t)sizeof *ids.id);
    if (!ids.id)
        return weft_fail(WEFT_E_MEMORY, "curate: out of memory");
    for (int64_t i = 0; i < p->sources; i++)
        for (int64_t k = 0; k < p->source[i].clips; k++)
            ids.id[ids.count++] = p->source[i].clip[k].id;
    if (ids.count)
        qsort(ids.id, (size_t)ids.count, sizeof *ids.id, compare_ids);
    weft_status_code status = remove_strangers(p, "metas", &ids);
    if (status == WEFT_OK)
        status = remove_strangers(p, "clips", &ids);
    weft_free(ids.id);
    return status;
}

static weft_status write_lists(const weft_curate_plan *p, const lists *l)
{
    const weft_curate_report *r = &l->report;
    json_t *summary = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:O}", "files", (json_int_t)r->files,
        "videos", (json_int_t)r->videos, "sidecars", (json_int_t)r->sidecars, "sidecars_unused",
        (json_int_t)r->sidecars_unused, "other_files", (json_int_t)r->other_files,
        "videos_rejected", (json_int_t)r->videos_rejected, "shots", (json_int_t)r->shots,
        "shots_rejected", (json_int_t)r->shots_rejected, "clips", (json_int_t)r->clips,
        "seconds_in", r->seconds_in, "seconds_out", r->seconds_out, "rejects", l->by_operator);
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

weft_status weft_curate_plan_publish(weft_curate_plan *p, weft_curate_report *report)
{
    lists l = {.by_operator = json_object()};
    weft_status_code status = keep_only_planned(p);
    for (int64_t i = 0; status == WEFT_OK && i < p->sources; i++)
        status = list_source(&l, p, &p->source[i]);
    if (status == WEFT_OK)
        status = list_unused_sidecars(&l, p);
    if (status == WEFT_OK)
        status = write_lists(p, &l);
    if (status == WEFT_OK)
        *report = l.report;
    weft_buf_free(&l.manifest);
    weft_buf_free(&l.rejects);
    json_decref(l.by_operator);
    return status;
}
