#include "data/dataset.h"

#include "base/compare.h"
#include "base/config.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/location.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/caption_vtt.h"
#include "data/id_table.h"
#include "data/loose_videos.h"
#include "storage/storage_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shard {
    const char *name; /* name in the storage; arena */
    const char *path; /* path in messages; arena */
    uint64_t id;      /* hash of the name, after the name of the source in a list */
    weft_storage *storage;
    weft_sample *sample;
    int64_t first, count; /* range of its samples in the dataset */
    /* set for a video without a shard, whose samples have the same parts (arena): */
    const char *const *file; /* names of the parts in the storage; NULL: a shard */
    const char *caption;     /* of a table; NULL: none */
    double clip_seconds;     /* time from one sample to the next; 0: the video is one sample */
} shard;

struct weft_dataset {
    weft_arena *arena;
    weft_storage **storage; /* [sources], of which the last is being read while it is opened */
    int64_t sources;
    /* while it is opened: */
    const char *name; /* of the source; NULL: a single path */
    const weft_dataset_options *options;
    shard *shard;
    int64_t shards, capacity;
    int64_t count, damaged, bytes, made;
    uint64_t fingerprint;
    weft_index_buffer buffer; /* while it is opened */
    int32_t *shard_hint;      /* shard of every 2^GUIDE_SHIFT'th sample */
};
enum { HINT_SHIFT = 6 };

/* ---- shards -------------------------------------------------------------------------------- */

static uint64_t mix_shard(uint64_t fingerprint, uint64_t id, const weft_index *index)
{
    fingerprint = weft_seed_mix(fingerprint, id);
    if (index->sum)
        return weft_seed_mix(fingerprint, index->sum);
    return weft_seed_mix(weft_seed_mix(fingerprint, (uint64_t)index->facts.bytes),
                         index->facts.stamp);
}

/* The damage of an index begins with the path that the shard had when the index was written. */
static const char *without_path(const char *damage, const char *path)
{
    const size_t length = strlen(path);
    return strncmp(damage, path, length) || strncmp(damage + length, ": ", 2) ? damage
                                                                              : damage + length + 2;
}

static weft_storage *storage_of(const weft_dataset *ds)
{
    return ds->storage[ds->sources - 1];
}

/* Puts the name of the source before the keys of a shard's samples. */
static weft_status name_source(weft_dataset *ds, weft_index *index)
{
    for (int64_t i = 0; i < index->count; i++) {
        weft_sample *s = &index->sample[i];
        s->key = weft_arena_printf(ds->arena, "%s/%s", ds->name, s->key);
        WEFT_TRY(WEFT_ALLOCATED(s->key, "the samples of source %s", ds->name));
        s->id = XXH3_64bits(s->key, strlen(s->key));
        s->source = (uint16_t)(ds->sources - 1);
    }
    return WEFT_OK;
}

static uint64_t shard_id(const weft_dataset *ds, const char *name)
{
    const uint64_t id = XXH3_64bits(name, strlen(name));
    return ds->name ? weft_seed_mix(XXH3_64bits(ds->name, strlen(ds->name)), id) : id;
}

/* Adds a shard without samples. */
static weft_status new_shard(weft_dataset *ds, const char *name, shard **made)
{
    WEFT_TRY(weft_grow((void **)&ds->shard, ds->shards, &ds->capacity, sizeof *ds->shard));
    shard *s = *made = &ds->shard[ds->shards];
    *s = (shard){.name = weft_arena_strdup(ds->arena, name),
                 .path =
                     weft_arena_printf(ds->arena, "%s/%s", weft_storage_root(storage_of(ds)), name),
                 .id = shard_id(ds, name),
                 .storage = storage_of(ds),
                 .first = ds->count};
    return WEFT_ALLOCATED(s->name && s->path, "%s", name);
}

/* Adds the samples of an index to the last shard. */
static weft_status add_samples(weft_dataset *ds, shard *s, weft_index *index)
{
    ds->shards++;
    ds->bytes += index->facts.bytes;
    ds->fingerprint = mix_shard(ds->fingerprint, s->id, index);
    for (int64_t i = 0; i < index->count; i++)
        index->sample[i].shard = (int32_t)ds->shards - 1;
    if (ds->name)
        WEFT_TRY(name_source(ds, index));
    s->sample = index->sample;
    s->count = index->count;
    ds->count += index->count;
    return WEFT_OK;
}

static weft_status add_shard(weft_dataset *ds, const char *name)
{
    weft_index index;
    bool made;
    shard *s;
    WEFT_TRY(new_shard(ds, name, &s));
    WEFT_TRY(weft_index_get(storage_of(ds), name, ds->arena, &ds->buffer, &index, &made));
    if (index.damage) {
        const char *damage = without_path(index.damage, s->path);
        if (ds->options->strict)
            return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = s->path), "%s", damage);
        weft_warning(WEFT_MSG_SHARD_PARTLY_USED, WEFT_AT(.file = s->path), "%s; %s", damage,
                     index.count ? "its intact members are used" : "the shard is skipped");
        ds->damaged++;
    }
    ds->made += made;
    return add_samples(ds, s, &index);
}

/* ---- videos without shards ----------------------------------------------------------------- */

/* Adds a video as a shard with a sample for each of its clips. */
static weft_status add_video(weft_dataset *ds, const weft_loose_video *v)
{
    const double fps = v->sample.fps, seconds = ds->options->clip_seconds;
    const int64_t frames = v->sample.frames;
    int64_t each = seconds > 0 && fps > 0 ? llround(seconds * fps) : frames;
    each = each < 1 ? 1 : each;
    shard *s;
    weft_index index = {.facts = {.bytes = v->sample.part->bytes, .stamp = v->stamp},
                        .count = frames > each ? (frames + each - 1) / each : 1};
    WEFT_TRY(new_shard(ds, v->file[0], &s));
    WEFT_TRY(WEFT_ARENA_NEW(ds->arena, index.sample, index.count, "%s", v->file[0]));
    for (int64_t i = 0; i < index.count; i++) {
        weft_sample *to = &index.sample[i];
        *to = v->sample;
        if (index.count > 1) {
            to->key = weft_arena_printf(ds->arena, "%s@%04" PRId64, v->sample.key, i);
            to->frames = (int32_t)(frames - i * each < each ? frames - i * each : each);
        }
        WEFT_TRY(WEFT_ALLOCATED(to->key, "%s", v->file[0]));
        to->id = XXH3_64bits(to->key, strlen(to->key));
    }
    s->file = v->file;
    s->caption = v->caption;
    s->clip_seconds = index.count > 1 ? (double)each / fps : 0;
    ds->fingerprint = weft_seed_mix(ds->fingerprint, (uint64_t)each);
    return add_samples(ds, s, &index);
}

/* Adds the videos of a folder without shards; *found: any. */
static weft_status add_videos(weft_dataset *ds, const char *split, bool *found)
{
    weft_loose_videos videos;
    WEFT_TRY(weft_loose_videos_find(storage_of(ds), split, ds->arena, &videos));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < videos.count; i++)
        WEFT_GO(add_video(ds, &videos.video[i]));
out:
    *found = videos.count > 0;
    weft_free(videos.video);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Adds the shard with this name, and releases the name. */
static weft_status add_named(weft_dataset *ds, weft_buf *name)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(name));
    WEFT_GO(add_shard(ds, name->data));
out:
    weft_buf_free(name);
    return status;
}

/* Expands "{000..012}.tar"; numbers keep their width. */
static weft_status add_braces(weft_dataset *ds, const char *name, const char *path)
{
    const char *open = strchr(name, '{');
    long long first, last;
    int used = 0;
    if (!open || sscanf(open, "{%lld..%lld}%n", &first, &last, &used) != 2 || used == 0 ||
        first < 0 || last < first)
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = path),
                          "braces must be of the form {000..012} and in the file's name");
    const int width = (int)(strstr(open, "..") - open - 1);
    for (long long i = first; i <= last; i++) {
        weft_buf one = {0};
        weft_buf_printf(&one, "%.*s%0*lld%s", (int)(open - name), name, width, i, open + used);
        WEFT_TRY(add_named(ds, &one));
    }
    return WEFT_OK;
}

/* Warns of shards that weft shard wrote into the folder and that are missing: nothing else lists
 * their samples. */
static void report_missing(const weft_dataset *ds, const weft_names *names, const char *split)
{
    const char *list = "index.json";
    json_t *json = NULL;
    if (bsearch(&list, names->name, (size_t)names->count, sizeof *names->name, weft_compare_text) &&
        weft_storage_json_load(storage_of(ds), list, &json) != WEFT_OK)
        weft_warn_error(WEFT_MSG_SHARD_PARTLY_USED,
                        "missing shards of this folder cannot be reported");
    const json_t *shards = json_object_get(json, "shards");
    char full_path[1024];
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *entry = json_array_get(shards, i);
        const char *file = json_string_value(json_object_get(entry, "file"));
        snprintf(full_path, sizeof full_path, "%s/%s", weft_storage_root(storage_of(ds)),
                 file ? file : "");
        if (file && (!split || !strncmp(file, split, strlen(split))) &&
            !bsearch(&file, names->name, (size_t)names->count, sizeof *names->name,
                     weft_compare_text))
            weft_warning(
                WEFT_MSG_SHARD_PARTLY_USED, WEFT_AT(.file = full_path),
                "the shard is missing, with its %lld samples; `weft shard` writes it again",
                json_integer_value(json_object_get(entry, "samples")));
    }
    json_decref(json);
}

/* "tar.gz" of "a.tar.gz", "mp4" of "a.mp4". */
static const char *suffix_of(const char *name)
{
    const char *last = weft_path_extension(name), *tar = strstr(name, ".tar.");
    return tar && tar + 5 == last ? tar + 1 : last;
}

static bool is_compressed(const char *name)
{
    static const char *const suffixes[] = {"tar.gz",  "tar.zst", "tar.xz",
                                           "tar.bz2", "tar.lz4", "tgz"};
    for (int i = 0; i < WEFT_COUNT(suffixes); i++)
        if (!strcmp(suffix_of(name), suffixes[i]))
            return true;
    return false;
}

/* Counts the files of a folder by suffix: "3 .mp4, 1 .json". */
static void describe_files(const weft_names *names, weft_buf *to)
{
    enum { MOST = 8 };
    const char *suffix[MOST];
    int64_t count[MOST] = {0}, others = 0;
    int kinds = 0;
    for (int64_t i = 0; i < names->count; i++) {
        int k = 0;
        if (names->name[i][0] == '.')
            continue; /* notes of weft shard */
        while (k < kinds && strcmp(suffix[k], suffix_of(names->name[i])) != 0)
            k++;
        if (k == MOST) {
            others++;
            continue;
        }
        suffix[k] = suffix_of(names->name[i]);
        kinds += k == kinds;
        count[k]++;
    }
    for (int k = 0; k < kinds; k++)
        weft_buf_printf(to, "%s%" PRId64 " %s%s", k ? ", " : "", count[k],
                        *suffix[k] ? "." : "without a suffix", suffix[k]);
    if (others)
        weft_buf_printf(to, ", %" PRId64 " other%s", others, weft_plural(others));
}

static weft_status fail_without_shards(const weft_names *names, const char *path, const char *split)
{
    weft_buf files = {0};
    bool compressed = false, tars = false;
    for (int64_t i = 0; i < names->count; i++) {
        compressed |= is_compressed(names->name[i]);
        tars |= !strcmp(weft_path_extension(names->name[i]), "tar");
    }
    describe_files(names, &files);
    const weft_status_code status = weft_error(
        WEFT_MSG_SHARDS_NOT_FOUND, WEFT_AT(.file = path, .value = split),
        "the folder has no shards named %s%s*.tar. It has %s%s.%s%s%s%s%s", split ? split : "",
        split ? "-" : "", files.len ? "files: " : "no files", files.data ? files.data : "",
        split ? " The split's name is data.split of a run, or --split; \"\" selects all shards."
              : "",
        split && tars ? " The .tar files belong to other splits." : "",
        compressed ? " Compressed shards are not read; decompress them, e.g. with gunzip." : "",
        split && !strcmp(split, "heldout")
            ? " `weft shard --set heldout=0.1` writes held-out clips."
            : "",
        tars || compressed ? "" : " It has no videos either.");
    weft_buf_free(&files);
    return status;
}

static bool has_archives(const weft_names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        if (is_compressed(names->name[i]) || !strcmp(weft_path_extension(names->name[i]), "tar"))
            return true;
    return false;
}

static weft_status add_folder(weft_dataset *ds, const char *path, const char *split)
{
    weft_names names = {0};
    WEFT_TRY(weft_storage_list(storage_of(ds), &names));
    weft_status_code status = WEFT_OK;
    bool videos = false;
    const int64_t before = ds->shards;
    const size_t split_len = split ? strlen(split) : 0;
    for (int64_t i = 0; i < names.count; i++) {
        if (strcmp(weft_path_extension(names.name[i]), "tar") != 0 ||
            (split &&
             (strncmp(names.name[i], split, split_len) != 0 || names.name[i][split_len] != '-')))
            continue;
        WEFT_GO(add_shard(ds, names.name[i]));
    }
    report_missing(ds, &names, split);
    if (ds->shards == before && !has_archives(&names))
        WEFT_GO(add_videos(ds, split, &videos));
    if (ds->shards == before && !videos)
        WEFT_GO(fail_without_shards(&names, path, split));
out:
    weft_names_free(&names);
    return status;
}

/* Fills the table that weft_dataset_at starts from: the first shard of each block of samples. */
static weft_status make_shard_hints(weft_dataset *ds)
{
    const int64_t stretches = (ds->count >> HINT_SHIFT) + 1;
    WEFT_TRY(WEFT_NEW(ds->shard_hint, stretches, "%" PRId64 " samples", ds->count));
    int64_t s = 0;
    for (int64_t i = 0; i < stretches; i++) {
        while (s + 1 < ds->shards && ds->shard[s + 1].first <= i << HINT_SHIFT)
            s++;
        ds->shard_hint[i] = (int32_t)s;
    }
    return WEFT_OK;
}

typedef struct same_key {
    const weft_dataset *dataset;
    const weft_sample *sample;
} same_key;

static bool has_same_key(const void *user, int64_t number)
{
    const same_key *s = user;
    return weft_sample_same(weft_dataset_at(s->dataset, number), s->sample);
}

static weft_status check_keys(const weft_dataset *ds)
{
    enum { PREFETCH = 12 }; /* samples whose places in the table are on their way */
    weft_id_table table;
    WEFT_TRY(weft_id_table_create(ds->count, &table));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < ds->shards; i++) {
        const shard *own = &ds->shard[i];
        for (int64_t k = 0; k < own->count; k++) {
            const same_key s = {ds, &own->sample[k]};
            if (k + PREFETCH < own->count)
                weft_id_table_expect(&table, own->sample[k + PREFETCH].id);
            const int64_t other = weft_id_table_find(&table, s.sample->id, has_same_key, &s);
            if (other >= 0)
                WEFT_GO(weft_error(WEFT_MSG_SHARD_DAMAGED,
                                   WEFT_AT(.file = own->path, .key = s.sample->key),
                                   "another sample in %s has the same key. Rename one sample, or "
                                   "write the members of a sample next to each other.",
                                   ds->shard[weft_dataset_at(ds, other)->shard].path));
            weft_id_table_put(&table, s.sample->id, own->first + k);
        }
    }
out:
    weft_id_table_free(&table);
    return status;
}

bool weft_dataset_names_shards(const char *location)
{
    const char *base = weft_path_base(location), *scheme = strstr(location, "://");
    const bool bucket = weft_location_is_remote(location) && scheme && base == scheme + 3;
    return !bucket && (strchr(base, '{') || !strcmp(weft_path_extension(base), "tar"));
}

static weft_status open_storage(weft_dataset *ds, const char *location)
{
    WEFT_TRY(weft_storage_open(location, &ds->storage[ds->sources]));
    ds->sources++;
    return WEFT_OK;
}

static weft_status add_path(weft_dataset *ds, const char *path, const char *split)
{
    const char *base = weft_path_base(path);
    const bool remote = weft_location_is_remote(path);
    if (remote ? !weft_dataset_names_shards(path) : weft_path_is_dir(path)) {
        WEFT_TRY(open_storage(ds, path));
        return add_folder(ds, path, split);
    }
    if (!remote && !strchr(path, '{') && !weft_path_exists(path))
        return weft_error(WEFT_MSG_SHARDS_NOT_FOUND, WEFT_AT(.file = path),
                          "this shard or folder of shards does not exist; `weft shard --in CURATED "
                          "--out %s` writes one",
                          path);
    if (is_compressed(base))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path),
                          "compressed shards are not read, because samples are read in random "
                          "order. Decompress the shard, e.g. with gunzip.");
    char *folder = weft_arena_printf(ds->arena, "%.*s",
                                     (int)(base - path > 1 ? base - path - 1 : base - path), path);
    WEFT_TRY(WEFT_ALLOCATED(folder, "%" PRId64 " samples", ds->count));
    WEFT_TRY(open_storage(ds, base == path ? "." : folder));
    return strchr(path, '{') ? add_braces(ds, base, path) : add_shard(ds, base);
}

/* Checks the samples of all sources, and makes what the functions below use. Closes the dataset
 * after an error. */
static weft_status finish_opening(weft_dataset *ds, weft_status_code status, const char *path,
                                  weft_dataset **dataset)
{
    weft_free(ds->buffer.data);
    ds->options = NULL;
    WEFT_GO(status);
    WEFT_GO(make_shard_hints(ds));
    WEFT_GO(check_keys(ds));
    if (ds->made)
        weft_debug("%s: the indexes of %" PRId64 " of %" PRId64 " shards were made", path, ds->made,
                   ds->shards);
    *dataset = ds;
out:
    if (status != WEFT_OK)
        weft_dataset_close(ds);
    return status;
}

static weft_status new_dataset(int64_t sources, const char *path,
                               const weft_dataset_options *options, weft_dataset **dataset)
{
    weft_dataset *ds = weft_alloc(sizeof *ds);
    if (ds) {
        ds->options = options;
        ds->arena = weft_arena_create();
        ds->storage = weft_calloc(sources, sizeof(weft_storage *));
    }
    if (ds && ds->arena && ds->storage) {
        *dataset = ds;
        return WEFT_OK;
    }
    weft_dataset_close(ds);
    return weft_no_memory("%s", path);
}

weft_status weft_dataset_open(const char *path, const char *split, bool strict,
                              weft_dataset **dataset)
{
    return weft_dataset_open_with(path, &(weft_dataset_options){.split = split, .strict = strict},
                                  dataset);
}

weft_status weft_dataset_open_with(const char *path, const weft_dataset_options *options,
                                   weft_dataset **dataset)
{
    weft_dataset *ds;
    WEFT_TRY(new_dataset(1, path, options, &ds));
    return finish_opening(ds, add_path(ds, path, options->split), path, dataset);
}

/* ---- sources ------------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Keeps the `limit` samples with the lowest hashes of the shards from `first` on. */
static weft_status limit_samples(weft_dataset *ds, int64_t first, int64_t limit)
{
    int64_t count = 0, at = 0;
    for (int64_t i = first; i < ds->shards; i++)
        count += ds->shard[i].count;
    ds->fingerprint = weft_seed_mix(ds->fingerprint, (uint64_t)limit);
    if (count <= limit)
        return WEFT_OK;
    uint64_t *rank;
    WEFT_TRY(WEFT_NEW(rank, count, "%" PRId64 " samples", count));
    for (int64_t i = first; i < ds->shards; i++)
        for (int64_t k = 0; k < ds->shard[i].count; k++)
            rank[at++] = weft_seed_mix(0, ds->shard[i].sample[k].id);
    qsort(rank, (size_t)count, sizeof *rank, by_rank);
    for (int64_t i = first; i < ds->shards; i++)
        for (int64_t k = 0; k < ds->shard[i].count; k++) {
            weft_sample *s = &ds->shard[i].sample[k];
            s->limited = weft_seed_mix(0, s->id) > rank[limit - 1];
        }
    weft_free(rank);
    return WEFT_OK;
}

static weft_status add_limited(weft_dataset *ds, const weft_data_source *source)
{
    const int64_t first = ds->shards;
    const char *own = source->split[0] ? source->split : ds->options->split;
    WEFT_TRY(add_path(ds, source->path, own && strcmp(own, "*") && own[0] ? own : NULL));
    return source->limit ? limit_samples(ds, first, source->limit) : WEFT_OK;
}

static weft_status add_source(weft_dataset *ds, const weft_data_source *source)
{
    char name[WEFT_SOURCE_NAME_BYTES];
    ds->name = weft_data_source_name(source, name);
    const weft_status_code status = add_limited(ds, source);
    ds->name = NULL;
    if (status != WEFT_OK)
        return weft_error_add(status, "The shards belong to source %s in data.path.", name);
    return WEFT_OK;
}

weft_status weft_dataset_open_sources(const weft_section_list *sources,
                                      const weft_dataset_options *options, weft_dataset **dataset)
{
    weft_dataset *ds;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(new_dataset(sources->count, "a list of sources", options, &ds));
    for (int64_t i = 0; i < sources->count; i++)
        WEFT_GO(add_source(ds, (const weft_data_source *)sources->item + i));
out:
    return finish_opening(ds, status, "a list of sources", dataset);
}

/* Index of the source that the key of a sample names; -1: none. */
static int64_t source_of(const weft_section_list *sources, const char *key)
{
    char name[WEFT_SOURCE_NAME_BYTES];
    for (int64_t i = 0; i < sources->count; i++) {
        weft_data_source_name((const weft_data_source *)sources->item + i, name);
        const size_t length = strlen(name);
        if (!strncmp(key, name, length) && key[length] == '/')
            return i;
    }
    return -1;
}

weft_status weft_dataset_assign_sources(weft_dataset *ds, const weft_section_list *sources)
{
    for (int64_t i = 0; i < ds->shards; i++)
        for (int64_t k = 0; k < ds->shard[i].count; k++) {
            weft_sample *s = &ds->shard[i].sample[k];
            const int64_t source = source_of(sources, s->key);
            if (source < 0)
                return weft_error(WEFT_MSG_SHARD_DAMAGED,
                                  WEFT_AT(.file = ds->shard[i].path, .key = s->key),
                                  "the key does not begin with the name of a source of data.path. "
                                  "Remove the folder of this shard, and it is written again.");
            s->source = (uint16_t)source;
        }
    return WEFT_OK;
}

void weft_dataset_close(weft_dataset *ds)
{
    if (!ds)
        return;
    for (int64_t i = 0; i < ds->sources; i++)
        weft_storage_close(ds->storage[i]);
    weft_free(ds->storage);
    weft_free(ds->shard);
    weft_free(ds->shard_hint);
    weft_arena_free(ds->arena);
    weft_free(ds);
}

/* ---- contents ------------------------------------------------------------------------------ */

int64_t weft_dataset_count(const weft_dataset *ds)
{
    return ds->count;
}

const weft_sample *weft_dataset_at(const weft_dataset *ds, int64_t index)
{
    const shard *s = &ds->shard[ds->shard_hint[index >> HINT_SHIFT]];
    while (index - s->first >= s->count)
        s++;
    return &s->sample[index - s->first];
}

const char *weft_dataset_shard(const weft_dataset *ds, int64_t index)
{
    return ds->shard[index].path;
}

uint64_t weft_dataset_shard_id(const weft_dataset *ds, int64_t index)
{
    return ds->shard[index].id;
}

int64_t weft_dataset_damaged(const weft_dataset *ds)
{
    return ds->damaged;
}

int64_t weft_dataset_bytes(const weft_dataset *ds)
{
    return ds->bytes;
}

int64_t weft_dataset_resident(const weft_dataset *ds)
{
    return weft_arena_bytes(ds->arena) + ds->capacity * (int64_t)sizeof *ds->shard +
           ((ds->count >> HINT_SHIFT) + 1) * (int64_t)sizeof *ds->shard_hint;
}

const weft_storage *weft_dataset_storage(const weft_dataset *ds)
{
    return ds->storage[0];
}

uint64_t weft_dataset_fingerprint(const weft_dataset *ds)
{
    return ds->fingerprint;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Checked data are hashed in pieces that are still in the cache which the read put them into. */
enum { HOT_BYTES = 256 << 10 };

/* Name of the file that has a part. */
static const char *file_of(const shard *s, const weft_sample *sample, const weft_part_data *part)
{
    const int64_t i = part - sample->part;
    return s->file && i >= 0 && i < sample->part_count ? s->file[i] : s->name;
}

/* A part of a file. */
typedef struct stretch {
    weft_storage *storage;
    const char *file;
    int64_t at, bytes;
} stretch;

static weft_status read_hot(const stretch *s, char *to, XXH3_state_t *state)
{
    for (int64_t done = 0; done < s->bytes;) {
        const int64_t left = s->bytes - done, n = state && left > HOT_BYTES ? HOT_BYTES : left;
        WEFT_TRY(weft_storage_read(s->storage, s->file, s->at + done, n, to + done));
        if (state)
            XXH3_64bits_update(state, to + done, (size_t)n);
        done += n;
    }
    return WEFT_OK;
}

bool weft_dataset_video(const weft_dataset *ds, const weft_sample *sample,
                        weft_storage_video *video, double *start_seconds)
{
    const shard *s = &ds->shard[sample->shard];
    if (!s->file)
        return false;
    weft_storage_video_begin(s->storage, s->file[0], sample->part->bytes, video);
    *start_seconds = (double)(sample - s->sample) * s->clip_seconds;
    return true;
}

/* Announces the parts of a video that a reader of a clip probably needs: both ends, where
 * containers have their tables, and the share of the clip. */
static void expect_clip(const shard *s, const weft_sample *sample)
{
    enum { END_BYTES = 1 << 20 };
    const int64_t bytes = sample->part->bytes, each = bytes / s->count, clip = sample - s->sample,
                  at = clip * each - END_BYTES;
    weft_storage_expect(s->storage, s->file[0], 0, bytes < END_BYTES ? bytes : END_BYTES);
    if (bytes > END_BYTES)
        weft_storage_expect(s->storage, s->file[0], bytes - END_BYTES, END_BYTES);
    const int64_t from = at > 0 ? at : 0, to = from + each + 2 * END_BYTES;
    weft_storage_expect(s->storage, s->file[0], from, (to < bytes ? to : bytes) - from);
}

void weft_dataset_expect(const weft_dataset *ds, const weft_sample *sample)
{
    const shard *s = &ds->shard[sample->shard];
    const bool clip = s->file && s->count > 1;
    if (clip)
        expect_clip(s, sample);
    for (int i = clip; i < sample->part_count; i++)
        weft_storage_expect(s->storage, file_of(s, sample, &sample->part[i]), sample->part[i].at,
                            sample->part[i].bytes);
}

/* Makes room for `bytes` bytes and a NUL. */
static weft_status make_room(weft_part_bytes *to, int64_t bytes, const char *what)
{
    if (bytes + 1 > to->capacity) {
        weft_free(to->data);
        *to = (weft_part_bytes){.data = weft_alloc_aligned(bytes + 1)};
        WEFT_TRY(WEFT_ALLOCATED(to->data, "%s: %" PRId64 " bytes", what, bytes));
        to->capacity = bytes + 1;
    }
    to->bytes = bytes;
    to->data[bytes] = 0;
    return WEFT_OK;
}

/* Reads the first `head` bytes of a part into `to`, the others into `rest`. */
static weft_status read_halves(const stretch *whole, int64_t head, void *to, void *rest,
                               XXH3_state_t *sum)
{
    stretch half = *whole;
    half.bytes = head;
    WEFT_TRY(read_hot(&half, to, sum));
    half.at = whole->at + head;
    half.bytes = whole->bytes - head;
    return read_hot(&half, rest, sum);
}

weft_status weft_dataset_read_apart(const weft_dataset *ds, const weft_sample *sample,
                                    const weft_part_data *part, bool verify, int64_t head,
                                    weft_part_bytes *to, void *rest)
{
    const shard *s = &ds->shard[sample->shard];
    const char *file = file_of(s, sample, part);
    WEFT_TRY(make_room(to, head, s->path));
    XXH3_state_t state, *sum = verify && part->sum ? &state : NULL;
    if (sum)
        XXH3_64bits_reset(sum);
    const weft_status_code status =
        read_halves(&(stretch){s->storage, file, part->at, part->bytes}, head, to->data, rest, sum);
    char member[512];
    snprintf(member, sizeof member, "%s.%s", sample->key, part->suffix);
    if (status != WEFT_OK)
        return weft_error_at(status, WEFT_AT(.file = s->path, .key = member));
    if (sum && XXH3_64bits_digest(sum) != part->sum)
        return weft_error(WEFT_MSG_CHECKSUM_MISMATCH, WEFT_AT(.file = s->path, .key = member),
                          "the bytes of this member differ from the written ones (checksum). If "
                          "the shard was changed on purpose, remove %s.index.",
                          s->path);
    return WEFT_OK;
}

weft_status weft_dataset_read(const weft_dataset *ds, const weft_sample *sample,
                              const weft_part_data *part, bool verify, weft_part_bytes *to)
{
    return weft_dataset_read_apart(ds, sample, part, verify, part->bytes, to, NULL);
}

/* Replaces the cues of a video in `to` by the caption of a sample. */
static weft_status join_cues(const shard *s, const weft_sample *sample, weft_part_bytes *to)
{
    weft_caption_vtt vtt = {0};
    weft_buf why = {0}, caption = {0};
    const double start = (double)(sample - s->sample) * s->clip_seconds,
                 end = sample->fps > 0 ? start + (double)sample->frames / sample->fps : INFINITY;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_caption_vtt_parse(to->data, &vtt, &why));
    if (s->clip_seconds > 0)
        weft_caption_vtt_join(&vtt, start, end, &caption);
    for (int64_t i = 0; s->clip_seconds <= 0 && i < vtt.cues; i++)
        weft_buf_printf(&caption, "%s%s", i ? " " : "", vtt.cue[i].text);
    WEFT_GO(weft_buf_check(&caption));
    /* shorter than the file */
    to->bytes = caption.len;
    memcpy(to->data, caption.len ? caption.data : "", (size_t)caption.len);
    to->data[to->bytes] = 0;
out:
    weft_caption_vtt_free(&vtt);
    weft_buf_free(&caption);
    weft_buf_free(&why);
    return status;
}

/* Replaces the .json in `to` by its caption. */
static weft_status take_caption(const weft_sample *sample, weft_part_bytes *to)
{
    json_t *json;
    const char *wrong;
    WEFT_TRY(weft_json_parse(to->data, to->bytes, sample->key, &json));
    const char *caption = weft_metadata_caption(json, &wrong);
    to->bytes = caption ? (int64_t)strlen(caption) : 0; /* shorter than the JSON that holds it */
    memmove(to->data, caption ? caption : "", (size_t)to->bytes);
    to->data[to->bytes] = 0;
    json_decref(json);
    return WEFT_OK;
}

weft_status weft_dataset_caption(const weft_dataset *ds, const weft_sample *sample, bool verify,
                                 weft_part_bytes *to)
{
    const shard *s = &ds->shard[sample->shard];
    const weft_part_data *text = weft_sample_part(sample, "txt"),
                         *meta = weft_sample_part(sample, "json"),
                         *cues = s->file ? weft_sample_part(sample, "vtt") : NULL;
    const char *listed = sample->captioned && s->caption ? s->caption : "";
    WEFT_TRY(make_room(to, (int64_t)strlen(listed), sample->key));
    memcpy(to->data, listed, (size_t)to->bytes);
    if (!sample->captioned || s->caption)
        return WEFT_OK;
    if (text) {
        WEFT_TRY(weft_dataset_read(ds, sample, text, verify, to));
        to->bytes = weft_caption_clean(to->data, to->bytes);
        to->data[to->bytes] = 0;
        return WEFT_OK;
    }
    if (meta) {
        WEFT_TRY(weft_dataset_read(ds, sample, meta, verify, to));
        WEFT_TRY(take_caption(sample, to));
    }
    if (!cues || to->bytes)
        return WEFT_OK;
    WEFT_TRY(weft_dataset_read(ds, sample, cues, verify, to));
    return join_cues(s, sample, to);
}
