#include "data/dataset.h"

#include "base/compare.h"
#include "base/config.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/id_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shard {
    const char *name; /* in the storage; arena */
    const char *path; /* for messages; arena */
    uint64_t id;      /* of the name */
    weft_sample *sample;
    int64_t first, count; /* of its samples in the dataset */
} shard;

struct weft_dataset {
    weft_arena *arena;
    weft_storage *storage;
    shard *shard;
    int64_t shards, capacity;
    int64_t count, damaged, bytes, made;
    uint64_t fingerprint;
    weft_index_room room; /* while it is opened */
    int32_t *guide;       /* shard of every 2^GUIDE_SHIFT'th sample */
};
enum { GUIDE_SHIFT = 6 };

/* ---- shards -------------------------------------------------------------------------------- */

static uint64_t mix_shard(uint64_t fingerprint, uint64_t id, const weft_index *index)
{
    fingerprint = weft_seed_mix(fingerprint, id);
    if (index->sum)
        return weft_seed_mix(fingerprint, index->sum);
    return weft_seed_mix(weft_seed_mix(fingerprint, (uint64_t)index->facts.bytes),
                         index->facts.stamp);
}

static weft_status add_shard(weft_dataset *ds, const char *name, bool strict)
{
    weft_index index;
    bool made;
    WEFT_TRY(weft_grow((void **)&ds->shard, ds->shards, &ds->capacity, sizeof *ds->shard));
    shard *s = &ds->shard[ds->shards];
    *s =
        (shard){.name = weft_arena_strdup(ds->arena, name),
                .path = weft_arena_printf(ds->arena, "%s/%s", weft_storage_root(ds->storage), name),
                .id = XXH3_64bits(name, strlen(name)),
                .first = ds->count};
    if (!s->name || !s->path)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", name);
    WEFT_TRY(weft_index_get(ds->storage, name, ds->arena, &ds->room, &index, &made));
    if (index.damage) {
        if (strict)
            return weft_fail(WEFT_E_FORMAT, "%s", index.damage);
        weft_warn("%s; %s", index.damage,
                  index.count ? "its whole members are used" : "the shard is left out");
        ds->damaged++;
    }
    ds->shards++;
    ds->made += made;
    ds->bytes += index.facts.bytes;
    ds->fingerprint = mix_shard(ds->fingerprint, s->id, &index);
    for (int64_t i = 0; i < index.count; i++)
        index.sample[i].shard = (int32_t)ds->shards - 1;
    s->sample = index.sample;
    s->count = index.count;
    ds->count += index.count;
    return WEFT_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* "{000..012}.tar" -> the numbers keep their width. */
static weft_status add_braces(weft_dataset *ds, const char *name, const char *path, bool strict)
{
    const char *open = strchr(name, '{');
    long long first, last;
    int used = 0;
    if (!open || sscanf(open, "{%lld..%lld}%n", &first, &last, &used) != 2 || used == 0 ||
        first < 0 || last < first)
        return weft_fail(WEFT_E_ARG, "%s: write braces as {000..012} in the file's name", path);
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

/* Shards that weft shard wrote into the folder and that are gone are told: nothing else knows what
 * was in them. */
static void tell_missing(const weft_dataset *ds, const weft_names *names, const char *path,
                         const char *split)
{
    char *list = weft_path_join(path, "index.json");
    json_t *json = NULL;
    if (list && weft_path_exists(list) && weft_json_load(list, &json) != WEFT_OK)
        weft_warn("%s; which shards there were is not known", weft_error_message());
    const json_t *shards = json_object_get(json, "shards");
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *entry = json_array_get(shards, i);
        const char *file = json_string_value(json_object_get(entry, "file"));
        if (file && (!split || !strncmp(file, split, strlen(split))) &&
            !bsearch(&file, names->name, (size_t)names->count, sizeof *names->name,
                     weft_compare_text))
            weft_warn("%s/%s is gone, and its %lld samples with it; `weft shard` writes it again",
                      weft_storage_root(ds->storage), file,
                      (long long)json_integer_value(json_object_get(entry, "samples")));
    }
    json_decref(json);
    weft_free(list);
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

/* "3 .mp4, 1 .json": what a folder has. */
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
        weft_buf_printf(to, "%s%lld %s%s", k ? ", " : "", (long long)count[k],
                        *suffix[k] ? "." : "without a suffix", suffix[k]);
    if (others)
        weft_buf_printf(to, ", %lld others", (long long)others);
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
    const weft_status_code status = weft_fail(
        WEFT_E_NOT_FOUND, "%s: no shards named %s%s*.tar in this folder. It has %s%s.%s%s%s%s%s",
        path, split ? split : "", split ? "-" : "", files.len ? "files: " : "no files",
        files.data ? files.data : "",
        split ? " The split's name is data.split of a run, or --split; \"\" takes all shards." : "",
        split && tars ? " The .tar files belong to other splits." : "",
        compressed ? " Compressed shards are not read; decompress them, e.g. with gunzip." : "",
        split && !strcmp(split, "heldout") ? " `weft shard --set heldout=0.1` keeps clips for it."
                                           : "",
        tars || compressed ? "" : " `weft shard` writes shards of the clips of `weft curate`.");
    weft_buf_free(&files);
    return status;
}

static weft_status add_folder(weft_dataset *ds, const char *path, const char *split, bool strict)
{
    weft_names names = {0};
    WEFT_TRY(weft_storage_list(ds->storage, &names));
    weft_status_code status = WEFT_OK;
    const size_t split_len = split ? strlen(split) : 0;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        if (strcmp(weft_path_extension(names.name[i]), "tar") != 0 ||
            (split &&
             (strncmp(names.name[i], split, split_len) != 0 || names.name[i][split_len] != '-')))
            continue;
        status = add_shard(ds, names.name[i], strict);
    }
    if (status == WEFT_OK)
        tell_missing(ds, &names, path, split);
    if (status == WEFT_OK && ds->shards == 0)
        status = fail_without_shards(&names, path, split);
    weft_names_free(&names);
    return status;
}

static weft_status no_memory(const weft_dataset *ds)
{
    return weft_fail(WEFT_E_MEMORY, "out of memory for %lld samples", (long long)ds->count);
}

/* For weft_dataset_at: the shard that a stretch of samples begins in. */
static weft_status make_guide(weft_dataset *ds)
{
    const int64_t stretches = (ds->count >> GUIDE_SHIFT) + 1;
    ds->guide = weft_alloc(stretches * (int64_t)sizeof *ds->guide);
    if (!ds->guide)
        return no_memory(ds);
    int64_t s = 0;
    for (int64_t i = 0; i < stretches; i++) {
        while (s + 1 < ds->shards && ds->shard[s + 1].first <= i << GUIDE_SHIFT)
            s++;
        ds->guide[i] = (int32_t)s;
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
    enum { AHEAD = 12 }; /* samples whose places in the table are on their way */
    weft_id_table table;
    WEFT_TRY(weft_id_table_create(ds->count, &table));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < ds->shards && status == WEFT_OK; i++) {
        const shard *own = &ds->shard[i];
        for (int64_t k = 0; k < own->count && status == WEFT_OK; k++) {
            const same_key s = {ds, &own->sample[k]};
            if (k + AHEAD < own->count)
                weft_id_table_expect(&table, own->sample[k + AHEAD].id);
            const int64_t other = weft_id_table_find(&table, s.sample->id, has_same_key, &s);
            if (other >= 0)
                status = weft_fail(WEFT_E_FORMAT,
                                   "%s: the key \"%s\" stands for another sample in %s; rename one "
                                   "of them, or write the members of a sample side by side",
                                   own->path, s.sample->key,
                                   ds->shard[weft_dataset_at(ds, other)->shard].path);
            weft_id_table_put(&table, s.sample->id, own->first + k);
        }
    }
    weft_id_table_free(&table);
    return status;
}

static weft_status add_path(weft_dataset *ds, const char *path, const char *split, bool strict)
{
    const char *base = weft_path_base(path);
    if (weft_path_is_dir(path) || strstr(path, "://")) {
        WEFT_TRY(weft_storage_open(path, &ds->storage));
        return add_folder(ds, path, split, strict);
    }
    if (!strchr(path, '{') && !weft_path_exists(path))
        return weft_fail(
            WEFT_E_NOT_FOUND,
            "%s: no such shard or folder of shards; `weft shard --in CURATED --out %s` makes one",
            path, path);
    if (is_compressed(base))
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: compressed shards are not read, because samples are read at random "
                         "places; decompress it, e.g. with gunzip",
                         path);
    char *folder = weft_arena_printf(ds->arena, "%.*s",
                                     (int)(base - path > 1 ? base - path - 1 : base - path), path);
    if (!folder)
        return no_memory(ds);
    WEFT_TRY(weft_storage_open(base == path ? "." : folder, &ds->storage));
    return strchr(path, '{') ? add_braces(ds, base, path, strict) : add_shard(ds, base, strict);
}

weft_status weft_dataset_open(const char *path, const char *split, bool strict,
                              weft_dataset **dataset)
{
    weft_dataset *ds = weft_alloc(sizeof *ds);
    if (ds)
        ds->arena = weft_arena_create();
    if (!ds || !ds->arena) {
        weft_free(ds);
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    }
    weft_status_code status = add_path(ds, path, split, strict);
    weft_free(ds->room.data);
    if (status == WEFT_OK)
        status = make_guide(ds);
    if (status == WEFT_OK)
        status = check_keys(ds);
    if (status != WEFT_OK) {
        weft_dataset_close(ds);
        return status;
    }
    if (ds->made)
        weft_debug("%s: the indexes of %lld of %lld shards were made", path, (long long)ds->made,
                   (long long)ds->shards);
    *dataset = ds;
    return WEFT_OK;
}

void weft_dataset_close(weft_dataset *ds)
{
    if (!ds)
        return;
    weft_storage_close(ds->storage);
    weft_free(ds->shard);
    weft_free(ds->guide);
    weft_arena_free(ds->arena);
    weft_free(ds);
}

/* ---- what is there ------------------------------------------------------------------------- */

int64_t weft_dataset_count(const weft_dataset *ds)
{
    return ds->count;
}

const weft_sample *weft_dataset_at(const weft_dataset *ds, int64_t index)
{
    const shard *s = &ds->shard[ds->guide[index >> GUIDE_SHIFT]];
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
           ((ds->count >> GUIDE_SHIFT) + 1) * (int64_t)sizeof *ds->guide;
}

const weft_storage *weft_dataset_storage(const weft_dataset *ds)
{
    return ds->storage;
}

uint64_t weft_dataset_fingerprint(const weft_dataset *ds)
{
    return ds->fingerprint;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Checked data are hashed in pieces that are still in the cache which the read put them into. */
enum { HOT_BYTES = 256 << 10 };

static weft_status read_hot(const weft_dataset *ds, const shard *s, int64_t at, int64_t bytes,
                            char *to, XXH3_state_t *state)
{
    for (int64_t done = 0; done < bytes;) {
        const int64_t left = bytes - done, n = state && left > HOT_BYTES ? HOT_BYTES : left;
        WEFT_TRY(weft_storage_read(ds->storage, s->name, at + done, n, to + done));
        if (state)
            XXH3_64bits_update(state, to + done, (size_t)n);
        done += n;
    }
    return WEFT_OK;
}

weft_status weft_dataset_read_apart(const weft_dataset *ds, const weft_sample *sample,
                                    const weft_part_data *part, bool verify, int64_t head,
                                    weft_part_bytes *to, void *rest)
{
    const shard *s = &ds->shard[sample->shard];
    if (head + 1 > to->room) {
        weft_free(to->data);
        *to = (weft_part_bytes){.data = weft_alloc_aligned(head + 1)};
        if (!to->data)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory for %lld bytes of %s.%s", s->path,
                             (long long)head, sample->key, part->suffix);
        to->room = head + 1;
    }
    to->bytes = head;
    to->data[head] = 0;
    XXH3_state_t state, *sum = verify && part->sum ? &state : NULL;
    if (sum)
        XXH3_64bits_reset(sum);
    weft_status_code status = read_hot(ds, s, part->at, head, to->data, sum);
    if (status == WEFT_OK)
        status = read_hot(ds, s, part->at + head, part->bytes - head, rest, sum);
    if (status != WEFT_OK)
        return weft_fail_context(status, "%s.%s", sample->key, part->suffix);
    if (sum && XXH3_64bits_digest(sum) != part->sum)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: %s.%s: its bytes are not those that were written (checksum); if the "
                         "shard was changed on purpose, remove %s.index",
                         s->path, sample->key, part->suffix, s->path);
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
    const char *caption = weft_meta_caption(json, &wrong);
    to->bytes = caption ? (int64_t)strlen(caption) : 0; /* shorter than the JSON that holds it */
    memmove(to->data, caption ? caption : "", (size_t)to->bytes);
    to->data[to->bytes] = 0;
    json_decref(json);
    return WEFT_OK;
}
