#include "data/shard_write.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/location.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/caption_csv.h"
#include "data/curated_set.h"
#include "data/energon_meta.h"
#include "data/heldout.h"
#include "data/shard_file.h"
#include "storage/storage_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static const weft_key shard_keys[] = {
    {"heldout", WEFT_KEY_F64, offsetof(weft_shard_config, heldout), "0.05", "",
     "share of source videos whose clips are held out for evaluation. Of two or more clips "
     "at least one is held out, also in later runs. 0: none",
     .min = 0, .max = 1},
    {"max_samples", WEFT_KEY_I64, offsetof(weft_shard_config, max_samples), "1000", "clips",
     "largest number of clips per data shard", .min = 1, .max = 1e9},
    {"max_bytes", WEFT_KEY_I64, offsetof(weft_shard_config, max_bytes), "256MiB", "bytes",
     "largest size of a data shard", .min = 1024, .max = 1e15},
    {"seed", WEFT_KEY_I64, offsetof(weft_shard_config, seed), "0", "",
     "random seed of the split and the order", .min = 0, .max = 9e15},
    {"require_caption", WEFT_KEY_BOOL, offsetof(weft_shard_config, need_caption), "false", "",
     "drop clips without a caption", .earlier = "need_caption"},
};
const weft_section weft_shard_section = {"shard", "size of data shards, held-out share",
                                         sizeof(weft_shard_config), shard_keys,
                                         WEFT_COUNT(shard_keys)};

typedef struct clip {
    char *id;            /* owned */
    char *video;         /* name in the set, "clips/ID.mp4"; owned */
    char *meta;          /* path, owned */
    char *source;        /* name of its source video, or its id; owned */
    int64_t first, last; /* its frames in the source; -1: not known */
    uint64_t rank;       /* random position, by id */
    bool heldout;
    int64_t bytes;  /* size of the video file */
    uint64_t stamp; /* hash of sizes and times of change of both files */
} clip;

typedef struct job {
    const weft_shard_config *config;
    const char *in;       /* folder of the metadata and lists; borrowed */
    const char *location; /* of the clips, a folder or a bucket */
    weft_curated_set *set;
    weft_storage *out;
    clip *clip;
    int64_t count, capacity;
    json_t *shards, *dropped;
    json_t *unnamed;           /* dropped before they were assigned to a shard */
    json_t *notes;             /* notes of existing shards of earlier runs, by file */
    weft_caption_csv captions; /* of IN/captions.csv, for clips without one */
    weft_shard_report *report;
} job;

static const char *const reasons[WEFT_SHARD_REASONS] = {
    [WEFT_SHARD_WITHOUT_META] = "no metas/<id>.json",
    [WEFT_SHARD_DAMAGED_META] = "metas/<id>.json is damaged",
    [WEFT_SHARD_WITHOUT_CAPTION] = "no caption",
    [WEFT_SHARD_EMPTY] = "the clip is empty",
    [WEFT_SHARD_DOT] = "a dot in the id would end the WebDataset key",
    [WEFT_SHARD_NO_MP4] = "not an .mp4",
    [WEFT_SHARD_UNREADABLE] = "the clip cannot be read",
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

static char *printed(const char *format, const char *folder, const char *id)
{
    weft_buf buf = {0};
    weft_buf_printf(&buf, format, folder, id);
    if (buf.failed)
        weft_buf_free(&buf);
    return buf.data;
}

/* {source_video, frame_span} of a clip by its line of the manifest or its meta; NULL: neither. */
static json_t *source_of(const json_t *entry)
{
    json_t *source = json_object_get(entry, "source_video");
    json_t *span = json_object_get(entry, "frame_span");
    return json_is_string(source)
               ? json_pack("{s:O,s:O*}", "source_video", source, "frame_span", span)
               : NULL;
}

/* Adds the source video of a clip id from a line of the manifest that weft curate writes. */
static weft_status_code add_source(void *sources, json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "id"));
    json_t *source = id ? source_of(line) : NULL;
    if (source)
        json_object_set_new(sources, id, source);
    return WEFT_OK;
}

/* The source video of a clip that the manifest does not list (renamed, or from another folder). An
 * unreadable meta is reported when the clip is written. */
static json_t *source_in_meta(const clip *c)
{
    json_t *meta = NULL;
    if (!weft_path_exists(c->meta) || weft_json_load(c->meta, &meta) != WEFT_OK)
        return NULL;
    json_t *source = source_of(meta);
    json_decref(meta);
    return source;
}

/* [kept source, rejected source] of each near-duplicate, from rejects.jsonl. */
static weft_status_code add_copy(void *copies, json_t *line)
{
    json_t *kept = json_object_get(line, "duplicate_of"), *source = json_object_get(line, "source");
    if (json_is_string(kept) && json_is_string(source) && !json_equal(kept, source))
        json_array_append_new(copies, json_pack("[O,O]", kept, source));
    return WEFT_OK;
}

/* Reads a list of weft curate, if the folder has it. */
static weft_status read_list(const job *j, const char *name,
                             weft_status_code (*each)(void *user, json_t *line), json_t *to)
{
    char *path = weft_path_join(j->in, name);
    weft_status_code status = WEFT_OK;
    if (!path || !to)
        status = weft_no_memory("the list of clips");
    else if (weft_path_exists(path))
        status = weft_json_lines(path, each, to);
    weft_free(path);
    return status;
}

static double draw_of(const job *j, const char *name)
{
    const uint64_t seed = (uint64_t)j->config->seed;
    return (double)weft_random_uniform(seed, WEFT_RNG_SHUFFLE,
                                       weft_seed_mix(seed, XXH3_64bits(name, strlen(name))));
}

static weft_status add_clip(job *j, const char *id, const json_t *sources)
{
    WEFT_TRY(weft_grow((void **)&j->clip, j->count, &j->capacity, sizeof *j->clip));
    clip *c = &j->clip[j->count++];
    *c = (clip){.id = weft_strdup(id),
                .video = printed("clips/%s%s.mp4", "", id),
                .meta = printed("%s/metas/%s.json", j->in, id),
                .first = -1,
                .last = -1};
    WEFT_TRY(WEFT_ALLOCATED(c->id && c->video && c->meta, "clip %s", id));
    const uint64_t seed = (uint64_t)j->config->seed;
    c->rank = weft_seed_mix(seed, XXH3_64bits(id, strlen(id)));
    json_t *listed = json_object_get(sources, id),
           *known = listed ? json_incref(listed) : source_in_meta(c);
    const json_t *span = json_object_get(known, "frame_span");
    const char *source = json_string_value(json_object_get(known, "source_video"));
    c->source = weft_strdup(source ? source : id);
    if (json_array_size(span) == 2) {
        c->first = json_integer_value(json_array_get(span, 0));
        c->last = json_integer_value(json_array_get(span, 1));
    }
    json_decref(known);
    return WEFT_ALLOCATED(c->source, "clip %s", id);
}

static int by_position(const void *a, const void *b)
{
    const clip *x = a, *y = b;
    if (x->heldout != y->heldout)
        return x->heldout ? 1 : -1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_kept(const void *a, const void *b)
{
    return strcmp(((const weft_split_copy *)a)->kept, ((const weft_split_copy *)b)->kept);
}

static weft_status read_copies(const job *j, json_t *list, weft_split_copy **copy, int64_t *count)
{
    WEFT_TRY(read_list(j, "rejects.jsonl", add_copy, list));
    const int64_t n = (int64_t)json_array_size(list);
    weft_split_copy *all;
    WEFT_TRY(WEFT_NEW(all, n + 1, "the list of copies"));
    for (int64_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(list, (size_t)i);
        const char *rejected = json_string_value(json_array_get(pair, 1));
        all[i] = (weft_split_copy){.kept = json_string_value(json_array_get(pair, 0)),
                                   .rejected = rejected,
                                   .draw = draw_of(j, rejected)};
    }
    if (n)
        qsort(all, (size_t)n, sizeof *all, by_kept);
    *copy = all;
    *count = n;
    return WEFT_OK;
}

/* Chooses which clips are held out, and sorts them by split and place. */
static weft_status split_clips(job *j, const char *out)
{
    weft_split_request q = {
        .in = j->location, .out = out, .share = j->config->heldout, .seed = j->config->seed};
    weft_split_clip *split = weft_calloc(j->count + 1, sizeof *split);
    weft_split_copy *copy = NULL;
    json_t *list = json_array();
    weft_status_code status = WEFT_ALLOCATED(split, "the split of the clips");
    WEFT_GO(status);
    WEFT_GO(read_copies(j, list, &copy, &q.copies));
    q.copy = copy;
    for (int64_t i = 0; i < j->count; i++)
        split[i] = (weft_split_clip){.id = j->clip[i].id,
                                     .source = j->clip[i].source,
                                     .first = j->clip[i].first,
                                     .last = j->clip[i].last,
                                     .draw = draw_of(j, j->clip[i].source),
                                     .own_draw = draw_of(j, j->clip[i].id)};
    WEFT_GO(weft_split_choose(&q, split, j->count));
    for (int64_t i = 0; i < j->count; i++)
        j->clip[i].heldout = split[i].heldout;
    if (j->count > 1)
        qsort(j->clip, (size_t)j->count, sizeof *j->clip, by_position);
out:
    weft_free(split);
    weft_free(copy);
    json_decref(list);
    return status;
}

static weft_status list_clips(job *j)
{
    json_t *sources = json_object();
    weft_names names = {0};
    weft_status_code status = weft_curated_set_list(j->set, &names);
    if (status != WEFT_OK)
        status = weft_error_add(
            status, "%s must be a folder of curated clips, as weft curate writes it.", j->location);
    WEFT_GO(status);
    WEFT_GO(read_list(j, "manifest.jsonl", add_source, sources));
    for (int64_t i = 0; i < names.count; i++) {
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
        WEFT_GO(add_clip(j, name, sources));
    }
out:
    weft_names_free(&names);
    json_decref(sources);
    return status;
}

/* ---- one sample ---------------------------------------------------------------------------- */

/* A clip goes into its shard in pieces: one of any size needs no more memory. */
typedef struct sample_parts {
    char *meta;
    int64_t meta_bytes;
    json_t *json;
    const char *caption; /* borrowed from the json */
    weft_curated_clip video;
} sample_parts;

static void sample_close(sample_parts *s)
{
    weft_free(s->meta);
    json_decref(s->json);
    weft_curated_clip_close(&s->video);
    *s = (sample_parts){0};
}

enum { META_LIMIT = 1 << 24, PIECE = 1 << 20, PATH_BYTES = 1024, AHEAD = 8 };

/* Returns the caption of a clip in captions.csv, which names the clip by its path or its name.
 * NULL: none. */
static const char *listed_caption(const job *j, const char *id)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "clips/%s.mp4", id);
    const char *caption = weft_caption_csv_find(&j->captions, path);
    return caption ? caption : weft_caption_csv_find(&j->captions, path + strlen("clips/"));
}

/* Reads IN/captions.csv, if there is one. */
static weft_status read_captions(job *j)
{
    char *path = weft_path_join(j->in, "captions.csv");
    WEFT_TRY(WEFT_ALLOCATED(path, "the data shards"));
    weft_status_code status = WEFT_OK;
    if (access(path, F_OK) == 0)
        status = weft_caption_csv_read(path, &j->captions);
    if (j->captions.why.len)
        weft_warning(WEFT_MSG_CAPTION_INVALID, WEFT_AT(.file = path), "%s; the other rows are used",
                     j->captions.why.data);
    weft_free(path);
    return status;
}

static weft_status meta_parse(const clip *c, sample_parts *s)
{
    WEFT_TRY(weft_file_read(c->meta, META_LIMIT, &s->meta, &s->meta_bytes));
    return weft_json_parse(s->meta, s->meta_bytes, c->meta, &s->json);
}

static weft_status meta_read(job *j, const clip *c, sample_parts *s, bool *usable)
{
    const char *wrong;
    *usable = false;
    const weft_status_code status = meta_parse(c, s);
    if (status == WEFT_E_NOT_FOUND) {
        drop(j, c->id, WEFT_SHARD_WITHOUT_META, 0);
        return WEFT_OK;
    }
    if (status != WEFT_E_FORMAT)
        WEFT_TRY(status);
    if (!json_is_object(s->json)) {
        if (status == WEFT_E_FORMAT)
            weft_warn_error(WEFT_MSG_SAMPLE_SKIPPED, "the clip is skipped");
        else
            weft_warning(WEFT_MSG_SAMPLE_SKIPPED, WEFT_AT(.file = c->meta),
                         "the metadata is not a JSON object; the clip is skipped");
        drop(j, c->id, WEFT_SHARD_DAMAGED_META, 0);
        return WEFT_OK;
    }
    s->caption = weft_metadata_caption(s->json, &wrong);
    if (wrong)
        weft_warning(WEFT_MSG_CAPTION_INVALID, WEFT_AT(.file = c->meta),
                     "the caption %s; the clip trains without text", wrong);
    if (!s->caption || !*s->caption)
        s->caption = listed_caption(j, c->id);
    s->caption = s->caption ? s->caption : "";
    *usable = !j->config->need_caption || *s->caption;
    if (!*usable)
        drop(j, c->id, WEFT_SHARD_WITHOUT_CAPTION, weft_metadata_frames(s->json));
    return WEFT_OK;
}

/* *usable is false for a clip that is dropped; index.json has the reason. */
static weft_status sample_open(job *j, const clip *c, sample_parts *s, bool *usable)
{
    WEFT_TRY(meta_read(j, c, s, usable));
    if (!*usable)
        return WEFT_OK;
    WEFT_TRY(weft_curated_clip_open(j->set, c->video, &s->video, usable));
    if (!*usable) {
        weft_warn_error(WEFT_MSG_SAMPLE_SKIPPED, "the clip is skipped");
        drop(j, c->id, WEFT_SHARD_UNREADABLE, weft_metadata_frames(s->json));
        return WEFT_OK;
    }
    *usable = s->video.bytes > 0;
    if (!*usable)
        drop(j, c->id, WEFT_SHARD_EMPTY, weft_metadata_frames(s->json));
    return WEFT_OK;
}

static weft_status copy_video(weft_shard_file *shard, const sample_parts *s, char *piece)
{
    for (int64_t done = 0, n; done < s->video.bytes; done += n) {
        WEFT_TRY(weft_curated_clip_read(&s->video, done, PIECE, piece, &n));
        WEFT_TRY(weft_shard_file_append(shard, piece, n));
    }
    return WEFT_OK;
}

static weft_status sample_write(weft_shard_file *shard, const clip *c, const sample_parts *s)
{
    WEFT_TRY(weft_shard_file_add(shard, c->id, "json", s->meta, s->meta_bytes));
    char *piece;
    WEFT_TRY(WEFT_NEW(piece, PIECE, "%s", c->id));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_shard_file_begin(shard, c->id, "mp4", s->video.bytes));
    WEFT_GO(copy_video(shard, s, piece));
    WEFT_GO(weft_shard_file_end(shard));
out:
    weft_free(piece);
    WEFT_TRY(status);
    return weft_shard_file_add(shard, c->id, "txt", s->caption, (int64_t)strlen(s->caption));
}

/* ---- shards -------------------------------------------------------------------------------- */

/* The hash of a shard's plan: ids, sizes, times of change and order of its clips. A shard of an
 * earlier run is complete if its note, .<shard>.json, has the same hash. The note is written before
 * the shard, marked as begun, and again after it. The notes also list the files that this verb
 * wrote: it overwrites and removes no other file. */
static uint64_t plan_hash(const job *j, int64_t from, int64_t to)
{
    uint64_t hash = weft_seed_mix((uint64_t)j->config->seed, (uint64_t)j->config->need_caption);
    for (int64_t i = from; i < to; i++) {
        hash = weft_seed_mix(hash, j->clip[i].rank);
        hash = weft_seed_mix(hash, j->clip[i].stamp);
    }
    return hash;
}

/* Whether the note marks a shard that is being written, in a place without files of others. */
static bool is_begun(const json_t *note)
{
    return json_is_true(json_object_get(note, "begun"));
}

/* The notes of earlier runs. */
static weft_status read_notes(job *j)
{
    weft_names names = {0};
    WEFT_TRY(weft_storage_list(j->out, &names));
    for (int64_t i = 0; i < names.count; i++) {
        const char *name = names.name[i];
        const size_t len = strlen(name);
        json_t *note;
        if (name[0] != '.' || len < 10 || strcmp(name + len - 9, ".tar.json") != 0 ||
            weft_storage_json_load(j->out, name, &note) != WEFT_OK)
            continue;
        const char *file = json_string_value(json_object_get(note, "file"));
        if (file && strlen(file) == len - 6 && !strncmp(file, name + 1, len - 6) &&
            (is_begun(note) || json_is_string(json_object_get(note, "xxh3"))))
            json_object_set(j->notes, file, note);
        json_decref(note);
    }
    weft_names_free(&names);
    return WEFT_OK;
}

/* Whether the file has exactly the bytes that its note describes. */
static weft_status is_own(job *j, const char *file, const json_t *note, bool *own)
{
    weft_storage_facts facts;
    char hex[WEFT_HEX_BYTES];
    *own = is_begun(note);
    WEFT_TRY(weft_storage_facts_of(j->out, file, &facts));
    if (*own || !note || facts.bytes != json_integer_value(json_object_get(note, "bytes")))
        return WEFT_OK;
    uint64_t sum;
    WEFT_TRY(weft_storage_sum(j->out, file, &sum));
    *own = !strcmp(weft_hex_print(sum, hex), json_string_value(json_object_get(note, "xxh3")));
    return WEFT_OK;
}

/* NULL: it is to be written. */
static json_t *unchanged_entry(job *j, const char *file, uint64_t plan)
{
    json_t *note = json_object_get(j->notes, file);
    weft_storage_facts facts;
    char text[WEFT_HEX_BYTES];
    weft_hex_print(plan, text);
    const char *have = json_string_value(json_object_get(note, "plan"));
    const bool unchanged = have && !strcmp(have, text) &&
                           weft_storage_facts_of(j->out, file, &facts) == WEFT_OK &&
                           facts.bytes == json_integer_value(json_object_get(note, "bytes"));
    return unchanged ? json_incref(note) : NULL;
}

static const char *full_path_of(const job *j, const char *file, char full_path[PATH_BYTES])
{
    snprintf(full_path, PATH_BYTES, "%s/%s", weft_storage_root(j->out), file);
    return full_path;
}

/* Refuses to overwrite a file of the shard's name that this verb did not write, or that was changed
 * since. */
static weft_status check_path(job *j, const char *file)
{
    char full_path[PATH_BYTES];
    weft_storage_facts facts;
    bool own;
    if (weft_storage_facts_of(j->out, file, &facts) == WEFT_E_NOT_FOUND)
        return WEFT_OK;
    WEFT_TRY(is_own(j, file, json_object_get(j->notes, file), &own));
    return own ? WEFT_OK
               : weft_error(WEFT_MSG_FILE_EXISTS, WEFT_AT(.file = full_path_of(j, file, full_path)),
                            "the file exists and is not as weft shard wrote it. Move it, or give "
                            "another --out.");
}

typedef struct shard_counts {
    int64_t samples, frames, without_caption;
} shard_counts;

/* Writes the sample of a clip, if it is usable. */
static weft_status add_sample(job *j, weft_shard_file *shard, const clip *c, shard_counts *counts)
{
    sample_parts s = {0};
    bool usable;
    weft_status_code status = WEFT_OK;
    WEFT_GO(sample_open(j, c, &s, &usable));
    if (usable) {
        WEFT_GO(sample_write(shard, c, &s));
        counts->samples++;
        counts->frames += weft_metadata_frames(s.json);
        counts->without_caption += !*s.caption;
    }
out:
    sample_close(&s);
    return status;
}

static weft_status fill_shard(job *j, weft_shard_file *shard, int64_t from, int64_t to,
                              shard_counts *counts, weft_progress *progress)
{
    for (int64_t i = from; i < to && i < from + AHEAD; i++)
        weft_curated_set_expect(j->set, j->clip[i].video);
    for (int64_t i = from; i < to; i++) {
        if (i + AHEAD < to)
            weft_curated_set_expect(j->set, j->clip[i + AHEAD].video);
        WEFT_TRY(add_sample(j, shard, &j->clip[i], counts));
        weft_progress_update(progress, i + 1, j->clip[i].id);
    }
    return WEFT_OK;
}

static weft_status remove_companion(job *j, const char *format, const char *file)
{
    char name[80];
    snprintf(name, sizeof name, format, file);
    return weft_storage_remove(j->out, name);
}

static weft_status write_tar(job *j, const char *file, const char *note, uint64_t plan,
                             int64_t from, int64_t to, weft_progress *progress, json_t **entry)
{
    weft_shard_file *shard = NULL;
    shard_counts counts = {0};
    int64_t bytes;
    uint64_t hash;
    char hex[WEFT_HEX_BYTES], plan_hex[WEFT_HEX_BYTES];
    weft_status_code status = WEFT_OK;
    const size_t dropped_before = json_array_size(j->dropped);
    WEFT_TRY(check_path(j, file));
    json_t *begun = json_pack("{s:s, s:b}", "file", file, "begun", 1);
    status = weft_storage_json_save(j->out, note, begun);
    json_decref(begun);
    WEFT_TRY(status);
    WEFT_TRY(remove_companion(j, "%s.idx", file)); /* .idx of the overwritten shard */
    WEFT_TRY(weft_shard_file_create(j->out, file, &shard));
    WEFT_GO(fill_shard(j, shard, from, to, &counts, progress));
    WEFT_GO(weft_shard_file_finish(shard, &hash, &bytes));
    weft_hex_print(hash, hex);
    weft_hex_print(plan, plan_hex);
    json_t *dropped = json_array();
    for (size_t i = dropped_before; i < json_array_size(j->dropped); i++)
        json_array_append(dropped, json_array_get(j->dropped, i));
    *entry = json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:o}", "file", file, "samples",
                       (json_int_t)counts.samples, "frames", (json_int_t)counts.frames,
                       "without_caption", (json_int_t)counts.without_caption, "bytes",
                       (json_int_t)bytes, "xxh3", hex, "plan", plan_hex, "dropped", dropped);
    WEFT_GO(weft_storage_json_save(j->out, note, *entry));
out:
    weft_shard_file_free(shard);
    return status;
}

static weft_status write_shard(job *j, const char *split, int64_t number, int64_t from, int64_t to,
                               weft_progress *progress)
{
    char file[64], note[80];
    snprintf(file, sizeof file, "%s-%06" PRId64 ".tar", split, number);
    snprintf(note, sizeof note, ".%s.json", file);
    const uint64_t plan = plan_hash(j, from, to);
    json_t *entry = unchanged_entry(j, file, plan);
    if (entry)
        j->report->unchanged_shards++;
    else
        WEFT_TRY(write_tar(j, file, note, plan, from, to, progress, &entry));
    const int64_t samples = json_integer_value(json_object_get(entry, "samples"));
    j->report->written += samples;
    *(strcmp(split, "train") ? &j->report->heldout : &j->report->train) += samples;
    j->report->bytes += json_integer_value(json_object_get(entry, "bytes"));
    j->report->frames += json_integer_value(json_object_get(entry, "frames"));
    j->report->without_caption += json_integer_value(json_object_get(entry, "without_caption"));
    count_dropped(j, json_object_get(entry, "dropped"));
    j->report->shards++;
    json_array_append_new(j->shards, entry);
    return WEFT_OK;
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

/* ---- what earlier runs left ---------------------------------------------------------------- */

static bool is_current(const job *j, const char *file)
{
    for (size_t i = 0; i < json_array_size(j->shards); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(j->shards, i), "file")), file))
            return true;
    return false;
}

/* Removes shards of an earlier run with other clips or limits, which must not stay next to the new
 * ones. Reports shards that were changed since they were written, and keeps them. */
static weft_status remove_strays(job *j)
{
    const char *file;
    json_t *note;
    json_object_foreach(j->notes, file, note)
    {
        bool own;
        char full_path[PATH_BYTES];
        if (is_current(j, file))
            continue;
        const weft_status_code status = is_own(j, file, note, &own);
        if (status == WEFT_E_NOT_FOUND)
            own = true;
        else
            WEFT_TRY(status);
        if (!own) {
            weft_warning(WEFT_MSG_FILES_LEFT, WEFT_AT(.file = full_path_of(j, file, full_path)),
                         "the shard is of an earlier run and was changed since; it stays, and the "
                         "loader reads it too");
            continue;
        }
        WEFT_TRY(weft_storage_remove(j->out, file));
        WEFT_TRY(remove_companion(j, "%s.index", file));
        WEFT_TRY(remove_companion(j, "%s.idx", file));
        WEFT_TRY(remove_companion(j, ".%s.json", file));
    }
    return WEFT_OK;
}

/* Other shards in the folder are read by the loader like ours. */
static weft_status warn_foreign(const job *j)
{
    char full_path[PATH_BYTES];
    weft_names names = {0};
    WEFT_TRY(weft_storage_list(j->out, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (!strcmp(weft_path_extension(names.name[i]), "tar") && !is_current(j, names.name[i]) &&
            !json_object_get(j->notes, names.name[i]))
            weft_warning(
                WEFT_MSG_FILES_LEFT, WEFT_AT(.file = full_path_of(j, names.name[i], full_path)),
                "weft shard did not write this shard; it stays, and the loader reads it too");
    weft_names_free(&names);
    return WEFT_OK;
}

static weft_status write_list(const job *j)
{
    json_t *dropped = json_copy(j->unnamed), *shards = json_array();
    for (size_t i = 0; i < json_array_size(j->shards); i++) {
        json_t *entry = json_copy(json_array_get(j->shards, i));
        json_array_extend(dropped, json_object_get(entry, "dropped"));
        json_object_del(entry, "dropped");
        json_object_del(entry, "plan");
        json_array_append_new(shards, entry);
    }
    json_t *list =
        json_pack("{s:i, s:I, s:I, s:o, s:o}", "version", 1, "train", (json_int_t)j->report->train,
                  "heldout", (json_int_t)j->report->heldout, "shards", shards, "dropped", dropped);
    const weft_status_code status = weft_storage_json_save(j->out, "index.json", list);
    json_decref(list);
    return status;
}

/* Sets size and stamp of a clip. */
static weft_status stamp_clip(const job *j, clip *c)
{
    char *meta = printed("metas/%s%s.json", "", c->id);
    WEFT_TRY(WEFT_ALLOCATED(meta, "clip %s", c->id));
    c->bytes = weft_curated_set_stamp(j->set, c->video, &c->stamp);
    (void)weft_curated_set_stamp(j->set, meta, &c->stamp);
    weft_free(meta);
    const char *caption = listed_caption(j, c->id);
    if (caption)
        c->stamp = weft_seed_mix(c->stamp, XXH3_64bits(caption, strlen(caption)));
    return WEFT_OK;
}

weft_status weft_shard_run(const weft_shard_config *config, const char *in, const char *out,
                           weft_shard_report *report)
{
    *report = (weft_shard_report){0};
    job j = {.config = config,
             .location = in,
             .notes = json_object(),
             .shards = json_array(),
             .dropped = json_array(),
             .report = report};
    weft_status_code status = WEFT_OK;
    weft_progress progress;
    WEFT_GO(WEFT_ALLOCATED(j.shards && j.dropped && j.notes, "the data shards"));
    WEFT_GO(weft_curated_set_open(in, &j.set));
    j.in = weft_curated_set_folder(j.set);
    WEFT_GO(list_clips(&j));
    WEFT_GO(read_captions(&j));
    j.unnamed = json_copy(j.dropped);
    count_dropped(&j, j.unnamed);
    if (j.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = in),
                           "the folder has no clips. rejects.jsonl of `weft curate` has the reason "
                           "for each shot without one"));
    if (!weft_location_is_remote(out)) {
        WEFT_GO(weft_make_dirs(out));
        WEFT_GO(weft_remove_leftovers(out, false));
    }
    WEFT_GO(weft_storage_open(out, &j.out));
    WEFT_GO(weft_storage_check_writable(j.out));
    WEFT_GO(split_clips(&j, out));
    WEFT_GO(read_notes(&j));
    int64_t train = 0;
    for (int64_t i = 0; i < j.count; i++) {
        WEFT_GO(stamp_clip(&j, &j.clip[i]));
        train += !j.clip[i].heldout;
    }
    weft_progress_begin(&progress, "shard", j.count, 0);
    WEFT_GO(write_split(&j, "train", 0, train, &progress));
    WEFT_GO(write_split(&j, "heldout", train, j.count, &progress));
    weft_progress_end(&progress, j.count, "");
    WEFT_GO(remove_strays(&j));
    WEFT_GO(warn_foreign(&j));
    WEFT_GO(weft_energon_write(j.out, j.shards));
    WEFT_GO(write_list(&j));
    if (report->written == 0)
        status =
            weft_error(WEFT_MSG_SAMPLES_NONE, WEFT_AT(.file = in, WEFT_NUMBER(report->clips)),
                       "none of its %" PRId64 " clips can be used; %s/index.json lists the reasons",
                       report->clips, out);
out:
    for (int64_t i = 0; i < j.count; i++) {
        weft_free(j.clip[i].id);
        weft_free(j.clip[i].video);
        weft_free(j.clip[i].meta);
        weft_free(j.clip[i].source);
    }
    weft_free(j.clip);
    json_decref(j.shards);
    json_decref(j.dropped);
    json_decref(j.unnamed);
    json_decref(j.notes);
    weft_caption_csv_free(&j.captions);
    weft_storage_close(j.out);
    weft_curated_set_close(j.set);
    return status;
}
