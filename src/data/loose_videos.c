#include "data/loose_videos.h"

#include "base/compare.h"
#include "base/config.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/caption_csv.h"
#include "data/storage_video.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

enum { META_LIMIT = 1 << 24, TABLE_LIMIT = 256 << 20, THREADS = 8 };
static const char index_name[] = ".weft-videos.index", table_name[] = "captions.csv";

typedef struct finding {
    weft_storage *storage;
    weft_arena *arena;
    weft_names names; /* of all files, sorted */
    bool curated;     /* the folder has clips/ and metas/ of `weft curate` */
    weft_caption_csv captions;
    weft_index stored; /* sample keys: names of videos; `sum` of the part: stamp */
    weft_loose_videos *videos;
    int64_t capacity;
    /* while videos are opened */
    pthread_mutex_t lock;
    int64_t next;
    weft_status_code status; /* the first error of a thread */
    weft_error_copy *error;
} finding;

/* ---- names --------------------------------------------------------------------------------- */

static const char *const video_suffixes[] = {"mp4", "webm", "mkv", "mov", "avi", "ogv"};
static const char *const image_suffixes[] = {"png", "jpg", "jpeg", "webp"};

/* The suffix of the list that the name has, in any case; NULL: none. */
static const char *suffix_in(const char *const *list, int count, const char *name)
{
    const char *own = weft_path_extension(name);
    for (int i = 0; i < count; i++)
        if (!strcasecmp(own, list[i]))
            return list[i];
    return NULL;
}

static const char *video_suffix(const char *name)
{
    return suffix_in(video_suffixes, WEFT_COUNT(video_suffixes), name);
}

static const char *image_suffix(const char *name)
{
    return suffix_in(image_suffixes, WEFT_COUNT(image_suffixes), name);
}

static bool begins_with(const char *name, const char *start)
{
    return !strncmp(name, start, strlen(start));
}

/* The listed name; NULL: no such file. */
static const char *listed(const finding *f, const char *name)
{
    char **found = f->names.count ? bsearch(&name, f->names.name, (size_t)f->names.count,
                                            sizeof *f->names.name, weft_compare_text)
                                  : NULL;
    return found ? *found : NULL;
}

/* The listed file with the name of a video and another suffix; NULL: none. */
static const char *companion(const finding *f, const char *name, const char *suffix)
{
    char other[1024];
    const int stem = (int)(weft_path_extension(name) - name - 1);
    if (snprintf(other, sizeof other, "%.*s.%s", stem, name, suffix) >= (int)sizeof other)
        return NULL;
    const char *found = listed(f, other);
    if (found || !f->curated || strcmp(suffix, "json"))
        return found;
    snprintf(other, sizeof other, "metas/%.*s.json", stem - 6, name + strlen("clips/"));
    return listed(f, other);
}

/* Whether an image shows a video of the same name, as posters do. */
static bool is_poster(const finding *f, const char *name)
{
    for (int i = 0; i < WEFT_COUNT(video_suffixes); i++)
        if (companion(f, name, video_suffixes[i]))
            return true;
    return false;
}

static bool is_sample(const finding *f, const char *name)
{
    if (weft_path_base(name)[0] == '.' || (f->curated && !begins_with(name, "clips/")))
        return false;
    return video_suffix(name) || (image_suffix(name) && !is_poster(f, name));
}

/* The name without suffix. Dots of the file's name are written as %2E, because the key of a sample
 * ends at the first dot. */
static const char *key_of(const finding *f, const char *name)
{
    weft_buf key = {0};
    const char *base = weft_path_base(name), *end = weft_path_extension(name) - 1,
               *from = f->curated ? name + strlen("clips/") : name;
    for (const char *c = from; c < end; c++)
        if (*c == '%' || (*c == '.' && c >= base))
            weft_buf_printf(&key, "%%%02X", (unsigned char)*c);
        else
            weft_buf_append(&key, c, 1);
    const char *made = key.failed ? NULL : weft_arena_strdup(f->arena, key.data);
    weft_buf_free(&key);
    return made;
}

/* ---- files of a video ---------------------------------------------------------------------- */

static weft_status add_file(finding *f, weft_loose_video *v, const char *name, const char *suffix)
{
    weft_part_data *part = (weft_part_data *)v->sample.part + v->sample.part_count;
    const char **file = (const char **)v->file + v->sample.part_count;
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_facts_of(f->storage, name, &facts));
    *part = (weft_part_data){.suffix = suffix, .bytes = facts.bytes};
    *file = weft_arena_strdup(f->arena, name);
    WEFT_TRY(WEFT_ALLOCATED(*file, "%s", name));
    v->sample.part_count++;
    v->stamp = weft_seed_mix(v->stamp, XXH3_64bits(name, strlen(name)));
    v->stamp = weft_seed_mix(weft_seed_mix(v->stamp, (uint64_t)facts.bytes), facts.stamp);
    return WEFT_OK;
}

static weft_status add_video(finding *f, const char *name)
{
    static const char *const others[] = {"txt", "json", "vtt"};
    weft_loose_videos *list = f->videos;
    const char *suffix = video_suffix(name), **file;
    weft_part_data *part;
    WEFT_TRY(weft_grow((void **)&list->video, list->count, &f->capacity, sizeof *list->video));
    WEFT_TRY(WEFT_ARENA_NEW(f->arena, part, 1 + WEFT_COUNT(others), "%s", name));
    WEFT_TRY(WEFT_ARENA_NEW(f->arena, file, 1 + WEFT_COUNT(others), "%s", name));
    weft_loose_video *v = &list->video[list->count];
    *v = (weft_loose_video){.sample = {.key = key_of(f, name), .part = part}, .file = file};
    WEFT_TRY(WEFT_ALLOCATED(v->sample.key, "%s", name));
    WEFT_TRY(add_file(f, v, name, suffix ? suffix : image_suffix(name)));
    for (int i = 0; i < WEFT_COUNT(others); i++) {
        const char *other = companion(f, name, others[i]);
        if (other)
            WEFT_TRY(add_file(f, v, other, others[i]));
    }
    list->count++;
    return WEFT_OK;
}

/* ---- captions of a table ------------------------------------------------------------------- */

static weft_status read_table(finding *f)
{
    weft_storage_facts facts;
    if (!listed(f, table_name))
        return WEFT_OK;
    WEFT_TRY(weft_storage_facts_of(f->storage, table_name, &facts));
    if (facts.bytes > TABLE_LIMIT)
        return weft_error(WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = table_name),
                          "a table of captions has at most %d bytes", TABLE_LIMIT);
    char *data = weft_alloc(facts.bytes + 1);
    WEFT_TRY(WEFT_ALLOCATED(data, "%s", table_name));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_storage_read(f->storage, table_name, 0, facts.bytes, data));
    WEFT_GO(weft_caption_csv_parse(data, facts.bytes, &f->captions));
    if (f->captions.why.len)
        weft_warning(WEFT_MSG_CAPTION_INVALID, WEFT_AT(.file = table_name),
                     "captions of the table are not used: the table %s", f->captions.why.data);
out:
    weft_free(data);
    return status;
}

static weft_status set_caption(finding *f, weft_loose_video *v)
{
    const char *caption = weft_caption_csv_find(&f->captions, v->file[0]);
    if (!caption)
        caption = weft_caption_csv_find(&f->captions, weft_path_base(v->file[0]));
    if (!caption || v->sample.captioned)
        return WEFT_OK;
    v->caption = weft_arena_strdup(f->arena, caption);
    v->sample.captioned = true;
    v->stamp = weft_seed_mix(v->stamp, XXH3_64bits(caption, strlen(caption)));
    return WEFT_ALLOCATED(v->caption, "%s", v->file[0]);
}

/* ---- sizes of videos ----------------------------------------------------------------------- */

/* Reads a text of a video into `to`, which ends with NUL. */
static weft_status read_text(const finding *f, const weft_loose_video *v, int part, char **to)
{
    const int64_t bytes = v->sample.part[part].bytes;
    *to = bytes <= META_LIMIT ? weft_calloc(bytes + 1, 1) : NULL;
    if (bytes > META_LIMIT)
        return weft_error(WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = v->file[part]),
                          "a text of a video has at most %d bytes", META_LIMIT);
    WEFT_TRY(WEFT_ALLOCATED(*to, "%s", v->file[part]));
    return weft_storage_read(f->storage, v->file[part], 0, bytes, *to);
}

/* Sets what the other files of a video state. */
static weft_status read_companion(const finding *f, weft_loose_video *v, int i)
{
    weft_sample *s = &v->sample;
    char *text = NULL;
    json_t *json = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_text(f, v, i, &text));
    if (strcmp(s->part[i].suffix, "json")) {
        s->captioned |= weft_caption_clean(text, s->part[i].bytes) > 0;
    } else if (weft_json_parse(text, s->part[i].bytes, v->file[i], &json) == WEFT_OK) {
        const char *wrong, *caption = weft_metadata_caption(json, &wrong);
        weft_sample_set_metadata(s, json);
        s->captioned |= caption && *caption;
    } else {
        weft_warn_error(WEFT_MSG_SHARD_PARTLY_USED, "the metadata of a video are not used");
    }
out:
    json_decref(json);
    weft_free(text);
    return status;
}

static weft_status read_companions(const finding *f, weft_loose_video *v)
{
    for (int i = 1; i < v->sample.part_count; i++)
        WEFT_TRY(read_companion(f, v, i));
    return WEFT_OK;
}

/* Sets the sizes of a video that is not in the stored index. */
static weft_status probe(const finding *f, weft_loose_video *v)
{
    weft_storage_video video;
    weft_video_reader *reader = NULL;
    weft_sample *s = &v->sample;
    WEFT_TRY(read_companions(f, v));
    if (s->frames > 0 && s->width > 0 && s->height > 0)
        return WEFT_OK;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", weft_storage_root(f->storage), v->file[0]);
    weft_storage_video_begin(f->storage, v->file[0], s->part[0].bytes, &video);
    const weft_status_code opened =
        weft_video_reader_open_source(&video.source, path, NULL, &reader);
    if (opened == WEFT_OK)
        weft_sample_set_info(s, weft_video_reader_info(reader));
    weft_video_reader_close(reader);
    const weft_status_code status = weft_storage_video_end(&video, WEFT_OK);
    if (status == WEFT_OK && opened != WEFT_OK) {
        weft_warn_error(WEFT_MSG_SAMPLE_SKIPPED, "the video is skipped");
        s->unreadable = true;
    }
    return opened == WEFT_E_MEMORY ? opened : status;
}

/* Copies the sizes of an unchanged video from the stored index, whose samples are sorted. */
static bool take_stored(const finding *f, weft_loose_video *v)
{
    int64_t low = 0, high = f->stored.count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (strcmp(f->stored.sample[middle].key, v->file[0]) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const weft_sample *from = &f->stored.sample[low];
    if (low == f->stored.count || strcmp(from->key, v->file[0]) || from->part_count != 1 ||
        from->part->sum != v->stamp)
        return false;
    v->sample.fps = from->fps;
    v->sample.frames = from->frames;
    v->sample.width = from->width;
    v->sample.height = from->height;
    v->sample.captioned = from->captioned;
    v->sample.damaged = from->damaged;
    v->sample.unreadable = from->unreadable;
    return true;
}

static void *probe_videos(void *user)
{
    finding *f = user;
    pthread_mutex_lock(&f->lock);
    while (f->next < f->videos->count && f->status == WEFT_OK) {
        weft_loose_video *v = &f->videos->video[f->next++];
        if (take_stored(f, v))
            continue;
        f->videos->opened++;
        pthread_mutex_unlock(&f->lock);
        const weft_status_code status = probe(f, v);
        pthread_mutex_lock(&f->lock);
        if (status != WEFT_OK && f->status == WEFT_OK) {
            f->status = status;
            f->error = weft_error_save();
        }
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* Sets the sizes of all videos, on several threads because a server answers after a delay. */
static weft_status set_sizes(finding *f)
{
    pthread_t thread[THREADS];
    int started = 0;
    pthread_mutex_init(&f->lock, NULL);
    while (started < THREADS && started < f->videos->count &&
           pthread_create(&thread[started], NULL, probe_videos, f) == 0)
        started++;
    if (!started)
        probe_videos(f);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&f->lock);
    const weft_status_code status = f->status == WEFT_OK ? WEFT_OK : weft_error_restore(f->error);
    weft_free(f->error);
    return status;
}

/* ---- the stored index ---------------------------------------------------------------------- */

static weft_status decode_stored(finding *f, char *data, int64_t bytes)
{
    WEFT_TRY(weft_storage_read(f->storage, index_name, 0, bytes, data));
    return weft_index_decode(data, bytes, index_name, f->arena, &f->stored);
}

/* Reads the stored index. One that cannot be used counts as none. */
static weft_status read_stored(finding *f)
{
    weft_storage_facts facts;
    if (!listed(f, index_name))
        return WEFT_OK;
    WEFT_TRY(weft_storage_facts_of(f->storage, index_name, &facts));
    char *data = weft_alloc_aligned(facts.bytes + 1);
    WEFT_TRY(WEFT_ALLOCATED(data, "%s", index_name));
    weft_status_code status = decode_stored(f, data, facts.bytes);
    if (status == WEFT_E_FORMAT) {
        weft_warn_error(WEFT_MSG_INDEX_REBUILT, "the videos are opened again");
        f->stored = (weft_index){0};
        status = WEFT_OK;
    }
    weft_free(data);
    return status;
}

static weft_status save_stored(const finding *f)
{
    const int64_t count = f->videos->count;
    weft_index index = {.facts = {.bytes = INT64_MAX}, .count = count, .parts = count};
    weft_buf stored = {0};
    weft_part_data *part = weft_calloc(count, sizeof *part);
    weft_status_code status = WEFT_OK;
    index.sample = weft_calloc(count, sizeof *index.sample);
    WEFT_GO(WEFT_ALLOCATED(part && index.sample, "%" PRId64 " videos", count));
    for (int64_t i = 0; i < count; i++) {
        const weft_loose_video *v = &f->videos->video[i];
        part[i] = (weft_part_data){
            .suffix = v->sample.part->suffix, .bytes = v->sample.part->bytes, .sum = v->stamp};
        index.sample[i] = v->sample;
        index.sample[i].key = v->file[0];
        index.sample[i].part = &part[i];
        index.sample[i].part_count = 1;
    }
    weft_index_encode(&index, &stored);
    WEFT_GO(weft_buf_check(&stored));
    status = weft_storage_put_hasty(f->storage, index_name, stored.data, stored.len);
out:
    weft_buf_free(&stored);
    weft_free(index.sample);
    weft_free(part);
    return status;
}

/* ---- all ----------------------------------------------------------------------------------- */

/* Sets `prefix` to the folder of a split, or to "". */
static weft_status find_split(const finding *f, const char *split, char prefix[256])
{
    bool found = false;
    prefix[0] = 0;
    if (!split)
        return WEFT_OK;
    snprintf(prefix, 256, "%s/", split);
    for (int64_t i = 0; i < f->names.count; i++)
        found |= begins_with(f->names.name[i], prefix) && is_sample(f, f->names.name[i]);
    if (found)
        return WEFT_OK;
    prefix[0] = 0;
    return !strcmp(split, "train")
               ? WEFT_OK
               : weft_error(WEFT_MSG_SHARDS_NOT_FOUND,
                            WEFT_AT(.file = weft_storage_root(f->storage), .value = split),
                            "the folder has no data shards, and no videos in a folder %s. Use the "
                            "split train for all videos, or `weft shard` to hold clips out.",
                            split);
}

static weft_status find(finding *f, const char *split)
{
    char prefix[256];
    bool clips = false, metas = false;
    WEFT_TRY(weft_storage_list_all(f->storage, &f->names));
    for (int64_t i = 0; i < f->names.count; i++) {
        clips |= begins_with(f->names.name[i], "clips/");
        metas |= begins_with(f->names.name[i], "metas/");
    }
    f->curated = clips && metas;
    bool any = false;
    for (int64_t i = 0; i < f->names.count && !any; i++)
        any = is_sample(f, f->names.name[i]);
    if (!any)
        return WEFT_OK;
    WEFT_TRY(find_split(f, split, prefix));
    for (int64_t i = 0; i < f->names.count; i++)
        if (begins_with(f->names.name[i], prefix) && is_sample(f, f->names.name[i]))
            WEFT_TRY(add_video(f, f->names.name[i]));
    WEFT_TRY(read_stored(f));
    WEFT_TRY(set_sizes(f));
    if (f->videos->opened && save_stored(f) != WEFT_OK)
        weft_debug("%s; every start opens the videos again", weft_error_message());
    WEFT_TRY(read_table(f));
    for (int64_t i = 0; i < f->videos->count; i++)
        WEFT_TRY(set_caption(f, &f->videos->video[i]));
    return WEFT_OK;
}

weft_status weft_loose_videos_find(weft_storage *storage, const char *split, weft_arena *arena,
                                   weft_loose_videos *videos)
{
    finding f = {.storage = storage, .arena = arena, .videos = videos};
    *videos = (weft_loose_videos){0};
    const weft_status_code status = find(&f, split);
    weft_names_free(&f.names);
    weft_caption_csv_free(&f.captions);
    if (status != WEFT_OK) {
        weft_free(videos->video);
        *videos = (weft_loose_videos){0};
    }
    return status;
}
