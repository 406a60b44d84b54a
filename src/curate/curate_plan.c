#include "curate/curate_plan.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "curate/analyse.h"
#include "curate/caption_tables.h"
#include "curate/curate_bucket.h"
#include "curate/curate_captions.h"
#include "curate/curate_clusters.h"
#include "curate/curate_embeddings.h"
#include "curate/curate_folder.h"
#include "curate/curate_scores.h"
#include "curate/duplicates/near_duplicates.h"
#include "curate/shot_filter.h"
#include "curate/sidecar.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Version of the records in state/. Records of other versions are rebuilt. */
enum { STATE_VERSION = 11 };

static weft_status_code out_of_memory(void)
{
    return weft_no_memory("the curation");
}

static void free_clips(weft_curate_source *s)
{
    for (int64_t i = 0; i < s->clips; i++) {
        weft_free((char *)s->clip[i].path);
        weft_free((char *)s->clip[i].meta_path);
        weft_free((char *)s->clip[i].id);
        json_decref(s->clip[i].meta);
    }
    weft_free(s->clip);
    s->clip = NULL;
    s->clips = 0;
}

void weft_curate_plan_free(weft_curate_plan *p)
{
    for (int64_t i = 0; i < p->sources; i++) {
        weft_curate_source *s = &p->source[i];
        free_clips(s);
        json_decref(s->record);
        json_decref(s->scores);
        weft_embeddings_free(&s->embeddings);
        weft_free(s->hash);
        weft_free(s->name);
        weft_free(s->path);
        weft_free(s->state_path);
        weft_free(s->parts_path);
        weft_free(s->copy);
    }
    weft_footage_close(p->footage);
    p->footage = NULL;
    weft_free(p->source);
    p->source = NULL;
    p->sources = 0;
    json_decref(p->clusters);
    p->clusters = NULL;
    weft_curate_scores_close(p);
}

/* "stem-0123456789abcdef": readable, safe in file names and tar keys, one for each path: 64 bits,
 * as in 100,000 folders of a video.mp4 each two would share 32. */
static void make_id(const char *name, uint64_t hash, char id[64])
{
    const char *base = weft_path_base(name), *dot = strrchr(base, '.');
    const size_t stem = dot && dot > base ? (size_t)(dot - base) : strlen(base);
    size_t n = 0;
    for (; n < stem && n < 40; n++)
        id[n] = isalnum((unsigned char)base[n]) && (unsigned char)base[n] < 128 ? base[n] : '_';
    id[n++] = '-';
    weft_hex_print(hash, id + n);
}

static weft_status add_source(weft_curate_plan *p, const char *name)
{
    WEFT_TRY(weft_grow((void **)&p->source, p->sources, &p->capacity, sizeof *p->source));
    weft_curate_source *s = &p->source[p->sources];
    weft_buf state = {0}, parts = {0};
    *s = (weft_curate_source){.kind = weft_source_kind_of(name),
                              .hash_of_name = XXH3_64bits(name, strlen(name))};
    s->own = weft_curate_is_own(p->config, s->hash_of_name);
    make_id(name, s->hash_of_name, s->id);
    weft_buf_printf(&state, "%s/state/%s.json", p->out, s->id);
    s->name = weft_utf8_escape(name); /* JSON knows no other */
    s->path = weft_path_join(p->in, name);
    s->state_path = state.data;
    weft_buf_printf(&parts, "%s/state/%s.parts", p->out, s->id);
    s->parts_path = parts.data;
    p->sources++;
    if (!s->name || !s->path || state.failed || parts.failed)
        return out_of_memory();
    weft_footage_facts(p->footage, s->path, &s->bytes, &s->mtime_ns);
    return weft_footage_caption(p->footage, s->path, &s->copy);
}

const char *weft_curate_caption_path(const weft_curate_source *s)
{
    return s->copy ? s->copy : s->path;
}

/* Sidecar of a video: the file with the same stem and this extension; NULL: none. Sources are
 * sorted by path, so files of one stem are adjacent. */
static const weft_curate_source *sidecar_of(const weft_curate_plan *p, const weft_curate_source *s,
                                            const char *extension)
{
    const char *dot = strrchr(weft_path_base(s->path), '.');
    const size_t stem = dot ? (size_t)(dot - s->path) : strlen(s->path);
    int64_t low = 0, high = p->sources;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (strncmp(p->source[middle].path, s->path, stem) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < p->sources && strncmp(p->source[low].path, s->path, stem) == 0; low++) {
        const weft_curate_source *found = &p->source[low];
        if (found->kind == WEFT_SOURCE_KIND_SIDECAR && found->path[stem] == '.' &&
            strcasecmp(found->path + stem + 1, extension) == 0)
            return found;
    }
    return NULL;
}

static bool has_sidecar(const weft_curate_plan *p, const weft_curate_source *s)
{
    return sidecar_of(p, s, "json") || sidecar_of(p, s, "vtt") || sidecar_of(p, s, "txt");
}

typedef struct sized {
    int64_t bytes, source;
    bool hashed, unreadable;
    XXH128_hash_t hash;
} sized;

static int by_size(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->source > y->source) - (x->source < y->source);
}

static bool same_file_bytes(const weft_curate_plan *p, sized *a, sized *b)
{
    for (int i = 0; i < 2; i++) {
        sized *f = i ? b : a;
        if (!f->hashed) /* unreadable: the analysis reports the reason */
            f->unreadable =
                weft_footage_hash(p->footage, p->source[f->source].path, &f->hash) != WEFT_OK;
        f->hashed = true;
        if (f->unreadable)
            return false;
    }
    return XXH128_isEqual(a->hash, b->hash);
}

/* Only files of equal size can be equal. Of equal ones the first with a caption is kept, or the
 * first by name. */
static weft_status find_same_bytes(weft_curate_plan *p)
{
    int64_t count = 0;
    sized *file;
    WEFT_TRY(WEFT_NEW(file, p->sources + 1, "the curation"));
    for (int64_t i = 0; i < p->sources; i++)
        if (p->source[i].kind == WEFT_SOURCE_KIND_VIDEO && p->source[i].bytes > 0)
            file[count++] = (sized){.bytes = p->source[i].bytes, .source = i};
    qsort(file, (size_t)count, sizeof *file, by_size);
    for (int64_t i = 0; i < count; i++) {
        const char *found = p->source[file[i].source].same_as;
        int64_t kept = file[i].source;
        for (int64_t k = i + 1; !found && k < count && file[k].bytes == file[i].bytes; k++) {
            weft_curate_source *b = &p->source[file[k].source];
            if (b->same_as || !same_file_bytes(p, &file[i], &file[k]))
                continue;
            if (!has_sidecar(p, b) || has_sidecar(p, &p->source[kept])) {
                b->same_as = p->source[kept].name;
                continue;
            }
            for (int64_t j = i; j < k; j++) { /* replaces the previous one */
                weft_curate_source *other = &p->source[file[j].source];
                if (file[j].source == kept || other->same_as == p->source[kept].name)
                    other->same_as = b->name;
            }
            kept = file[k].source;
        }
    }
    weft_free(file);
    return WEFT_OK;
}

/* Adds a name of the footage that is not a file. */
static weft_status add_other(weft_curate_plan *p, const char *name)
{
    struct stat st;
    WEFT_TRY(add_source(p, name));
    weft_curate_source *s = &p->source[p->sources - 1];
    s->kind = WEFT_SOURCE_KIND_OTHER;
    if (weft_footage_is_remote(p->footage))
        s->why_other = "an object with a name that no file can have";
    else if (stat(s->path, &st) != 0)
        s->why_other = errno == ELOOP ? "a link that leads to itself" : "a link to nothing";
    else if (S_ISDIR(st.st_mode))
        s->why_other = "a link to a folder whose files are used under another path";
    else
        s->why_other = "neither a file nor a folder";
    return WEFT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weft_curate_source *)a)->path, ((const weft_curate_source *)b)->path);
}

weft_status weft_curate_plan_scan(weft_curate_plan *p)
{
    weft_names files = {0}, others = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_footage_open(p->in, p->location, p->out, &p->footage, &files, &others));
    for (int64_t i = 0; i < files.count; i++)
        WEFT_GO(add_source(p, files.name[i]));
    for (int64_t i = 0; i < others.count; i++)
        WEFT_GO(add_other(p, others.name[i]));
    if (files.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_FOOTAGE_NOT_FOUND, WEFT_AT(.file = p->in),
                           "the folder has no file"));
    qsort(p->source, (size_t)p->sources, sizeof *p->source, by_name);
    if (p->config->duplicates.on)
        WEFT_GO(find_same_bytes(p));
out:
    weft_names_free(&files);
    weft_names_free(&others);
    return status;
}

weft_status weft_curate_state_save(const weft_curate_plan *p, const weft_curate_source *s,
                                   json_t *record)
{
    json_t *state =
        json_pack("{s:i,s:s,s:I,s:I,s:O}", "version", STATE_VERSION, "source", s->name, "bytes",
                  (json_int_t)s->bytes, "mtime_ns", (json_int_t)s->mtime_ns, "record", record);
    if (!state)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.file = s->path),
                          "the record of the video cannot be stored; its name may not be UTF-8");
    weft_status_code status = weft_json_save(s->state_path, state);
    json_decref(state);
    WEFT_TRY(status);
    WEFT_TRY(weft_curate_bucket_send(p, s->parts_path)); /* first: the record implies the parts */
    return weft_curate_bucket_send(p, s->state_path);
}

weft_status weft_curate_parts_save(const weft_curate_source *s, const weft_curate_parts *parts)
{
    weft_buf all = {0};
    weft_buf_append(&all, parts->thumbnail, parts->thumbnails * (int64_t)sizeof *parts->thumbnail);
    weft_buf_append(&all, parts->keypoints,
                    parts->keypoint_frames * (int64_t)sizeof *parts->keypoints);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&all));
    WEFT_GO(weft_file_write_atomic(s->parts_path, all.data ? all.data : "", all.len));
out:
    weft_buf_free(&all);
    return status;
}

static int64_t thumbnail_bytes(const weft_curate_source *s)
{
    return json_integer_value(json_object_get(s->record, "looks")) *
           (int64_t)sizeof(weft_thumbnail);
}

/* True if the parts of the record exist. A video rejected because its process died has none. */
static bool has_parts(const weft_curate_source *s)
{
    struct stat st;
    if (json_object_get(s->record, "reject") && !json_object_get(s->record, "looks"))
        return true;
    const int64_t keypoint_frames = json_integer_value(json_object_get(s->record, "pictures"));
    return stat(s->parts_path, &st) == 0 &&
           st.st_size == thumbnail_bytes(s) + keypoint_frames * (int64_t)sizeof(weft_keypoints);
}

static weft_status read_parts(const weft_curate_source *s, int64_t at, int64_t bytes, int64_t step,
                              int64_t count, void *to)
{
    const int file = open(s->parts_path, O_RDONLY | O_CLOEXEC);
    bool whole = file >= 0;
    for (int64_t i = 0; whole && i < count; i++)
        whole = pread(file, (char *)to + i * bytes, (size_t)bytes, at + i * step * bytes) == bytes;
    if (file >= 0)
        close(file);
    if (!whole)
        return weft_error_add(
            weft_error_errno(WEFT_AT(.file = s->parts_path), "cannot read the file"),
            "Remove %s to analyse the video again.", s->state_path);
    return WEFT_OK;
}

/* Converts the hashes of a record from text to binary, since they are most of the record. The shots
 * retain "hash_at" and "hash_count". */
static weft_status take_hashes(weft_curate_source *s)
{
    size_t k, i;
    json_t *shot, *text;
    int64_t count = 0, at = 0;
    json_array_foreach(json_object_get(s->record, "shots"), k, shot) count +=
        (int64_t)json_array_size(json_object_get(shot, "hashes"));
    weft_free(s->hash);
    WEFT_TRY(WEFT_NEW(s->hash, count + 1, "the curation"));
    json_array_foreach(json_object_get(s->record, "shots"), k, shot)
    {
        const int64_t first = at;
        json_array_foreach(json_object_get(shot, "hashes"), i, text) at +=
            weft_phash_parse(json_string_value(text), &s->hash[at]);
        json_object_set_new(shot, "hash_at", json_integer(first));
        json_object_set_new(shot, "hash_count", json_integer(at - first));
        json_object_del(shot, "hashes");
    }
    return WEFT_OK;
}

static void filter_shots(const weft_curate_config *config, json_t *record)
{
    size_t k;
    json_t *shot;
    json_array_foreach(json_object_get(record, "shots"), k, shot)
    {
        json_t *reject = json_object_get(shot, "reject") ? NULL : weft_curate_filter(config, shot);
        if (reject)
            json_object_set_new(shot, "reject", reject);
    }
}

weft_status weft_curate_plan_load(weft_curate_plan *p, bool begin)
{
    for (int64_t i = 0; i < p->sources; i++) {
        weft_curate_source *s = &p->source[i];
        json_t *state;
        json_decref(s->record);
        s->record = NULL;
        s->unscored = s->unembedded = false;
        if (s->kind != WEFT_SOURCE_KIND_VIDEO || s->same_as || (begin && !s->own) ||
            !weft_path_exists(s->state_path))
            continue;
        if (weft_json_load(s->state_path, &state) != WEFT_OK)
            continue; /* the record is rebuilt */
        if (json_integer_value(json_object_get(state, "version")) == STATE_VERSION &&
            json_integer_value(json_object_get(state, "bytes")) == s->bytes &&
            json_integer_value(json_object_get(state, "mtime_ns")) == s->mtime_ns &&
            !(begin && json_is_true(json_object_get(json_object_get(state, "record"), "again"))))
            s->record = json_incref(json_object_get(state, "record"));
        json_decref(state);
        if (s->record && !has_parts(s)) {
            json_decref(s->record);
            s->record = NULL;
        }
        if (s->record) {
            filter_shots(p->config, s->record);
            WEFT_TRY(take_hashes(s));
            WEFT_TRY(weft_curate_embeddings_load(p, s, begin));
            weft_curate_embeddings_mark(p, s);
            WEFT_TRY(weft_curate_embeddings_merge(p, s));
            WEFT_TRY(weft_curate_scores_load(p, s, begin));
            if (!weft_curate_embeddings_are_first(p))
                weft_curate_embeddings_mark(p, s); /* of the shots that operators accept */
        }
    }
    return WEFT_OK;
}

bool weft_curate_lacks_record(const weft_curate_source *s)
{
    return s->kind == WEFT_SOURCE_KIND_VIDEO && !s->record && !s->same_as;
}

enum { LISTED_SHARDS = 20 };

/* Adds a shard to the list unless it has the shard or is full. */
static void list_shard(weft_curate_remaining *r, uint64_t listed[LISTED_SHARDS], int *count,
                       uint64_t shard)
{
    const size_t used = strlen(r->shards);
    for (int i = 0; i < *count; i++)
        if (listed[i] == shard)
            return;
    if (*count == LISTED_SHARDS) {
        if (r->shards[used - 1] != '.')
            snprintf(r->shards + used, sizeof r->shards - used, ", ...");
        return;
    }
    listed[(*count)++] = shard;
    snprintf(r->shards + used, sizeof r->shards - used, "%s%" PRIu64, used ? ", " : "", shard);
}

void weft_curate_plan_remaining(const weft_curate_plan *p, weft_curate_remaining *r)
{
    uint64_t listed[LISTED_SHARDS];
    int count = 0;
    *r = (weft_curate_remaining){0};
    for (int64_t i = 0; i < p->sources; i++) {
        const weft_curate_source *s = &p->source[i];
        if (!weft_curate_lacks_record(s) && !s->unscored && !s->unembedded)
            continue;
        if (r->videos++ == 0)
            snprintf(r->first, sizeof r->first, "%s", s->name);
        if (p->config->shards > 0)
            list_shard(r, listed, &count, s->hash_of_name % (uint64_t)p->config->shards);
    }
}

enum { KEYPOINT_FRAMES = 4 }; /* maximum per shot */

/* A candidate shot with its rank among copies. */
typedef struct entry {
    weft_curate_source *source;
    json_t *shot;
    double worth;
    int64_t start, frames;
    const weft_phash *hash; /* borrowed from the source */
    int64_t hashes;
    weft_parts parts;
    weft_keypoints keypoints[KEYPOINT_FRAMES];
    int64_t first_thumbnail; /* index in the source */
} entry;

/* Approximate number of H.264 bits equivalent to one bit of this codec. */
static double bit_worth(const char *codec)
{
    static const struct {
        const char *name;
        double worth;
    } codecs[] = {{"av1", 2.2},        {"hevc", 1.8},       {"vp9", 1.6},   {"vp8", 0.9},
                  {"mpeg4", 0.6},      {"mpeg2video", 0.4}, {"mjpeg", 0.1}, {"prores", 0.1},
                  {"rawvideo", 0.005}, {"ffv1", 0.02}};
    for (int i = 0; codec && i < WEFT_COUNT(codecs); i++)
        if (strcmp(codecs[i].name, codec) == 0)
            return codecs[i].worth;
    return 1;
}

static double area_pixels(const json_t *shot)
{
    const json_t *area = json_object_get(shot, "picture");
    return (double)json_integer_value(json_array_get(area, 2)) *
           (double)json_integer_value(json_array_get(area, 3));
}

/* Quality of a copy: pixels inside the bars, times a factor for bits per pixel, times the root of
 * its duration. A tenth of the bits counts as half the pixels. A long shot thus ranks before its
 * excerpts, but a slowed copy does not rank before its source. Frame count is ignored: doubling
 * frames adds nothing. */
static double worth_of(const weft_curate_source *s, const json_t *video, const json_t *shot)
{
    const double seconds = json_real_value(json_object_get(shot, "end_seconds")) -
                           json_real_value(json_object_get(shot, "start_seconds"));
    const double whole = json_real_value(json_object_get(video, "seconds"));
    double bits = (double)json_integer_value(json_object_get(video, "bit_rate"));
    if (bits <= 0)
        bits = whole > 0 ? 8 * (double)s->bytes / whole : 1;
    bits *= bit_worth(json_string_value(json_object_get(video, "codec")));
    return area_pixels(shot) * pow(fmax(bits, 1), 0.3) * sqrt(fmax(seconds, 0));
}

/* Sorts better copies first, then by name, so that the order of the files has no effect. */
static int better(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth < y->worth ? 1 : -1;
    const int names = strcmp(x->source->name, y->source->name);
    return names ? names : (x->start > y->start) - (x->start < y->start);
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Selects the thumbnails and keypoints of a shot. They are at multiples of their steps in the
 * source's hashes. For a long shot, keypoints of every second, fourth ... frame are used, at even
 * positions in the source, so that copies use the same frames. */
static weft_status take_parts(entry *e, const json_t *video)
{
    const weft_curate_source *s = e->source;
    const int64_t from = json_integer_value(json_object_get(e->shot, "hash_from")),
                  to = from + e->hashes,
                  height = json_integer_value(json_object_get(video, "height"));
    const double width = json_number_value(json_object_get(video, "width"));
    int64_t step = WEFT_KEYPOINTS_STEP;
    e->first_thumbnail = round_up(from, WEFT_THUMBNAIL_STEP) / WEFT_THUMBNAIL_STEP;
    e->parts = (weft_parts){.aspect = height > 0 ? width / (double)height : 1,
                            .thumbnails = round_up(to, WEFT_THUMBNAIL_STEP) / WEFT_THUMBNAIL_STEP -
                                          e->first_thumbnail,
                            .thumbnails_at = e->first_thumbnail * WEFT_THUMBNAIL_STEP - from};
    while ((round_up(to, step) - round_up(from, step)) / step > KEYPOINT_FRAMES)
        step *= 2;
    e->parts.keypoint_frames = (round_up(to, step) - round_up(from, step)) / step;
    e->parts.keypoints_at = round_up(from, step) - from;
    e->parts.keypoints_step = step;
    return read_parts(s,
                      thumbnail_bytes(s) + round_up(from, step) / WEFT_KEYPOINTS_STEP *
                                               (int64_t)sizeof *e->keypoints,
                      sizeof *e->keypoints, step / WEFT_KEYPOINTS_STEP, e->parts.keypoint_frames,
                      e->keypoints);
}

static weft_status_code read_thumbnails(void *user, int64_t shot, weft_thumbnail *to)
{
    const entry *e = (const entry *)user + shot;
    return read_parts(e->source, e->first_thumbnail * (int64_t)sizeof *to,
                      e->parts.thumbnails * (int64_t)sizeof *to, 1, 1, to);
}

static weft_status collect(weft_curate_plan *p, entry **out, int64_t *count)
{
    entry *list = NULL;
    int64_t n = 0, capacity = 0;
    for (int64_t i = 0; i < p->sources; i++) {
        weft_curate_source *s = &p->source[i];
        size_t k;
        json_t *shot;
        if (!s->record || json_object_get(s->record, "reject"))
            continue;
        const json_t *video = json_object_get(s->record, "video");
        json_array_foreach(json_object_get(s->record, "shots"), k, shot)
        {
            if (json_object_get(shot, "reject"))
                continue;
            if (weft_grow((void **)&list, n, &capacity, sizeof *list) != WEFT_OK) {
                weft_free(list);
                return out_of_memory();
            }
            entry *e = &list[n++];
            *e = (entry){.source = s,
                         .shot = shot,
                         .hashes = json_integer_value(json_object_get(shot, "hash_count"))};
            e->hash = s->hash + json_integer_value(json_object_get(shot, "hash_at"));
            e->worth = worth_of(s, video, shot);
            e->start = json_integer_value(json_object_get(shot, "start"));
            e->frames = json_integer_value(json_object_get(shot, "end")) - e->start + 1;
            if (p->config->duplicates.on && p->config->duplicates.parts > 0 &&
                take_parts(e, video) != WEFT_OK) {
                weft_free(list);
                return WEFT_E_IO;
            }
        }
    }
    if (n)
        qsort(list, (size_t)n, sizeof *list, better);
    *out = list;
    *count = n;
    return WEFT_OK;
}

/* Describes a partial duplicate: position, overlay, colours. */
static void format_parts(const weft_parts_match *m, weft_buf *to)
{
    const double area = m->map.scale_x * m->map.scale_y;
    if (m->map.mirrored)
        weft_buf_printf(to, ", mirrored");
    if (area > 1.05)
        weft_buf_printf(to, ", which is cropped to %.0f %% of it", 100 / area);
    else if (area < 0.95)
        weft_buf_printf(to, ", of which it is cropped to %.0f %%", 100 * area);
    if (m->common < 0.98)
        weft_buf_printf(to, ", with something else in %.0f %% of the frame", 100 * (1 - m->common));
    weft_buf_printf(to, m->gain < 0.2 ? ", one of the two without colours" : "");
}

/* Compares each shot, better copies first, with the shots selected so far. */
static weft_status mark_duplicates(const weft_curate_config *c, entry *list, int64_t count)
{
    const weft_near_limits limits = {
        .frames = {.bits = (int)(c->duplicates.distance * WEFT_PHASH_BITS + 0.5),
                   .colour = (int)c->duplicates.colour},
        .share = c->duplicates.share,
        .parts = c->duplicates.parts,
        .mirrored = c->duplicates.mirrored,
        .read_thumbnails = read_thumbnails,
        .user = list};
    weft_near_shot *shots = weft_calloc(count + 1, sizeof *shots);
    weft_near_result *result = weft_calloc(count + 1, sizeof *result);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(shots && result, "the curation"));
    for (int64_t i = 0; i < count; i++)
        list[i].parts.keypoints = list[i].keypoints; /* position after sorting */
    for (int64_t i = 0; i < count; i++)
        shots[i] = (weft_near_shot){list[i].hash, list[i].hashes, &list[i].parts};
    WEFT_GO(weft_near_duplicates_find(shots, count, &limits, result, NULL));
    for (int64_t i = 0; i < count; i++) {
        if (result[i].of < 0)
            continue;
        const entry *kept = &list[result[i].of];
        weft_buf reason = {0};
        weft_buf_printf(&reason, "shows the same as %s, frames %" PRId64 " to %" PRId64,
                        kept->source->name, kept->start, kept->start + kept->frames - 1);
        if (result[i].in_parts)
            format_parts(&result[i].match, &reason);
        json_t *reject = weft_curate_reject("duplicate", result[i].share, c->duplicates.share,
                                            reason.data ? reason.data : "");
        json_object_set_new(reject, "duplicate_of", json_string(kept->source->name));
        json_object_set_new(list[i].shot, "reject", reject);
        weft_buf_free(&reason);
    }
out:
    weft_free(shots);
    weft_free(result);
    return status;
}

/* The captions of a video by their priority. */
typedef struct caption_set {
    weft_sidecar json, vtt, text;
    const char *listed; /* in captions.csv; NULL: none */
    weft_buf joined;    /* cues of the last shot */
} caption_set;

static void read_captions(const weft_curate_plan *p, const weft_curate_source *s,
                          const weft_caption_tables *tables, caption_set *c)
{
    static const char *const extensions[] = {"json", "vtt", "txt"};
    *c = (caption_set){.listed = weft_caption_tables_find(tables, s->name)};
    weft_sidecar *const to[] = {&c->json, &c->vtt, &c->text};
    for (int i = 0; i < 3; i++) {
        const weft_curate_source *file = sidecar_of(p, s, extensions[i]);
        if (file)
            weft_sidecar_read(weft_curate_caption_path(file), to[i]);
    }
}

static void free_captions(caption_set *c)
{
    weft_sidecar_free(&c->json);
    weft_sidecar_free(&c->vtt);
    weft_sidecar_free(&c->text);
    weft_buf_free(&c->joined);
}

/* Returns the caption of a shot; NULL: none. Valid until the next call. */
static const char *caption_of(caption_set *c, const json_t *shot)
{
    const int64_t start = json_integer_value(json_object_get(shot, "start"));
    const int64_t end = json_integer_value(json_object_get(shot, "end"));
    const char *caption = weft_sidecar_caption(&c->json, start, end);
    if (caption)
        return caption;
    weft_buf_free(&c->joined);
    weft_sidecar_join_cues(&c->vtt, json_real_value(json_object_get(shot, "start_seconds")),
                           json_real_value(json_object_get(shot, "end_seconds")), &c->joined);
    if (c->joined.len)
        return c->joined.data;
    caption = weft_sidecar_caption(&c->text, start, end);
    return caption ? caption : c->listed;
}

static json_t *make_meta(const weft_curate_source *s, json_t *shot, const char *id,
                         const char *caption)
{
    const json_t *video = json_object_get(s->record, "video"),
                 *scores = json_object_get(shot, "scores");
    const int64_t start = json_integer_value(json_object_get(shot, "start"));
    const int64_t end = json_integer_value(json_object_get(shot, "end"));
    const XXH128_hash_t h = XXH3_128bits(id, strlen(id));
    char uuid[40];
    snprintf(uuid, sizeof uuid, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(h.high64 >> 32),
             (unsigned)(h.high64 >> 16 & 0xffff), (unsigned)(h.high64 & 0xffff),
             (unsigned)(h.low64 >> 48), h.low64 & 0xffffffffffffULL);
    json_t *meta = json_pack(
        "{s:s,s:s,s:s,s:[f,f],s:[I,I],s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:[{s:i,s:I}]}", "id", id,
        "span_uuid", uuid, "source_video", s->name, "duration_span",
        json_real_value(json_object_get(shot, "start_seconds")),
        json_real_value(json_object_get(shot, "end_seconds")), "frame_span", (json_int_t)start,
        (json_int_t)end, "width_source", json_object_get(video, "width"), "height_source",
        json_object_get(video, "height"), "framerate_source", json_object_get(video, "fps"),
        "codec_source", json_object_get(video, "codec"), "motion_score",
        json_object_get(scores, "motion"), "sharpness_score", json_object_get(scores, "sharpness"),
        "brightness_score", json_object_get(scores, "brightness"), "windows", "start_frame", 0,
        "end_frame", (json_int_t)(end - start + 1));
    if (meta) {
        json_object_set(meta, "frames_source", json_object_get(video, "frames"));
        json_object_set(meta, "damaged_packets_source", json_object_get(video, "damaged_packets"));
        json_object_set(meta, "damaged_source", json_object_get(video, "damaged"));
        json_object_set(meta, "interlaced_source", json_object_get(video, "interlaced"));
        json_object_set(meta, "variable_rate", json_object_get(shot, "variable_rate"));
        json_object_set(meta, "frame_seconds", json_object_get(shot, "frame_seconds"));
        json_object_set(meta, "hdr_source", json_object_get(video, "hdr"));
        json_object_set(meta, "transfer_source", json_object_get(video, "transfer"));
    }
    if (meta && caption) {
        json_object_set_new(meta, "caption", json_string(caption));
        json_object_set_new(json_array_get(json_object_get(meta, "windows"), 0), "caption",
                            json_string(caption));
    }
    return meta;
}

/* Sets the area of a clip: without borders, and without bands of text. */
static void crop_clip(const weft_curate_config *c, const json_t *shot, const json_t *video,
                      weft_curate_clip *clip)
{
    const json_t *shot_area = json_object_get(shot, "picture"),
                 *rest = json_object_get(shot, "cropped"), *area = rest ? rest : shot_area;
    const int64_t width = json_integer_value(json_object_get(video, "width")),
                  height = json_integer_value(json_object_get(video, "height"));
    int64_t crop[4], shown[4];
    for (size_t k = 0; k < 4; k++) {
        crop[k] = json_integer_value(json_array_get(area, k));
        shown[k] = json_integer_value(json_array_get(shot_area, k));
    }
    if (!c->clips.crop_borders) { /* borders stay, except in a band of text */
        const int64_t top = crop[1] > shown[1] ? crop[1] : 0,
                      bottom = crop[1] + crop[3] < shown[1] + shown[3] ? crop[1] + crop[3] : height;
        crop[0] = 0;
        crop[1] = top;
        crop[2] = width;
        crop[3] = bottom - top;
    }
    if (crop[2] * crop[3] == width * height)
        return;
    memcpy(clip->crop, crop, sizeof crop);
    json_object_set_new(clip->meta, "crop_source",
                        json_pack("[I,I,I,I]", (json_int_t)crop[0], (json_int_t)crop[1],
                                  (json_int_t)crop[2], (json_int_t)crop[3]));
    if (rest)
        json_object_set_new(clip->meta, "text_cropped", json_true());
}

/* True if the coded frames of the source can be the clip: both ends are cuts of the packets, and
 * the config changes neither area, size nor rate. */
static bool can_copy(const weft_curate_config *c, const json_t *shot, const json_t *video,
                     const weft_curate_clip *clip)
{
    const json_int_t width = json_integer_value(json_object_get(video, "width")),
                     height = json_integer_value(json_object_get(video, "height"));
    const bool smaller =
                   c->clips.max_side > 0 && (width > height ? width : height) > c->clips.max_side,
               slower = c->clips.fps > 0 && clip->fps > c->clips.fps * 1.001;
    return json_object_get(shot, "trimmed") && !clip->crop[2] && !smaller && !slower;
}

/* Sets the settings that clips are written with again if the settings change. */
static void set_encoding(const weft_curate_config *c, const json_t *shot, weft_curate_clip *clip)
{
    json_t *how = json_object_get(clip->meta, "written_with");
    if (clip->copy)
        json_object_set_new(how, "copy", json_true());
    json_object_set(clip->meta, "trimmed_frames", json_object_get(shot, "trimmed"));
    json_object_set_new(how, "crf", json_integer(c->clips.crf));
    json_object_set_new(how, "preset", json_string(c->clips.preset));
    json_object_set_new(how, "key_interval", json_integer(c->clips.key_interval));
    json_object_set_new(how, "max_side", json_integer(c->clips.max_side));
    if (strcmp(c->clips.encoder, "libx264") != 0) /* clips of earlier versions stay valid */
        json_object_set_new(how, "encoder", json_string(c->clips.encoder));
    if (c->clips.fps > 0)
        json_object_set_new(how, "max_fps", json_real(c->clips.fps));
    if (c->clips.sound)
        json_object_set_new(how, "sound", json_true());
}

static weft_status add_clip(weft_curate_plan *p, weft_curate_source *s, caption_set *captions,
                            json_t *shot, int64_t *capacity)
{
    const int64_t start = json_integer_value(json_object_get(shot, "start"));
    const int64_t end = json_integer_value(json_object_get(shot, "end"));
    const char *caption = caption_of(captions, shot);
    WEFT_TRY(weft_buf_check(&captions->joined));
    weft_buf id = {0}, path = {0}, meta_path = {0};
    weft_buf_printf(&id, "%s-%06" PRId64, s->id, start);
    if (json_object_get(shot, "merged")) /* another clip than the first part alone */
        weft_buf_printf(&id, "_%06" PRId64, end);
    json_t *written = !caption && id.data ? weft_curate_captions_read(p, id.data) : NULL;
    const bool pending = p->config->captions.url[0] && !p->captioned;
    if (!caption && !written && !pending && p->config->clips.require_caption) {
        weft_buf_free(&id);
        json_object_set_new(shot, "reject", weft_curate_reject("caption", 0, 1, "no caption"));
        return WEFT_OK;
    }
    if (weft_grow((void **)&s->clip, s->clips, capacity, sizeof *s->clip) != WEFT_OK) {
        weft_buf_free(&id);
        json_decref(written);
        return WEFT_E_MEMORY;
    }
    weft_buf_printf(&path, "%s/clips/%s.mp4", p->out, id.data ? id.data : "");
    weft_buf_printf(&meta_path, "%s/metas/%s.json", p->out, id.data ? id.data : "");
    weft_curate_clip *clip = &s->clip[s->clips++];
    *clip = (weft_curate_clip){
        .path = path.data, .meta_path = meta_path.data, .start = start, .end = end, .id = id.data};
    if (id.failed || path.failed || meta_path.failed ||
        !(clip->meta = make_meta(s, shot, id.data, caption))) {
        json_decref(written);
        return out_of_memory();
    }
    weft_curate_scores_add(p, s, shot, clip->meta);
    if (written)
        weft_curate_captions_add(p, written, clip->meta);
    json_decref(written);
    json_object_set(clip->meta, "cluster", json_object_get(shot, "cluster"));
    json_object_set(clip->meta, "merged_shots", json_object_get(shot, "merged"));
    const json_t *video = json_object_get(s->record, "video");
    clip->fps = json_real_value(json_object_get(shot, "fps"));
    clip->seconds = json_real_value(json_object_get(shot, "end_seconds")) -
                    json_real_value(json_object_get(shot, "start_seconds"));
    json_object_set_new(clip->meta, "written_with", json_object());
    crop_clip(p->config, shot, video, clip);
    clip->copy = can_copy(p->config, shot, video, clip);
    set_encoding(p->config, shot, clip);
    return WEFT_OK;
}

/* Rejects near-duplicates by their frames, then by their embeddings. */
static weft_status reject_duplicates(weft_curate_plan *p)
{
    entry *list = NULL;
    weft_cluster_shot *shots = NULL;
    int64_t count = 0, n = 0;
    const bool clusters = weft_embeddings_choose(&p->config->embeddings);
    weft_status_code status = WEFT_OK;
    if (!p->config->duplicates.on && !clusters)
        return WEFT_OK;
    WEFT_GO(collect(p, &list, &count));
    if (p->config->duplicates.on)
        WEFT_GO(mark_duplicates(p->config, list, count));
    if (clusters) {
        WEFT_GO(WEFT_NEW(shots, count + 1, "the curation"));
        for (int64_t i = 0; i < count; i++)
            if (!json_object_get(list[i].shot, "reject"))
                shots[n++] = (weft_cluster_shot){list[i].source, list[i].shot};
        status = weft_curate_clusters_choose(p, shots, n);
    }
out:
    weft_free(shots);
    weft_free(list);
    return status;
}

/* Adds the clips of one source. */
static weft_status choose_clips_of(weft_curate_plan *p, weft_curate_source *s,
                                   caption_set *captions)
{
    int64_t capacity = 0;
    size_t k;
    json_t *shot;
    json_array_foreach(json_object_get(s->record, "shots"), k, shot)
    {
        if (!json_object_get(shot, "reject"))
            WEFT_TRY(add_clip(p, s, captions, shot, &capacity));
    }
    return WEFT_OK;
}

/* Chooses the clips of all sources, with the captions of their files. */
static weft_status choose_clips(weft_curate_plan *p, const weft_caption_tables *tables)
{
    for (int64_t i = 0; i < p->sources; i++) {
        weft_curate_source *s = &p->source[i];
        free_clips(s);
        if (!s->record || json_object_get(s->record, "reject"))
            continue;
        caption_set captions;
        read_captions(p, s, tables, &captions);
        const weft_status_code status = choose_clips_of(p, s, &captions);
        free_captions(&captions);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

weft_status weft_curate_plan_choose(weft_curate_plan *p)
{
    weft_caption_tables tables = {0};
    WEFT_TRY(reject_duplicates(p));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_caption_tables_read(p, &tables));
    WEFT_GO(choose_clips(p, &tables));
out:
    weft_caption_tables_free(&tables);
    return status;
}
