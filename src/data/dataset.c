#include "data/dataset.h"

#include "base/compare.h"
#include "base/config.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/location.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/id_table.h"
#include "storage/storage_json.h"

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
} shard;

struct weft_dataset {
    weft_arena *arena;
    weft_storage **storage; /* [sources], of which the last is being read while it is opened */
    int64_t sources;
    const char *name; /* while it is opened: name of the source; NULL: a single path */
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

static weft_status add_shard(weft_dataset *ds, const char *name, bool strict)
{
    weft_index index;
    bool made;
    WEFT_TRY(weft_grow((void **)&ds->shard, ds->shards, &ds->capacity, sizeof *ds->shard));
    shard *s = &ds->shard[ds->shards];
    *s = (shard){.name = weft_arena_strdup(ds->arena, name),
                 .path =
                     weft_arena_printf(ds->arena, "%s/%s", weft_storage_root(storage_of(ds)), name),
                 .id = shard_id(ds, name),
                 .storage = storage_of(ds),
                 .first = ds->count};
    WEFT_TRY(WEFT_ALLOCATED(s->name && s->path, "%s", name));
    WEFT_TRY(weft_index_get(storage_of(ds), name, ds->arena, &ds->buffer, &index, &made));
    if (index.damage) {
        const char *damage = without_path(index.damage, s->path);
        if (strict)
            return weft_error(WEFT_MSG_SHARD_DAMAGED, WEFT_AT(.file = s->path), "%s", damage);
        weft_warning(WEFT_MSG_SHARD_PARTLY_USED, WEFT_AT(.file = s->path), "%s; %s", damage,
                     index.count ? "its intact members are used" : "the shard is skipped");
        ds->damaged++;
    }
    ds->shards++;
    ds->made += made;
    ds->bytes += index.facts.bytes;
    ds->fingerprint = mix_shard(ds->fingerprint, s->id, &index);
    for (int64_t i = 0; i < index.count; i++)
        index.sample[i].shard = (int32_t)ds->shards - 1;
    if (ds->name)
        WEFT_TRY(name_source(ds, &index));
    s->sample = index.sample;
    s->count = index.count;
    ds->count += index.count;
    return WEFT_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Expands "{000..012}.tar"; numbers keep their width. */
static weft_status add_braces(weft_dataset *ds, const char *name, const char *path, bool strict)
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
        weft_status_code status = weft_buf_check(&one);
        if (status == WEFT_OK)
            status = add_shard(ds, one.data, strict);
        weft_buf_free(&one);
        WEFT_TRY(status);
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
        tars || compressed ? "" : " `weft shard` writes shards of the clips of `weft curate`.");
    weft_buf_free(&files);
    return status;
}

static weft_status add_folder(weft_dataset *ds, const char *path, const char *split, bool strict)
{
    weft_names names = {0};
    WEFT_TRY(weft_storage_list(storage_of(ds), &names));
    weft_status_code status = WEFT_OK;
    const int64_t before = ds->shards;
    const size_t split_len = split ? strlen(split) : 0;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        if (strcmp(weft_path_extension(names.name[i]), "tar") != 0 ||
            (split &&
             (strncmp(names.name[i], split, split_len) != 0 || names.name[i][split_len] != '-')))
            continue;
        status = add_shard(ds, names.name[i], strict);
    }
    if (status == WEFT_OK)
        report_missing(ds, &names, split);
    if (status == WEFT_OK && ds->shards == before)
        status = fail_without_shards(&names, path, split);
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
    for (int64_t i = 0; i < ds->shards && status == WEFT_OK; i++) {
        const shard *own = &ds->shard[i];
        for (int64_t k = 0; k < own->count && status == WEFT_OK; k++) {
            const same_key s = {ds, &own->sample[k]};
            if (k + PREFETCH < own->count)
                weft_id_table_expect(&table, own->sample[k + PREFETCH].id);
            const int64_t other = weft_id_table_find(&table, s.sample->id, has_same_key, &s);
            if (other >= 0)
                status = weft_error(WEFT_MSG_SHARD_DAMAGED,
                                    WEFT_AT(.file = own->path, .key = s.sample->key),
                                    "another sample in %s has the same key. Rename one sample, or "
                                    "write the members of a sample next to each other.",
                                    ds->shard[weft_dataset_at(ds, other)->shard].path);
            weft_id_table_put(&table, s.sample->id, own->first + k);
        }
    }
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

static weft_status add_path(weft_dataset *ds, const char *path, const char *split, bool strict)
{
    const char *base = weft_path_base(path);
    const bool remote = weft_location_is_remote(path);
    if (remote ? !weft_dataset_names_shards(path) : weft_path_is_dir(path)) {
        WEFT_TRY(open_storage(ds, path));
        return add_folder(ds, path, split, strict);
    }
    if (!remote && !strchr(path, '{') && !weft_path_exists(path))
        return weft_error(WEFT_MSG_SHARDS_NOT_FOUND, WEFT_AT(.file = path),
                          "this shard or folder of shards does not exist; `weft shard --in CURATED "
                          "--out %s` writes one",
                          path);
    if (is_compressed(base))
        return weft_error(WEFT_MSG_SHARD_UNSUPPORTED, WEFT_AT(.file = path),
                          "compressed shards are not read, because samples are read in random "
                          "order. Decompress the shard, e.g. with gunzip.");
    char *folder = weft_arena_printf(ds->arena, "%.*s",
                                     (int)(base - path > 1 ? base - path - 1 : base - path), path);
    WEFT_TRY(WEFT_ALLOCATED(folder, "%" PRId64 " samples", ds->count));
    WEFT_TRY(open_storage(ds, base == path ? "." : folder));
    return strchr(path, '{') ? add_braces(ds, base, path, strict) : add_shard(ds, base, strict);
}

/* Checks the samples of all sources, and makes what the functions below use. Closes the dataset
 * after an error. */
static weft_status finish_opening(weft_dataset *ds, weft_status_code status, const char *path,
                                  weft_dataset **dataset)
{
    weft_free(ds->buffer.data);
    if (status == WEFT_OK)
        status = make_shard_hints(ds);
    if (status == WEFT_OK)
        status = check_keys(ds);
    if (status != WEFT_OK) {
        weft_dataset_close(ds);
        return status;
    }
    if (ds->made)
        weft_debug("%s: the indexes of %" PRId64 " of %" PRId64 " shards were made", path, ds->made,
                   ds->shards);
    *dataset = ds;
    return WEFT_OK;
}

static weft_status new_dataset(int64_t sources, const char *path, weft_dataset **dataset)
{
    weft_dataset *ds = weft_alloc(sizeof *ds);
    if (ds) {
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
    weft_dataset *ds;
    WEFT_TRY(new_dataset(1, path, &ds));
    return finish_opening(ds, add_path(ds, path, split, strict), path, dataset);
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

static weft_status add_source(weft_dataset *ds, const weft_data_source *source, const char *split,
                              bool strict)
{
    char name[WEFT_SOURCE_NAME_BYTES];
    const int64_t first = ds->shards;
    const char *own = source->split[0] ? source->split : split;
    ds->name = weft_data_source_name(source, name);
    weft_status_code status =
        add_path(ds, source->path, own && strcmp(own, "*") && own[0] ? own : NULL, strict);
    if (status == WEFT_OK && source->limit)
        status = limit_samples(ds, first, source->limit);
    ds->name = NULL;
    return status == WEFT_OK
               ? WEFT_OK
               : weft_error_add(status, "The shards belong to source %s in data.path.", name);
}

weft_status weft_dataset_open_sources(const weft_section_list *sources, const char *split,
                                      bool strict, weft_dataset **dataset)
{
    weft_dataset *ds;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(new_dataset(sources->count, "a list of sources", &ds));
    for (int64_t i = 0; i < sources->count && status == WEFT_OK; i++)
        status = add_source(ds, (const weft_data_source *)sources->item + i, split, strict);
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

static weft_status read_hot(const shard *s, int64_t at, int64_t bytes, char *to,
                            XXH3_state_t *state)
{
    for (int64_t done = 0; done < bytes;) {
        const int64_t left = bytes - done, n = state && left > HOT_BYTES ? HOT_BYTES : left;
        WEFT_TRY(weft_storage_read(s->storage, s->name, at + done, n, to + done));
        if (state)
            XXH3_64bits_update(state, to + done, (size_t)n);
        done += n;
    }
    return WEFT_OK;
}

void weft_dataset_expect(const weft_dataset *ds, const weft_sample *sample)
{
    for (int i = 0; i < sample->part_count; i++)
        weft_storage_expect(ds->shard[sample->shard].storage, ds->shard[sample->shard].name,
                            sample->part[i].at, sample->part[i].bytes);
}

weft_status weft_dataset_read_apart(const weft_dataset *ds, const weft_sample *sample,
                                    const weft_part_data *part, bool verify, int64_t head,
                                    weft_part_bytes *to, void *rest)
{
    const shard *s = &ds->shard[sample->shard];
    if (head + 1 > to->capacity) {
        weft_free(to->data);
        *to = (weft_part_bytes){.data = weft_alloc_aligned(head + 1)};
        WEFT_TRY(WEFT_ALLOCATED(to->data, "%s: %" PRId64 " bytes of %s.%s", s->path, head,
                                sample->key, part->suffix));
        to->capacity = head + 1;
    }
    to->bytes = head;
    to->data[head] = 0;
    XXH3_state_t state, *sum = verify && part->sum ? &state : NULL;
    if (sum)
        XXH3_64bits_reset(sum);
    weft_status_code status = read_hot(s, part->at, head, to->data, sum);
    if (status == WEFT_OK)
        status = read_hot(s, part->at + head, part->bytes - head, rest, sum);
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

weft_status weft_dataset_caption(const weft_dataset *ds, const weft_sample *sample, bool verify,
                                 weft_part_bytes *to)
{
    const weft_part_data *text = weft_sample_part(sample, "txt"),
                         *meta = weft_sample_part(sample, "json");
    static const weft_part_data none = {.suffix = "txt"};
    if (!sample->captioned || (!text && !meta))
        return weft_dataset_read(ds, sample, &none, false, to); /* "" */
    WEFT_TRY(weft_dataset_read(ds, sample, text ? text : meta, verify, to));
    if (text) {
        to->bytes = weft_caption_clean(to->data, to->bytes);
        to->data[to->bytes] = 0;
        return WEFT_OK;
    }
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
