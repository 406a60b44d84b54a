#include "data/shard.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "format/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const weft_key shard_keys[] = {
    {"heldout", WEFT_KEY_F64, offsetof(weft_shard_config, heldout), "0.05", "",
     "share of clips kept from training, for evaluation; unless 0, of two or more at least one",
     .min = 0, .max = 1},
    {"max_samples", WEFT_KEY_I64, offsetof(weft_shard_config, max_samples), "1000", "clips",
     "clips per shard", .min = 1, .max = 1e9},
    {"max_bytes", WEFT_KEY_I64, offsetof(weft_shard_config, max_bytes), "256MiB", "bytes",
     "bytes per shard", .min = 1024, .max = 1e15},
    {"seed", WEFT_KEY_I64, offsetof(weft_shard_config, seed), "0", "", "of the split and the order",
     .min = 0, .max = 9e15},
    {"need_caption", WEFT_KEY_BOOL, offsetof(weft_shard_config, need_caption), "false", "",
     "drop clips without a caption"},
};
const weft_section weft_shard_section = {"shard", "how clips are put into shards",
                                         sizeof(weft_shard_config), shard_keys,
                                         WEFT_COUNT(shard_keys)};

typedef struct clip {
    char *id;      /* owned */
    char *video;   /* path, owned */
    char *meta;    /* path, owned */
    uint64_t rank; /* random place, by id */
    double draw;   /* 0 to 1, of the id */
    bool heldout;
    int64_t bytes;  /* of the video file */
    uint64_t stamp; /* of sizes and times of change of both files */
} clip;

typedef struct job {
    const weft_shard_config *config;
    const char *in, *out;
    clip *clip;
    int64_t count, capacity;
    json_t *shards, *dropped;
    json_t *unnamed; /* dropped before they had a place in a shard */
    weft_shard_report *report;
} job;

static const char *const reasons[WEFT_SHARD_REASONS] = {
    [WEFT_SHARD_WITHOUT_META] = "no metas/<id>.json",
    [WEFT_SHARD_DAMAGED_META] = "metas/<id>.json is damaged",
    [WEFT_SHARD_WITHOUT_CAPTION] = "no caption",
    [WEFT_SHARD_EMPTY] = "the clip is empty",
    [WEFT_SHARD_DOT] = "a dot in the id would end the WebDataset key",
    [WEFT_SHARD_NO_MP4] = "not an .mp4",
};

const char *weft_shard_reason_text(weft_shard_reason reason)
{
    return reasons[reason];
}

static void drop(job *j, const char *id, weft_shard_reason reason, int64_t frames)
{
    json_array_append_new(j->dropped, json_pack("{s:s, s:s, s:I}", "id", id, "reason",
                                                reasons[reason], "frames", (json_int_t)frames));
}

/* Into the report: here, from the list, since shards that are kept bring the list of the run that
 * wrote them. */
static void count_dropped(job *j, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *reason = json_string_value(json_object_get(entry, "reason"));
        for (int r = 0; r < WEFT_SHARD_REASONS && reason; r++)
            if (!strcmp(reason, reasons[r])) {
                j->report->dropped[r]++;
                j->report->dropped_frames[r] +=
                    json_integer_value(json_object_get(entry, "frames"));
            }
    }
}

/* ---- listing ------------------------------------------------------------------------------- */

static char *path_of(const char *root, const char *folder, const char *id, const char *suffix)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf, "%s/%s/%s.%s", root, folder, id, suffix);
    if (buf.failed)
        weft_buf_free(&buf);
    return buf.data;
}

static weft_status add_clip(job *j, const char *id)
{
    WEFT_TRY(weft_grow((void **)&j->clip, j->count, &j->capacity, sizeof *j->clip));
    clip c = {.id = weft_strdup(id),
              .video = path_of(j->in, "clips", id, "mp4"),
              .meta = path_of(j->in, "metas", id, "json")};
    if (!c.id || !c.video || !c.meta)
        return weft_fail(WEFT_E_MEMORY, "out of memory for clip %s", id);
    const uint64_t seed = (uint64_t)j->config->seed;
    c.rank = weft_seed_mix(seed, XXH3_64bits(id, strlen(id)));
    c.draw = (double)weft_random_uniform(seed, WEFT_RNG_SHUFFLE, c.rank);
    c.heldout = c.draw < j->config->heldout;
    j->clip[j->count++] = c;
    return WEFT_OK;
}

static int by_place(const void *a, const void *b)
{
    const clip *x = a, *y = b;
    if (x->heldout != y->heldout)
        return x->heldout ? 1 : -1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Of a few clips chance may hold out none, and then there is nothing to judge by: the next one it
 * would take is held out. */
static void hold_out_one(job *j)
{
    int64_t least = 0;
    for (int64_t i = 0; i < j->count; i++) {
        if (j->clip[i].heldout)
            return;
        least = j->clip[i].draw < j->clip[least].draw ? i : least;
    }
    if (j->count > 1 && j->config->heldout > 0)
        j->clip[least].heldout = true;
}

static weft_status list_clips(job *j)
{
    char *folder = weft_path_join(j->in, "clips");
    weft_names names = {0};
    weft_status_code status =
        folder ? weft_list_dir(folder, false, &names) : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status != WEFT_OK)
        status = weft_fail_context(
            status, "%s is not a folder of curated clips (weft curate makes one)", j->in);
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        char *name = names.name[i];
        const size_t len = strlen(name);
        j->report->clips++;
        if (len < 5 || strcmp(name + len - 4, ".mp4") != 0) {
            drop(j, name, WEFT_SHARD_NO_MP4, 0);
            continue;
        }
        name[len - 4] = '\0';
        if (strchr(name, '.')) {
            drop(j, name, WEFT_SHARD_DOT, 0);
            continue;
        }
        status = add_clip(j, name);
    }
    hold_out_one(j);
    if (j->count > 1)
        qsort(j->clip, (size_t)j->count, sizeof *j->clip, by_place);
    weft_names_free(&names);
    weft_free(folder);
    return status;
}

/* ---- one sample ---------------------------------------------------------------------------- */

typedef struct sample_bytes {
    char *video, *meta;
    int64_t video_bytes, meta_bytes;
    json_t *json;
    const char *caption; /* in json */
} sample_bytes;

static void sample_free(sample_bytes *s)
{
    weft_free(s->video);
    weft_free(s->meta);
    json_decref(s->json);
    *s = (sample_bytes){0};
}

enum { VIDEO_LIMIT = 1 << 30, META_LIMIT = 1 << 24 };

/* *usable is false for a clip that is dropped (and says why in index.json). */
static weft_status sample_read(job *j, const clip *c, sample_bytes *s, bool *usable)
{
    *usable = false;
    weft_status_code status = weft_file_read(c->meta, META_LIMIT, &s->meta, &s->meta_bytes);
    if (status == WEFT_E_NOT_FOUND) {
        drop(j, c->id, WEFT_SHARD_WITHOUT_META, 0);
        return WEFT_OK;
    }
    WEFT_TRY(status);
    if (weft_json_parse(s->meta, s->meta_bytes, c->meta, &s->json) != WEFT_OK ||
        !json_is_object(s->json)) {
        weft_warn("%s; the clip is left out", weft_error_message());
        drop(j, c->id, WEFT_SHARD_DAMAGED_META, 0);
        return WEFT_OK;
    }
    const char *caption = json_string_value(json_object_get(s->json, "caption"));
    s->caption = caption ? caption : "";
    if (j->config->need_caption && !*s->caption) {
        drop(j, c->id, WEFT_SHARD_WITHOUT_CAPTION, weft_meta_frames(s->json));
        return WEFT_OK;
    }
    WEFT_TRY(weft_file_read(c->video, VIDEO_LIMIT, &s->video, &s->video_bytes));
    if (s->video_bytes == 0) {
        drop(j, c->id, WEFT_SHARD_EMPTY, weft_meta_frames(s->json));
        return WEFT_OK;
    }
    *usable = true;
    return WEFT_OK;
}

static weft_status sample_write(weft_tar_writer *tar, const clip *c, const sample_bytes *s)
{
    weft_buf name = {0};
    weft_status_code status = WEFT_OK;
    const struct {
        const char *suffix;
        const void *data;
        int64_t bytes;
    } parts[] = {{"json", s->meta, s->meta_bytes},
                 {"mp4", s->video, s->video_bytes},
                 {"txt", s->caption, (int64_t)strlen(s->caption)}};
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        name.len = 0;
        weft_buf_printf(&name, "%s.%s", c->id, parts[i].suffix);
        status = weft_buf_check(&name);
        if (status == WEFT_OK)
            status = weft_tar_add(tar, name.data, parts[i].data, parts[i].bytes);
    }
    weft_buf_free(&name);
    return status;
}

/* ---- shards -------------------------------------------------------------------------------- */

/* An earlier run's shard counts as done when the note beside it says that it holds the same clips.
 * The note, <shard>.json, is written after the shard; its plan hash covers ids, sizes, times of
 * change and order. */
static uint64_t plan_hash(const job *j, int64_t from, int64_t to)
{
    uint64_t hash = weft_seed_mix((uint64_t)j->config->seed, (uint64_t)j->config->need_caption);
    for (int64_t i = from; i < to; i++) {
        hash = weft_seed_mix(hash, j->clip[i].rank);
        hash = weft_seed_mix(hash, j->clip[i].stamp);
    }
    return hash;
}

static json_t *shard_kept(const char *path, const char *note, uint64_t plan)
{
    json_t *json = NULL;
    if (!weft_path_exists(path) || !weft_path_exists(note) ||
        weft_json_load(note, &json) != WEFT_OK)
        return NULL;
    char text[32];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)plan);
    const char *have = json_string_value(json_object_get(json, "plan"));
    if (have && !strcmp(have, text))
        return json;
    json_decref(json);
    return NULL;
}

static weft_status fill_tar(job *j, weft_tar_writer *tar, int64_t from, int64_t to,
                            int64_t *samples, int64_t *frames, weft_progress *progress)
{
    for (int64_t i = from; i < to; i++) {
        sample_bytes s = {0};
        bool usable;
        weft_status_code status = sample_read(j, &j->clip[i], &s, &usable);
        if (status == WEFT_OK && usable) {
            status = sample_write(tar, &j->clip[i], &s);
            ++*samples;
            *frames += weft_meta_frames(s.json);
        }
        sample_free(&s);
        WEFT_TRY(status);
        weft_progress_update(progress, i + 1, j->clip[i].id);
    }
    return WEFT_OK;
}

static weft_status write_shard(job *j, const char *split, int64_t number, int64_t from, int64_t to,
                               weft_progress *progress)
{
    char file[64];
    snprintf(file, sizeof file, "%s-%06lld.tar", split, (long long)number);
    char *path = weft_path_join(j->out, file);
    weft_tar_writer *tar = NULL;
    weft_status_code status = WEFT_OK;
    weft_buf note_path = {0};
    weft_buf_printf(&note_path, "%s/.%s.json", j->out, file);
    const uint64_t plan = plan_hash(j, from, to);
    json_t *entry = NULL;
    if (!path || note_path.failed) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory for shard %s", file);
        goto out;
    }
    entry = shard_kept(path, note_path.data, plan);
    if (entry) {
        j->report->kept_shards++;
    } else {
        int64_t samples = 0, frames = 0, bytes;
        uint64_t hash;
        char hex[32], plan_hex[32];
        const size_t dropped_before = json_array_size(j->dropped);
        WEFT_GO(weft_tar_create(path, &tar));
        WEFT_GO(fill_tar(j, tar, from, to, &samples, &frames, progress));
        WEFT_GO(weft_tar_finish(tar, &hash, &bytes));
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
        snprintf(plan_hex, sizeof plan_hex, "%016llx", (unsigned long long)plan);
        json_t *dropped = json_array();
        for (size_t i = dropped_before; i < json_array_size(j->dropped); i++)
            json_array_append(dropped, json_array_get(j->dropped, i));
        entry = json_pack("{s:s, s:I, s:I, s:I, s:s, s:s, s:o}", "file", file, "samples",
                          (json_int_t)samples, "frames", (json_int_t)frames, "bytes",
                          (json_int_t)bytes, "xxh3", hex, "plan", plan_hex, "dropped", dropped);
        WEFT_GO(weft_json_save(note_path.data, entry));
    }
    const int64_t samples = json_integer_value(json_object_get(entry, "samples"));
    j->report->written += samples;
    *(strcmp(split, "train") ? &j->report->heldout : &j->report->train) += samples;
    j->report->bytes += json_integer_value(json_object_get(entry, "bytes"));
    j->report->frames += json_integer_value(json_object_get(entry, "frames"));
    count_dropped(j, json_object_get(entry, "dropped"));
    j->report->shards++;
    json_array_append(j->shards, entry);
out:
    json_decref(entry);
    weft_tar_free(tar);
    weft_buf_free(&note_path);
    weft_free(path);
    return status;
}

static weft_status write_split(job *j, const char *split, int64_t from, int64_t to,
                               weft_progress *progress)
{
    int64_t number = 0;
    while (from < to) {
        int64_t end = from, bytes = 0;
        while (end < to && end - from < j->config->max_samples &&
               (end == from || bytes + j->clip[end].bytes <= j->config->max_bytes))
            bytes += j->clip[end++].bytes;
        WEFT_TRY(write_shard(j, split, number++, from, end, progress));
        from = end;
    }
    return WEFT_OK;
}

/* Shards of an earlier run with other clips or limits must not stay beside the new ones. */
static weft_status remove_strays(const job *j)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(j->out, false, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        const char *name = names.name[i][0] == '.' ? names.name[i] + 1 : names.name[i];
        if ((strncmp(name, "train-", 6) && strncmp(name, "heldout-", 8)) || !strstr(name, ".tar"))
            continue;
        bool known = false;
        const size_t len = (size_t)(strstr(name, ".tar") - name) + 4;
        for (size_t s = 0; s < json_array_size(j->shards) && !known; s++) {
            const char *file =
                json_string_value(json_object_get(json_array_get(j->shards, s), "file"));
            known = strlen(file) == len && !strncmp(file, name, len);
        }
        if (known)
            continue;
        char *path = weft_path_join(j->out, names.name[i]);
        status = path ? weft_remove_tree(path) : weft_fail(WEFT_E_MEMORY, "out of memory");
        weft_free(path);
    }
    weft_names_free(&names);
    return status;
}

static weft_status write_index(const job *j)
{
    char *path = weft_path_join(j->out, "index.json");
    json_t *dropped = json_copy(j->unnamed), *shards = json_array();
    for (size_t i = 0; i < json_array_size(j->shards); i++) {
        json_t *entry = json_copy(json_array_get(j->shards, i));
        json_array_extend(dropped, json_object_get(entry, "dropped"));
        json_object_del(entry, "dropped");
        json_object_del(entry, "plan");
        json_array_append_new(shards, entry);
    }
    json_t *index =
        json_pack("{s:i, s:I, s:I, s:o, s:o}", "version", 1, "train", (json_int_t)j->report->train,
                  "heldout", (json_int_t)j->report->heldout, "shards", shards, "dropped", dropped);
    const weft_status_code status = path && index
                                        ? weft_json_save(path, index)
                                        : weft_fail(WEFT_E_MEMORY, "out of memory for the index");
    json_decref(index);
    weft_free(path);
    return status;
}

weft_status weft_shard_run(const weft_shard_config *config, const char *in, const char *out,
                           weft_shard_report *report)
{
    *report = (weft_shard_report){0};
    job j = {.config = config,
             .in = in,
             .out = out,
             .shards = json_array(),
             .dropped = json_array(),
             .report = report};
    weft_status_code status = WEFT_OK;
    weft_progress progress;
    if (!j.shards || !j.dropped) {
        status = weft_fail(WEFT_E_MEMORY, "out of memory");
        goto out;
    }
    WEFT_GO(list_clips(&j));
    j.unnamed = json_copy(j.dropped);
    count_dropped(&j, j.unnamed);
    if (j.count == 0) {
        status = weft_fail(WEFT_E_ARG, "%s: no clips to shard", in);
        goto out;
    }
    WEFT_GO(weft_make_dirs(out));
    int64_t train = 0;
    for (int64_t i = 0; i < j.count; i++) {
        j.clip[i].bytes = weft_file_stamp(j.clip[i].video, &j.clip[i].stamp);
        (void)weft_file_stamp(j.clip[i].meta, &j.clip[i].stamp);
        train += !j.clip[i].heldout;
    }
    weft_progress_begin(&progress, "shard", j.count, 0);
    WEFT_GO(write_split(&j, "train", 0, train, &progress));
    WEFT_GO(write_split(&j, "heldout", train, j.count, &progress));
    weft_progress_end(&progress, j.count, "");
    WEFT_GO(remove_strays(&j));
    status = write_index(&j);
out:
    for (int64_t i = 0; i < j.count; i++) {
        weft_free(j.clip[i].id);
        weft_free(j.clip[i].video);
        weft_free(j.clip[i].meta);
    }
    weft_free(j.clip);
    json_decref(j.shards);
    json_decref(j.dropped);
    json_decref(j.unnamed);
    return status;
}
